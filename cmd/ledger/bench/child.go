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
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// tasks are the tasks that Child runs, by name, each in a process of its own. The task
// load needs a process that the parent can kill. Each other task measures the memory of
// its process.
var tasks = map[string]func(ctx context.Context, g *Ground) (Sample, error){
	"load":           load,
	"memory-append":  remembered(Appending(64, OpenLedger), 3),
	"memory-follow":  remembered(following(1000), 1),
	"memory-rebuild": rememberedRebuild,
	"memory-output":  rememberedOutput,
	"memory-caches":  caches,
}

// command returns an exec.Cmd that runs a task on the folder dir in another process, at
// the scale of this run. The caller starts the process and waits for it.
func (g *Ground) command(ctx context.Context, task, dir string) *exec.Cmd {
	args := append(append([]string{}, g.bench.child...), task, dir, strconv.FormatFloat(g.bench.scale, 'g', -1, 64))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Args[0] = os.Args[0] // the program may dispatch on the name by which it was started
	cmd.Stderr = os.Stderr
	return cmd
}

// Child runs one task in this process and writes its sample to out as JSON. args are
// the arguments that Run appended to Config.Child: the task, its folder and the
// scale.
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

// apart returns the Open function of a contestant that runs a task in another process in
// each round. prepare returns the folder for the task. The contestant removes that
// folder after the round.
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

// emptyFolder prepares a new, empty folder for a task.
func emptyFolder(_ context.Context, g *Ground) (string, error) { return os.MkdirTemp(g.Dir, "task-") }

// withHistory prepares a folder with a store that holds a copy of the history.
func withHistory(ctx context.Context, g *Ground) (string, error) { return g.History(ctx) }

// peak returns the peak memory of this process as a sample.
func peak() (Sample, error) {
	bytes, err := peakMemory()
	return Sample{Peak: bytes / (1 << 20)}, err
}

// remembered returns a task that runs a contestant for the given number of rounds and
// returns the peak memory of this process.
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

// rememberedRebuild is the task memory-rebuild: it fills an index with full text.
func rememberedRebuild(ctx context.Context, g *Ground) (Sample, error) {
	s, err := embedded.Open(ctx, g.Dir, embedded.Config{Owner: storedir.Owner{Command: "bench"}})
	if err != nil {
		return nil, err
	}
	_, err = fillIndex(ctx, s, filepath.Join(g.Dir, "index"), (*index.Index).RebuildWithText)
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	return peak()
}

// rememberedOutput is the task memory-output: it writes an output of 1 GiB, scaled.
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

// caches is the task memory-caches: it reads every record and returns the growth of
// the resident memory, in MiB, since the store was opened.
func caches(ctx context.Context, g *Ground) (Sample, error) {
	s, err := embedded.Open(ctx, g.Dir, embedded.Config{Owner: storedir.Owner{Command: "bench"}})
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

// settledMemory runs the garbage collector, returns free memory to the operating
// system and returns the resident memory of this process in bytes.
func settledMemory() (float64, error) {
	runtime.GC()
	debug.FreeOSMemory()
	return residentMemory()
}
