package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// tasks are what is done in a process of its own: it is killed, or its memory
// is measured.
var tasks = map[string]func(ctx context.Context, g *Ground) (Sample, error){
	"load":           load,
	"memory-append":  remembered(Appending(64, OpenLedger), 3),
	"memory-follow":  remembered(following(1000), 1),
	"memory-rebuild": rememberedRebuild,
	"memory-output":  rememberedOutput,
	"memory-caches":  caches,
}

// command returns the command of another process that does a task in a folder.
func (g *Ground) command(ctx context.Context, task, dir string) *exec.Cmd {
	args := append(append([]string{}, g.bench.child...), task, dir, strconv.FormatFloat(g.bench.scale, 'g', -1, 64))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Args[0] = os.Args[0] // a program may go by its name
	cmd.Stderr = os.Stderr
	return cmd
}

// Child does a task in this process: what Run had a process started for, with
// the arguments that it added to Config.Child. It writes what it measured to
// out.
func Child(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("measure in a process of its own: a task, a folder and a scale are needed")
	}
	scale, err := strconv.ParseFloat(args[2], 64)
	if err != nil {
		return fmt.Errorf("measure in a process of its own: scale %q: %w", args[2], err)
	}
	task, ok := tasks[args[0]]
	if !ok {
		return fmt.Errorf("measure in a process of its own: there is no task %q", args[0])
	}
	sample, err := task(ctx, &Ground{Dir: args[1], bench: &bench{scale: scale, out: out, progress: func(string) {}}})
	if err != nil {
		return fmt.Errorf("measure %s: %w", args[0], err)
	}
	return json.NewEncoder(out).Encode(sample)
}

// apart opens a contestant that does a task in a process of its own, in a
// folder that prepare names.
func apart(task string, prepare func(ctx context.Context, g *Ground) (dir string, err error)) func(context.Context, *Ground) (Rig, error) {
	return func(ctx context.Context, g *Ground) (Rig, error) {
		return NewRig(func(ctx context.Context) (sample Sample, err error) {
			dir, err := prepare(ctx, g)
			if err != nil {
				return nil, err
			}
			text, err := g.command(ctx, task, dir).Output()
			if err == nil {
				err = json.Unmarshal(text, &sample)
			}
			return sample, errors.Join(err, os.RemoveAll(dir))
		}, nil), nil
	}
}

// emptyFolder is for tasks that begin with nothing.
func emptyFolder(_ context.Context, g *Ground) (string, error) { return os.MkdirTemp(g.Dir, "task-") }

func withHistory(ctx context.Context, g *Ground) (string, error) { return g.History(ctx) }

func peak() (Sample, error) {
	bytes, err := peakMemory()
	return Sample{Peak: bytes / (1 << 20)}, err
}

// remembered does what a contestant does for so many rounds, and returns the
// most memory that this process had.
func remembered(open func(context.Context, *Ground) (Rig, error), rounds int) func(context.Context, *Ground) (Sample, error) {
	return func(ctx context.Context, g *Ground) (Sample, error) {
		r, err := open(ctx, g)
		if err != nil {
			return nil, err
		}
		for range rounds {
			if _, err = r.Run(ctx); err != nil {
				break
			}
		}
		if err = errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		return peak()
	}
}

func rememberedRebuild(ctx context.Context, g *Ground) (Sample, error) {
	s, err := embedded.Open(ctx, g.Dir, embedded.Config{Owner: embedded.Owner{Command: "bench"}})
	if err != nil {
		return nil, err
	}
	_, err = foldCalls(ctx, s)
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	return peak()
}

func rememberedOutput(ctx context.Context, g *Ground) (Sample, error) {
	s, err := outputs.Open(filepath.Join(g.Dir, "outputs"), outputs.Config{})
	if err != nil {
		return nil, err
	}
	err = keep(ctx, s, newMint(), &flood{text: textOf(1 << 20), left: g.Bytes(1 << 30)})
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	return peak()
}

// caches returns how much memory a store holds on to after everything in it was
// read, beside what it held when it was opened.
func caches(ctx context.Context, g *Ground) (Sample, error) {
	s, err := embedded.Open(ctx, g.Dir, embedded.Config{Owner: embedded.Owner{Command: "bench"}})
	if err != nil {
		return nil, err
	}
	before, err := settledMemory()
	for _, read := range ScanAll(ctx, s) {
		err = errors.Join(err, read)
	}
	after, again := settledMemory()
	if err = errors.Join(err, again, s.Close()); err != nil {
		return nil, err
	}
	return Sample{Peak: max(after-before, 0) / (1 << 20)}, nil
}

// settledMemory returns the memory of this process without its garbage.
func settledMemory() (float64, error) {
	runtime.GC()
	debug.FreeOSMemory()
	return residentMemory()
}
