package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// A Trial is a task that contestants do in turn.
type Trial struct {
	Name        string
	Contestants []Contestant
}

// A Contestant does the task of a trial in its own way.
type Contestant struct {
	Name string
	// Open sets the contestant up for all rounds. What it needs on the disk it
	// makes in the folder of its ground.
	Open func(ctx context.Context, g *Ground) (Rig, error)
}

// A Rig is a contestant that is set up. Its methods are called one after the
// other.
type Rig interface {
	Run(ctx context.Context) (Sample, error) // does the task once
	Close() error
}

// NewRig returns a Rig of two functions; a nil close does nothing.
func NewRig(run func(ctx context.Context) (Sample, error), close func() error) Rig {
	return rig{run, close}
}

type rig struct {
	run   func(ctx context.Context) (Sample, error)
	close func() error
}

func (r rig) Run(ctx context.Context) (Sample, error) { return r.run(ctx) }

func (r rig) Close() error {
	if r.close == nil {
		return nil
	}
	return r.close()
}

// A Ground is what a contestant stands on.
type Ground struct {
	Dir   string // its own folder, which is empty
	bench *bench
}

// Count scales a number of things to the size of the run.
func (g *Ground) Count(n int) int { return min(n, max(int(float64(n)*g.bench.scale), least)) }

// least is the smallest count that a scaled run has.
const least = 64

// Span scales a time to the size of the run.
func (g *Ground) Span(d time.Duration) time.Duration {
	return min(d, max(time.Duration(float64(d)*g.bench.scale), 5*time.Millisecond))
}

// Bytes scales a size to that of the run.
func (g *Ground) Bytes(n int64) int64 { return min(n, max(int64(float64(n)*g.bench.scale), 4<<10)) }

// An entrant is a contestant of a trial that is under way.
type entrant struct {
	Contestant
	rig     Rig
	samples []Sample
	err     error // that ended it
}

// compete opens the contestants, lets them run in turn until the rounds or the
// share of time are over, and closes them.
func (b *bench) compete(ctx context.Context, t Trial, share time.Duration) (entrants []*entrant, err error) {
	begun := time.Now()
	dir := filepath.Join(b.dir, t.Name)
	for _, c := range t.Contestants {
		e := &entrant{Contestant: c}
		entrants = append(entrants, e)
		g := &Ground{Dir: filepath.Join(dir, c.Name), bench: b}
		if e.err = os.MkdirAll(g.Dir, 0o700); e.err == nil {
			b.progress(fmt.Sprintf("%s: set up %s", t.Name, c.Name))
			e.rig, e.err = c.Open(ctx, g)
		}
	}
	for round := range b.rounds {
		if round > 0 && time.Since(begun) > share {
			break
		}
		b.progress(fmt.Sprintf("%s: round %d of %d", t.Name, round+1, b.rounds))
		for i := range entrants {
			entrants[(i+round)%len(entrants)].run(ctx)
		}
	}
	for _, e := range entrants {
		if e.rig != nil {
			e.err = errors.Join(e.err, e.rig.Close())
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return entrants, fmt.Errorf("clean up after %s: %w", t.Name, err)
	}
	return entrants, context.Cause(ctx)
}

// run does one round. The garbage of who ran before is not charged to it.
func (e *entrant) run(ctx context.Context) {
	if e.err != nil {
		return
	}
	runtime.GC()
	sample, err := e.rig.Run(ctx)
	if e.err = err; err == nil {
		e.samples = append(e.samples, sample)
	}
}

// scores returns what the rounds of a trial gave for a row.
func scores(entrants []*entrant, r Row) (pairs []Pair, err error) {
	ours, err := found(entrants, r.Ours)
	if err != nil {
		return nil, err
	}
	theirs, err := found(entrants, r.Theirs)
	if err != nil {
		return nil, err
	}
	for round, sample := range ours.samples {
		p := Pair{Ours: sample[r.Ours.Reading]}
		p.Ratio = p.Ours
		if theirs != nil {
			p.Theirs = theirs.samples[round][r.Theirs.Reading]
			if p.Theirs == 0 {
				return nil, fmt.Errorf("%s gave nothing to compare with in round %d", theirs.Name, round+1)
			}
			p.Ratio /= p.Theirs
		}
		pairs = append(pairs, p)
	}
	return pairs, nil
}

// found returns the entrant of a score, which ran every round, and nil for no
// score.
func found(entrants []*entrant, s Score) (*entrant, error) {
	at := slices.IndexFunc(entrants, func(e *entrant) bool { return e.Name == s.Contestant })
	if at < 0 {
		return nil, nil
	}
	if e := entrants[at]; e.err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name, e.err)
	}
	return entrants[at], nil
}
