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

// textOf returns size bytes of lines with words and numbers, similar to the output
// of tools.
func textOf(size int64) []byte {
	rng := rand.New(rand.NewPCG(5, 6))
	b := make([]byte, 0, size+32)
	for int64(len(b)) < size {
		b = fmt.Appendf(b, "%6d %s %x %s\n", rng.IntN(1e6), words[rng.IntN(len(words))], rng.Uint32(), words[rng.IntN(len(words))])
	}
	return b[:size]
}

// times returns the number of outputs of the given size that one round writes: as many
// as fit into 64 MiB, but at least 1 and at most 64.
func times(size int64) int { return int(max(1, min(64, (64<<20)/size))) }

// flow returns a sample with the reading Flow, the throughput of size bytes in the time
// elapsed.
func flow(size int64, elapsed time.Duration) Sample {
	return Sample{Flow: float64(size) / 1e6 / elapsed.Seconds()}
}

// keeping returns the Open function of a contestant that writes outputs of a size to
// the output store.
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

// keep stores the bytes of from as an output of a new settlement.
func keep(ctx context.Context, s *outputs.Store, mint *domain.Mint, from io.Reader) error {
	_, err := s.Keep(ctx, domain.NewRef(mint.Event(), domain.TextChannel), "text/plain", from)
	return err
}

// filing returns the Open function of the contestant that the output store is compared
// with. It writes a file for each output, with an fsync of the file and of its folder.
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

// writeFile writes a file and syncs it and its folder.
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

// besideOutput returns the Open function of a contestant with eight writers, which
// append while an output of size bytes, multiplied by the scale of the run, is written.
// If size is 0, no output is written, and the writers append for a second.
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
				return d.run(ctx, timed(g.span(time.Second)))
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

// A flood is a reader that repeats a text until it has returned a number of bytes.
type flood struct {
	text []byte
	at   int   // offset in text
	left int64 // bytes left to return
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
