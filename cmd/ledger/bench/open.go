package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
)

// timedOpen opens the store in dir, closes it, and returns the duration of the
// opening alone.
func timedOpen(ctx context.Context, dir string) (time.Duration, error) {
	begun := time.Now()
	s, err := embedded.Open(ctx, dir, embedded.Config{Owner: storedir.Owner{Command: "bench"}})
	if err != nil {
		return 0, err
	}
	took := time.Since(begun)
	return took, s.Close()
}

// took returns a sample with the reading Took, d in milliseconds.
func took(d time.Duration) Sample { return Sample{Took: float64(d) / float64(time.Millisecond)} }

// openingClosed returns the Open function of a contestant that opens a store of n
// events that was closed in order. A sample is the median of five openings.
func openingClosed(name string, n int) func(context.Context, *Ground) (Rig, error) {
	return func(ctx context.Context, g *Ground) (Rig, error) {
		dir, err := g.plain(ctx, name, g.Count(n))
		if err != nil {
			return nil, err
		}
		return NewRig(func(ctx context.Context) (Sample, error) {
			all := make([]time.Duration, 5)
			for i := range all {
				if all[i], err = timedOpen(ctx, dir); err != nil {
					return nil, err
				}
			}
			slices.Sort(all)
			return took(all[len(all)/2]), nil
		}, nil), nil
	}
}

// openingKilled returns the Open function of a contestant that opens a store after a
// kill. In each round another process opens a copy of a store of n events, appends to it
// with 64 writers, and is killed. The contestant then measures the opening of that
// store.
func openingKilled(name string, n int) func(context.Context, *Ground) (Rig, error) {
	return func(ctx context.Context, g *Ground) (Rig, error) {
		run := func(ctx context.Context) (Sample, error) {
			dir, err := g.plain(ctx, name, g.Count(n))
			if err != nil {
				return nil, err
			}
			if err := g.killUnderLoad(ctx, dir); err != nil {
				return nil, fmt.Errorf("kill a process under load: %w", err)
			}
			d, err := timedOpen(ctx, dir)
			if err != nil {
				return nil, err
			}
			return took(d), os.RemoveAll(dir)
		}
		return NewRig(run, nil), nil
	}
}

// tail is the number of events, at scale 1, that a process appends before it is killed.
// Recovery reads these events again, so the number is the same for small and large
// stores.
const tail = 20_000

// killUnderLoad runs the task load on the store in dir in another process, and kills
// the process once it has written loaded.
func (g *Ground) killUnderLoad(ctx context.Context, dir string) error {
	cmd := g.command(ctx, "load", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	killed := cmd.Process.Kill()
	ended := cmd.Wait()
	if line != loaded {
		return errors.Join(fmt.Errorf("read %q instead of the line that reports the load", line), err, ended)
	}
	return killed
}

// loaded is the line by which the task load reports that it has appended enough.
const loaded = "loaded\n"

// load is a task whose process the parent kills. It appends with 64 writers until then,
// and writes the line loaded after about tail events.
func load(ctx context.Context, g *Ground) (Sample, error) {
	l, err := reopenLedger(ctx, g.Dir, 64)
	if err != nil {
		return nil, err
	}
	d := newDriver(l, 64)
	enough := int64(g.Count(tail))
	reported := false
	for {
		goOn := counted(enough)
		if _, err := d.run(ctx, goOn); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		if !reported {
			reported = true
			if _, err := io.WriteString(g.bench.out, loaded); err != nil {
				return nil, err
			}
		}
	}
}
