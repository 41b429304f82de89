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

// A Trial is a task that its contestants do in turn, in rounds.
type Trial struct {
	Name        string
	Contestants []Contestant
}

// A Contestant is one implementation of the task of a trial.
type Contestant struct {
	Name string
	// Open sets the contestant up once for all rounds. It keeps its files in g.Dir,
	// which Run removes.
	Open func(ctx context.Context, g *Ground) (Rig, error)
}

// A Rig is a contestant that is set up. Its methods are not called concurrently.
type Rig interface {
	Run(ctx context.Context) (Sample, error) // does the task once
	Close() error
}

// NewRig returns a Rig that calls run and close. A nil close does nothing.
func NewRig(run func(ctx context.Context) (Sample, error), close func() error) Rig {
	return rig{run, close}
}

// A rig implements Rig with the two functions that were passed to NewRig.
type rig struct {
	run   func(ctx context.Context) (Sample, error)
	close func() error
}

// Run calls run.
func (r rig) Run(ctx context.Context) (Sample, error) { return r.run(ctx) }

// Close calls the function close, or returns nil if close is nil.
func (r rig) Close() error {
	if r.close == nil {
		return nil
	}
	return r.close()
}

// A Ground is the environment of a contestant: its folder and the scale of the run.
type Ground struct {
	Dir   string // the contestant's own folder, empty when Open is called
	bench *bench
}

// Count multiplies n by the scale of the run. The result is at least 64, unless n is
// smaller, and at most n.
func (g *Ground) Count(n int) int { return min(n, max(int(float64(n)*g.bench.scale), least)) }

// least is the smallest result of Count for an n that is greater than least.
const least = 64

// span multiplies d by the scale of the run. The result is at least 5 ms, unless d is
// shorter, and at most d.
func (g *Ground) span(d time.Duration) time.Duration {
	return min(d, max(time.Duration(float64(d)*g.bench.scale), 5*time.Millisecond))
}

// Bytes multiplies n by the scale of the run. The result is at least 4 KiB, unless n is
// smaller, and at most n.
func (g *Ground) Bytes(n int64) int64 { return min(n, max(int64(float64(n)*g.bench.scale), 4<<10)) }

// An entrant is the state of one contestant in a running trial.
type entrant struct {
	Contestant
	rig     Rig      // nil if Open failed
	samples []Sample // one for each round that succeeded
	err     error    // the first error; the entrant runs no further round
}

// compete opens the contestants of a trial, runs the rounds, closes the contestants and
// removes their folders. It starts no further round after the time share has passed. The
// order of the contestants rotates by one each round.
//
// compete stores the error of a contestant in its entrant. compete itself returns an
// error only if it cannot remove the folders, or the cause of ctx if ctx ended.
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

// run runs one round of the contestant, unless it failed before. It collects garbage
// first, so that no contestant pays for the garbage of the previous one.
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

// scores returns one pair for each round of the row r: its two readings and their ratio.
// If one of the two compared contestants failed, scores returns the error of that
// contestant. A reading of 0 in Theirs is an error too.
func scores(entrants []*entrant, r Row) (pairs []pair, err error) {
	ours, err := found(entrants, r.Ours)
	if err != nil {
		return nil, err
	}
	theirs, err := found(entrants, r.Theirs)
	if err != nil {
		return nil, err
	}
	for round, sample := range ours.samples {
		p := pair{Ours: sample[r.Ours.Reading]}
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

// found returns the entrant whose name is s.Contestant, or nil if there is none, as for
// the zero Score. If that entrant failed, found returns its error.
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
