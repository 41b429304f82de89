package shared_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// workVariable makes this program a worker. Its value has the folder, the name of a
// stream and the length at which the worker ends.
const workVariable = "LEDGER_TEST_WORK"

func TestMain(m *testing.M) {
	if text := os.Getenv(workVariable); text != "" {
		if err := work(context.Background(), strings.Split(text, "\n")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// work appends records to a stream, one by one, and prints the number of each
// acknowledged record.
func work(ctx context.Context, args []string) (err error) {
	until, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	s, err := shared.Open(ctx, args[0], shared.Config{Command: "worker", Timeout: time.Minute})
	if err != nil {
		return err
	}
	defer func() {
		if closing := s.Close(ctx); err == nil {
			err = closing
		}
	}()
	stream, length := events.Stream(args[1]), events.Revision(0)
	for h, err := range s.Headers(ctx, events.Query{Stream: stream, Backward: true}) {
		if err != nil {
			return err
		}
		length = h.Revision
		break
	}
	mint := domain.NewMint(time.Now, randReader{rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))})
	for ; length < events.Revision(until); length++ {
		if err := s.Append(ctx, stream, length, record(mint, fmt.Sprint(length+1))); err != nil {
			return fmt.Errorf("append %d: %w", length+1, err)
		}
		fmt.Println(length + 1)
	}
	return nil
}

type randReader struct{ *rand.Rand }

func (s randReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.Uint32())
	}
	return len(p), nil
}

// A worker is a process that runs work.
type worker struct {
	cmd    *exec.Cmd
	stream string
	acked  int // the last number that it said
	said   sync.WaitGroup
	errors strings.Builder
	mu     sync.Mutex
	more   *sync.Cond // it said a number, or ended
	ended  bool
}

// count returns the last number that the process printed.
func (w *worker) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked
}

// await waits until the process has printed a number, and returns false if it ended
// before.
func (w *worker) await(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.acked < n && !w.ended {
		w.more.Wait()
	}
	return w.acked >= n
}

func startWorker(t *testing.T, dir, stream string, until int) *worker {
	t.Helper()
	w := &worker{stream: stream, cmd: exec.CommandContext(t.Context(), os.Args[0])}
	w.more = sync.NewCond(&w.mu)
	w.cmd.Env = append(os.Environ(), workVariable+"="+strings.Join([]string{dir, stream, fmt.Sprint(until)}, "\n"))
	w.cmd.Stderr = &w.errors
	out, err := w.cmd.StdoutPipe()
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	w.said.Go(func() { w.listen(out) })
	return w
}

func (w *worker) listen(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if n, err := strconv.Atoi(lines.Text()); err == nil {
			w.mu.Lock()
			w.acked = n
			w.mu.Unlock()
			w.more.Broadcast()
		}
	}
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.more.Broadcast()
}

// end waits for the end of the process and returns its error.
func (w *worker) end() error {
	w.said.Wait()
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", w.stream, err, w.errors.String())
	}
	return nil
}

// holderOf returns the number of the process that has a folder open, or 0.
func holderOf(dir string) int {
	var owner storedir.Owner
	text, err := os.ReadFile(filepath.Join(dir, "owner"))
	if err != nil || json.Unmarshal(text, &owner) != nil {
		return 0
	}
	return owner.PID
}

func repeats(short, long int) int {
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		return long
	}
	return short
}

// While the current holder is killed again and again, every acknowledged record is in
// the log, once and in order, and the other processes run to their ends. Each process
// appends to a stream of its own.
func TestKilledHoldersLoseNothing(t *testing.T) {
	t.Parallel()
	const workers = 3
	kills, until := repeats(3, 60), repeats(200, 20_000)
	dir := filepath.Join(t.TempDir(), "store")
	acked := map[string]int{}
	var running [workers]*worker
	for i := range running {
		running[i] = startWorker(t, dir, fmt.Sprint("thing-", i), until)
	}
	met := 0
	for met < kills {
		first := running[rand.IntN(workers)]
		if !first.await(first.count() + 1 + rand.IntN(until/10)) {
			break // it came to its end
		}
		pid := holderOf(dir)
		for i, w := range running {
			if w.cmd.Process.Pid != pid {
				continue
			}
			_ = w.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
			_ = w.end()                               // so may it have
			met++
			acked[w.stream] = max(acked[w.stream], w.acked)
			running[i] = startWorker(t, dir, w.stream, until)
		}
	}
	for _, w := range running {
		if err := w.end(); err != nil {
			t.Error(err)
		}
		acked[w.stream] = max(acked[w.stream], w.acked)
	}
	t.Logf("%d holders were killed", met)
	checkStreams(t, dir, acked, until)
}

// checkStreams fails the test unless the streams of workers that ran to their ends
// have every acknowledged record once and in order.
func checkStreams(t *testing.T, dir string, acked map[string]int, until int) {
	t.Helper()
	log, err := embedded.OpenReader(t.Context(), dir, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for stream, last := range acked {
		n := 0
		for e, err := range log.Read(t.Context(), events.Stream(stream), 0) {
			if n++; err != nil || string(e.Data) != fmt.Sprintf("%q", fmt.Sprint(n)) {
				t.Fatalf("record %d of %s is %s, %v", n, stream, e.Data, err)
			}
		}
		if n != until || last > n {
			t.Errorf("%s has %d records, of which %d were acknowledged; want %d", stream, n, last, until)
		}
	}
}

// A holder that a signal has stopped is reported to the waiting processes. If it
// continues, all run to their ends; if it is killed, another process becomes the
// holder.
func TestStoppedHoldersAreWaitedFor(t *testing.T) {
	t.Parallel()
	for _, end := range []syscall.Signal{syscall.SIGCONT, syscall.SIGKILL} {
		t.Run(end.String(), func(t *testing.T) {
			t.Parallel()
			until := repeats(120, 400)
			dir := filepath.Join(t.TempDir(), "store")
			holder := startWorker(t, dir, "thing-0", 1_000_000)
			if !holder.await(5) {
				t.Fatal(holder.end())
			}
			client := startWorker(t, dir, "thing-1", until)
			client.await(5)
			if pid := holderOf(dir); pid != holder.cmd.Process.Pid {
				t.Fatalf("process %d holds the folder, want the first, %d", pid, holder.cmd.Process.Pid)
			}
			if err := holder.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			notified := make(chan shared.LockWait, 1)
			late := make(chan error, 1)
			go func() {
				s, err := shared.Open(t.Context(), dir, shared.Config{Command: "late", Timeout: time.Minute, Waiting: func(w shared.LockWait) {
					select {
					case notified <- w:
					default:
					}
				}})
				if err == nil {
					err = s.Close(context.WithoutCancel(t.Context()))
				}
				late <- err
			}()
			select {
			case w := <-notified:
				if w.Owner.PID != holder.cmd.Process.Pid || !w.Stopped {
					t.Errorf("waiting for %v, want the stopped process %d", w, holder.cmd.Process.Pid)
				}
			case err := <-late:
				t.Fatalf("Open = %v, and reported no wait for the stopped process %d", err, holder.cmd.Process.Pid)
			}
			if err := holder.cmd.Process.Signal(end); err != nil {
				t.Fatal(err)
			}
			if err := <-late; err != nil {
				t.Errorf("Open = %v", err)
			}
			if err := client.end(); err != nil {
				t.Error(err)
			}
			acked := map[string]int{"thing-1": client.acked}
			_ = holder.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
			_ = holder.end()
			checkStreams(t, dir, acked, until)
		})
	}
}

// Processes that start at once in a folder that does not exist create one store, also
// if some are killed meanwhile.
func TestManyBeginAtOnceWhileTheyAreKilled(t *testing.T) {
	t.Parallel()
	const workers, until = 5, 20
	for range repeats(2, 40) {
		dir := filepath.Join(t.TempDir(), "deep", "store")
		acked := map[string]int{}
		var running []*worker
		for i := range workers {
			running = append(running, startWorker(t, dir, fmt.Sprint("thing-", i), until))
		}
		for i := range 2 { // at some moment of the making
			w := running[i]
			time.AfterFunc(time.Duration(rand.IntN(60))*time.Millisecond, func() {
				_ = w.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
			})
			_ = w.end()
			acked[w.stream] = w.acked
			running[i] = startWorker(t, dir, w.stream, until)
		}
		for _, w := range running {
			if err := w.end(); err != nil {
				t.Error(err)
			}
			acked[w.stream] = max(acked[w.stream], w.acked)
		}
		checkStreams(t, dir, acked, until)
	}
}
