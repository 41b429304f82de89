package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// counted returns a function that reports true for its first n calls. It is safe for
// concurrent use.
func counted(n int64) func() bool {
	var left atomic.Int64
	left.Store(n)
	return func() bool { return left.Add(-1) >= 0 }
}

// weighing is the Open function of a contestant that fills a new store in each round.
// The contestant measures the bytes written to the store and the size of the store's
// files after compaction.
func weighing(_ context.Context, g *Ground) (Rig, error) {
	round := 0
	return NewRig(func(ctx context.Context) (Sample, error) {
		round++
		dir := filepath.Join(g.Dir, fmt.Sprint(round))
		sample, err := g.weigh(ctx, dir)
		return sample, errors.Join(err, os.RemoveAll(dir))
	}, nil), nil
}

// weigh appends events with 64 writers to a new store in dir, waits for the end of
// compaction, closes the store and returns the bytes per event.
func (g *Ground) weigh(ctx context.Context, dir string) (Sample, error) {
	const writers = 64
	l, err := reopenLedger(ctx, dir, writers)
	if err != nil {
		return nil, err
	}
	before, err := bytesWritten()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	n := int64(g.Count(200_000))
	_, err = newDriver(l, writers).run(ctx, counted(n))
	if err = errors.Join(err, rest(ctx), l.Close()); err != nil {
		return nil, err
	}
	after, err := bytesWritten()
	if err != nil {
		return nil, err
	}
	resting, err := folderBytes(dir)
	events := float64(n + writers) // driver.run appends one event per writer before it calls counted
	return Sample{Written: (after - before) / events, Resting: float64(resting) / events, Payload: eventSize}, err
}

// restLimit bounds the wait for compactions. On a machine with other work they have taken
// over 20 seconds.
const restLimit = 3 * time.Minute

// rest waits until this process has written no byte for three ticks of 100 ms: flushes
// and compactions are then done. It returns an error after restLimit, or the cause of ctx
// if that ends first.
func rest(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last, quiet := -1.0, 0
	for begun := time.Now(); time.Since(begun) < restLimit; {
		written, err := bytesWritten()
		if err != nil {
			return err
		}
		if quiet++; written > last {
			last, quiet = written, 0
		}
		if quiet == 3 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("the store writes on, %v after the last append", restLimit)
}
