package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/settlement-ledger/ledger/events"
)

// The limits of one read: a group reads at most maxPrefetch messages at once, and no
// further message after maxPrefetchBytes bytes of data.
const (
	maxPrefetch      = 64
	maxPrefetchBytes = 1 << 20
)

// next returns the next message to deliver: the first released dead letter, or else
// the first message after the offset. It blocks until there is such a message. It
// moves the offset past messages that already are dead letters.
func (g *group) next(ctx context.Context) (*pending, error) {
	if err := g.load(ctx); err != nil {
		return nil, err
	}
	for {
		if g.deadLettersChanged.Swap(false) {
			if err := g.refresh(ctx); err != nil {
				return nil, err
			}
		}
		if p, err := g.released(ctx); p != nil || err != nil {
			return p, err
		}
		if len(g.prefetched) == 0 {
			if err := g.await(ctx); err != nil {
				return nil, err
			}
			continue
		}
		e := g.prefetched[0]
		if !g.letters.has(e.Revision) {
			return g.pending(e, false), nil
		}
		// It became a dead letter, but the offset was not saved after that.
		if err := g.advance(ctx, e.Revision); err != nil {
			return nil, err
		}
	}
}

// load reads the offset and the dead letters on first use. If it fails, it tries
// again on the next use.
func (g *group) load(ctx context.Context) error {
	if g.loaded {
		return nil
	}
	data, err := g.bus.config.Checkpoints.LoadCheckpoint(ctx, g.checkpoint)
	if err == nil && len(data) > 0 {
		var n uint64
		n, err = strconv.ParseUint(string(data), 10, 64)
		g.offset = events.Revision(n)
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", g.checkpoint, err)
	}
	if err := g.refresh(ctx); err != nil {
		return err
	}
	g.loaded = true
	return nil
}

// save saves the offset, even if ctx has ended, because the message was acknowledged.
func (g *group) save(ctx context.Context) error {
	data := strconv.AppendUint(nil, uint64(g.offset), 10)
	// The context may have ended after the acknowledgement.
	if err := g.bus.config.Checkpoints.SaveCheckpoint(context.WithoutCancel(ctx), g.checkpoint, data); err != nil {
		return fmt.Errorf("save %s: %w", g.checkpoint, err)
	}
	return nil
}

// await prefetches messages after the offset. Without such a message it blocks until
// a message or a dead letter record is appended, or returns at once if a dead letter
// is released.
func (g *group) await(ctx context.Context) error {
	if err := g.read(ctx); err != nil || len(g.prefetched) > 0 {
		return err
	}
	if err := g.refresh(ctx); err != nil {
		return err
	}
	if _, ok := g.letters.first(); ok {
		return nil
	}
	following := events.Following{Filter: events.Filter{Prefixes: []string{string(g.stream), string(g.deadLetters)}}}
	for e, err := range g.bus.config.Store.Follow(ctx, g.end, following) {
		if err != nil {
			return err
		}
		if g.end = e.Position; e.Stream == g.stream || e.Stream == g.deadLetters {
			return nil
		}
	}
	return errors.New("the log ended")
}

// read prefetches messages after the offset. If there is no such message, it sets end
// to a log position before every later message and dead letter record, from which the
// group can wait. To find it, read asks for the head of the log before it reads
// messages: a message appended in between is after that head.
func (g *group) read(ctx context.Context) error {
	end := g.end
	if headed, ok := g.bus.config.Store.(interface{ Head() events.Position }); ok {
		end = headed.Head()
	}
	size := 0
	for e, err := range g.bus.config.Store.Read(ctx, g.stream, g.offset) {
		if err != nil {
			return err
		}
		g.prefetched = append(g.prefetched, e)
		g.end = e.Position
		if size += len(e.Data); len(g.prefetched) >= maxPrefetch || size >= maxPrefetchBytes {
			return nil
		}
	}
	if len(g.prefetched) == 0 {
		g.end = end
	}
	return nil
}
