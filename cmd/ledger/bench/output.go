package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// textOf returns so many bytes of text as tools print it: words, numbers and
// line ends.
func textOf(size int64) []byte {
	rng := rand.New(rand.NewPCG(5, 6))
	b := make([]byte, 0, size+32)
	for int64(len(b)) < size {
		b = fmt.Appendf(b, "%6d %s %x %s\n", rng.IntN(1e6), words[rng.IntN(len(words))], rng.Uint32(), words[rng.IntN(len(words))])
	}
	return b[:size]
}

// times is how often an output of a size is written in one round.
func times(size int64) int { return int(max(1, min(64, (64<<20)/size))) }

// flow returns the sample of so many bytes in a time.
func flow(size int64, elapsed time.Duration) Sample {
	return Sample{Flow: float64(size) / 1e6 / elapsed.Seconds()}
}

// keeping opens a contestant that keeps outputs of a size.
func keeping(size int64) func(context.Context, *Ground) (Rig, error) {
	return func(_ context.Context, g *Ground) (Rig, error) {
		s, err := outputs.Open(filepath.Join(g.Dir, "outputs"), outputs.Config{})
		if err != nil {
			return nil, err
		}
		text, mint := textOf(g.Bytes(size)), newMint()
		return NewRig(func(ctx context.Context) (Sample, error) {
			n, begun := times(size), time.Now()
			for range n {
				if err := keep(ctx, s, mint, bytes.NewReader(text)); err != nil {
					return nil, err
				}
			}
			return flow(int64(n)*int64(len(text)), time.Since(begun)), nil
		}, s.Close), nil
	}
}

func keep(ctx context.Context, s *outputs.Store, mint *domain.Mint, from io.Reader) error {
	_, err := s.Keep(ctx, domain.NewRef(mint.Event(), domain.TextChannel), "text/plain", from)
	return err
}

// filing opens the floor of outputs: a file for each, synced, and its folder
// synced as well.
func filing(size int64) func(context.Context, *Ground) (Rig, error) {
	return func(_ context.Context, g *Ground) (Rig, error) {
		text, made := textOf(g.Bytes(size)), 0
		return NewRig(func(context.Context) (Sample, error) {
			n, begun := times(size), time.Now()
			for range n {
				made++
				if err := writeFile(g.Dir, fmt.Sprint(made), text); err != nil {
					return nil, err
				}
			}
			return flow(int64(n)*int64(len(text)), time.Since(begun)), nil
		}, nil), nil
	}
}

func writeFile(dir, name string, text []byte) error {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// besideOutput opens a contestant of writers that append while an output of
// 256 MiB is kept, or, if there is none, for as long as that takes about.
func besideOutput(size int64) func(context.Context, *Ground) (Rig, error) {
	const writers = 8
	return func(ctx context.Context, g *Ground) (Rig, error) {
		l, err := openLedger(ctx, g, writers)
		if err != nil {
			return nil, err
		}
		s, err := outputs.Open(filepath.Join(g.Dir, "outputs"), outputs.Config{})
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		d, text := newDriver(l, writers), textOf(g.Bytes(4<<20))
		run := func(ctx context.Context) (Sample, error) {
			if size == 0 {
				return d.run(ctx, timed(g.Span(time.Second)))
			}
			var over atomic.Bool
			var kept error
			var keeping sync.WaitGroup
			keeping.Go(func() {
				defer over.Store(true)
				kept = keep(ctx, s, l.mint, &flood{text: text, left: g.Bytes(size)})
			})
			sample, err := d.run(ctx, func() bool { return !over.Load() })
			keeping.Wait()
			return sample, errors.Join(err, kept)
		}
		return NewRig(run, func() error { return errors.Join(s.Close(), l.Close()) }), nil
	}
}

// A flood is a reader of so many bytes of a text, over and over.
type flood struct {
	text []byte
	at   int
	left int64
}

func (f *flood) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), f.left)], f.text[f.at:])
	f.at = (f.at + n) % len(f.text)
	f.left -= int64(n)
	return n, nil
}
