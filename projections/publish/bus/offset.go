package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/settlement-ledger/ledger/events"
)

// mostAhead bounds how many messages a group reads at once, and mostBytes how
// many bytes of them, or one.
const (
	mostAhead = 64
	mostBytes = 1 << 20
)

// next returns the first message that is not acknowledged, and waits where
// there is none.
func (g *group) next(ctx context.Context) (events.Entry, error) {
	if err := g.load(ctx); err != nil {
		return events.Entry{}, err
	}
	for len(g.ahead) == 0 {
		if err := g.read(ctx); err != nil {
			return events.Entry{}, err
		}
		if len(g.ahead) > 0 {
			break
		}
		if err := g.await(ctx); err != nil {
			return events.Entry{}, err
		}
	}
	return g.ahead[0], nil
}

// load takes what is kept of the group, the first time.
func (g *group) load(ctx context.Context) error {
	if g.loaded {
		return nil
	}
	data, err := g.bus.config.Checkpoints.LoadCheckpoint(ctx, g.name)
	if err == nil && len(data) > 0 {
		var n uint64
		n, err = strconv.ParseUint(string(data), 10, 64)
		g.done = events.Revision(n)
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", g.name, err)
	}
	g.loaded = true
	return nil
}

func (g *group) save(ctx context.Context) error {
	data := strconv.AppendUint(nil, uint64(g.done), 10)
	// It was acknowledged, whatever ended meanwhile.
	if err := g.bus.config.Checkpoints.SaveCheckpoint(context.WithoutCancel(ctx), g.name, data); err != nil {
		return fmt.Errorf("save %s: %w", g.name, err)
	}
	return nil
}

// read reads what comes next. Where there is nothing it knows a position
// behind which that will come.
func (g *group) read(ctx context.Context) error {
	end := g.end
	if headed, ok := g.bus.config.Store.(interface{ Head() events.Position }); ok {
		end = headed.Head()
	}
	size := 0
	for e, err := range g.bus.config.Store.Read(ctx, g.stream, g.done) {
		if err != nil {
			return err
		}
		g.ahead = append(g.ahead, e)
		g.end = e.Position
		if size += len(e.Data); len(g.ahead) >= mostAhead || size >= mostBytes {
			return nil
		}
	}
	if len(g.ahead) == 0 {
		g.end = end
	}
	return nil
}

// await returns when the stream has a record behind the end.
func (g *group) await(ctx context.Context) error {
	following := events.Following{Filter: events.Filter{Prefixes: []string{string(g.stream)}}}
	for e, err := range g.bus.config.Store.Follow(ctx, g.end, following) {
		if err != nil {
			return err
		}
		if e.Stream == g.stream {
			return nil
		}
	}
	return errors.New("the log ended")
}
