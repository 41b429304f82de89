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

// counted returns what is true so many times.
func counted(n int64) func() bool {
	var left atomic.Int64
	left.Store(n)
	return func() bool { return left.Add(-1) >= 0 }
}

// weighing opens a contestant that fills one store after another, and weighs
// what it wrote and what its files hold when it rests.
func weighing(_ context.Context, g *Ground) (Rig, error) {
	round := 0
	return NewRig(func(ctx context.Context) (Sample, error) {
		round++
		dir := filepath.Join(g.Dir, fmt.Sprint(round))
		sample, err := g.weigh(ctx, dir)
		return sample, errors.Join(err, os.RemoveAll(dir))
	}, nil), nil
}

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
	events := float64(n + writers) // each writer appends one before it asks
	return Sample{Written: (after - before) / events, Resting: float64(resting) / events, Payload: eventSize}, err
}

// rest returns when this process has written nothing for a while: what a store
// does behind the appends is over.
func rest(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last, quiet := -1.0, 0
	for range 200 {
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
	return errors.New("the store writes on, 20 seconds after the last append")
}
