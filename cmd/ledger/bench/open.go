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
)

// timedOpen opens a store, closes it again and returns how long the opening
// took.
func timedOpen(ctx context.Context, dir string) (time.Duration, error) {
	begun := time.Now()
	s, err := embedded.Open(ctx, dir, embedded.Config{Owner: embedded.Owner{Command: "bench"}})
	if err != nil {
		return 0, err
	}
	took := time.Since(begun)
	return took, s.Close()
}

func took(d time.Duration) Sample { return Sample{Took: float64(d) / float64(time.Millisecond)} }

// openingClosed opens a contestant that opens a store of n events which was
// closed, some times over.
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

// openingKilled opens a contestant that opens a store of n events and some more
// whose process was killed while 64 writers appended.
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

// tail is how many events a process that is to be killed has appended by then:
// the same each time, as it is what an opening has to do.
const tail = 20_000

// killUnderLoad has another process append to a store, and kills it.
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
		return errors.Join(fmt.Errorf("it said %q", line), err, ended)
	}
	return killed
}

// loaded is what a process says that is to be killed.
const loaded = "loaded\n"

// load appends until the process is killed.
func load(ctx context.Context, g *Ground) (Sample, error) {
	l, err := reopenLedger(ctx, g.Dir, 64)
	if err != nil {
		return nil, err
	}
	d := newDriver(l, 64)
	enough := int64(g.Count(tail))
	said := false
	for {
		goOn := counted(enough)
		if _, err := d.run(ctx, goOn); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		if !said {
			said = true
			if _, err := io.WriteString(g.bench.out, loaded); err != nil {
				return nil, err
			}
		}
	}
}
