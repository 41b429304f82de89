package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/storecopy"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
)

// copiedRecords is the number of records in the stores that these tests copy.
var copiedRecords = repeats(3_000, 10_000)

// newLargeStore returns the folder of a store with copiedRecords records in up to 50 streams.
// Their contents are the same in each run; their IDs are not.
func newLargeStore(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "filled")
	store, err := embedded.Open(t.Context(), dir, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	mint, random, lengths := newMint(time.Now), rand.New(rand.NewPCG(1, 2)), map[events.Stream]events.Revision{}
	for n := 0; n < copiedRecords; {
		stream := events.Stream(fmt.Sprintf("many-%d", random.IntN(50)))
		records := make([]events.Record, min(1+random.IntN(400), copiedRecords-n))
		for i := range records {
			records[i] = events.Record{
				ID: mint.Event(), Kind: fmt.Sprintf("Kind%d", random.IntN(5)), Version: 1 + random.IntN(3), Time: time.UnixMicro(int64(n + i)).UTC(),
				Data: fmt.Appendf(nil, `{"n":%d,"x":"%s"}`, n+i, strings.Repeat("x", random.IntN(300))), Metadata: fmt.Appendf(nil, `{"by":%d}`, i),
			}
		}
		if err := store.Append(t.Context(), stream, lengths[stream], records...); err != nil {
			t.Fatal(err)
		}
		lengths[stream] += events.Revision(len(records))
		n += len(records)
	}
	return dir
}

// copyStore runs ledger store copy to its end and returns its JSON row. variables are
// added to the environment of the process.
func copyStore(t *testing.T, variables []string, from, to string) storecopy.Totals {
	t.Helper()
	got := ledgerWithEnv(t, variables, "store", "copy", from, to, "-o", "json")
	if got.exit != 0 || len(got.err) > 0 {
		t.Fatalf("copy %s %s = %d %s", from, to, got.exit, got.err)
	}
	return decodeJSON[storecopy.Totals](t, got.out)
}

// digestOf returns the digest of all records of an open store.
func digestOf(t *testing.T, store events.Store) string {
	t.Helper()
	d := events.NewDigest()
	for e, err := range store.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		d.Add(e)
	}
	return d.String()
}

// A copy killed at any moment is resumed by the next one, from a folder to a server,
// between namespaces of a server, and from a server to a folder. The source and the
// target then hold the same records.
func TestACopyThatIsKilledGoesOn(t *testing.T) {
	t.Parallel()
	from := newLargeStore(t)
	source, err := embedded.Open(t.Context(), from, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	want := digestOf(t, source)
	if err := source.Close(); err != nil {
		t.Fatal(err)
	}
	server, _ := serveStore(t, server.Config{})
	node := []string{"LEDGER_NODE=" + t.TempDir()}
	back := filepath.Join(t.TempDir(), "back")
	for _, leg := range []struct{ from, to string }{
		{from, server + "&namespace=one"}, {server + "&namespace=one", server + "&namespace=two"}, {server + "&namespace=two", back},
	} {
		began, kills := time.Now(), 0
		for range repeats(2, 6) {
			if !killCopy(t, node, leg.from, leg.to, time.Duration(rand.IntN(250))*time.Millisecond) {
				break
			}
			kills++
		}
		row := copyStore(t, node, leg.from, leg.to)
		if row.Records != uint64(copiedRecords) || row.Digest != want {
			t.Fatalf("copy from %s to %s after %d kills: %+v, want %d records with the digest %s", leg.from, leg.to, kills, row, copiedRecords, want)
		}
		t.Logf("to %s: %d kills in %s, %d records were left to copy", row.To, kills, time.Since(began), row.Copied)
		if again := copyStore(t, node, leg.from, leg.to); again.Copied != 0 || again.Digest != want {
			t.Errorf("copy again = %+v, want nothing to do", again)
		}
	}
	if got := readEntries(t, back); len(got) != copiedRecords || !slices.EqualFunc(got, readEntries(t, from), sameRecord) {
		t.Errorf("what came back are %d records, and not those that went", len(got))
	}
}

// killCopy starts a copy and kills it after a delay. It reports whether the kill hit
// a running process.
func killCopy(t *testing.T, variables []string, from, to string, after time.Duration) bool {
	t.Helper()
	return killLedger(t, variables, after, "store", "copy", from, to)
}

// killLedger starts the command with arguments and kills it after a delay. It reports
// whether the kill hit a running process.
func killLedger(t *testing.T, variables []string, after time.Duration, args ...string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	cmd := exec.CommandContext(ctx, commandPath(), args...)
	cmd.Env = append(cmd.Environ(), append([]string{"HOME=" + t.TempDir()}, variables...)...)
	err := cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return false
	case ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL, errors.Is(err, context.DeadlineExceeded):
		return true
	}
	t.Fatalf("ledger %v = %v, want its kill", args, err)
	return false
}

// A copy of a store that grows meanwhile holds the source as of one position; the next
// copy adds the records appended since.
func TestACopyOfWhatGrowsIsOfOneMoment(t *testing.T) {
	t.Parallel()
	from, source := serveStore(t, server.Config{})
	to := filepath.Join(t.TempDir(), "to")
	mint := newMint(time.Now)
	grow := func(after events.Revision) {
		r := events.Record{ID: mint.Event(), Kind: "K", Version: 1, Time: time.Now().UTC().Truncate(time.Microsecond), Data: []byte("{}")}
		if err := source.Append(t.Context(), "grows-1", after, r); err != nil {
			t.Error(err)
		}
	}
	length := events.Revision(0)
	for ; length < 500; length++ {
		grow(length)
	}
	stop := make(chan struct{})
	var growing sync.WaitGroup
	growing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				grow(length)
				length++
			}
		}
	})
	node := []string{"LEDGER_NODE=" + t.TempDir()}
	first := copyStore(t, node, from, to)
	close(stop)
	growing.Wait()
	if first.Records < 500 || first.Records != first.Copied || first.Records >= uint64(length) {
		t.Errorf("copy of a store that grows to %d records = %+v, want those of one moment", length, first)
	}
	second := copyStore(t, node, from, to)
	if second.Records != uint64(length) || second.Copied != uint64(length)-first.Records || second.Digest != digestOf(t, source) {
		t.Errorf("the next copy = %+v, want the other %d", second, uint64(length)-first.Records)
	}
}

// A copy that meets a record over the append limit of the target reports the record,
// its size, the limit and the setting that raises it. With that setting the next copy
// completes.
func TestACopyOfALargeRecordSaysWhatToDo(t *testing.T) {
	t.Parallel()
	from := filepath.Join(t.TempDir(), "from")
	store, err := embedded.Open(t.Context(), from, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	mint := newMint(time.Now)
	for n, size := range []int{10, 3 << 20, 10} {
		r := events.Record{ID: mint.Event(), Kind: "Large", Version: 1, Time: time.Now().UTC().Truncate(time.Microsecond), Data: []byte(`"` + strings.Repeat("x", size) + `"`)}
		if err := store.Append(t.Context(), "large-1", events.Revision(n), r); err != nil {
			t.Fatal(err)
		}
	}
	want := digestOf(t, store)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	to, target := serveStore(t, server.Config{})
	node := []string{"LEDGER_NODE=" + t.TempDir()}
	got := ledgerWithEnv(t, node, "store", "copy", from, to)
	for _, says := range []string{"position 3 of ", "record 1 of 1, Large evt_", "has 31458", "the limit is 1048576", "hint: set maxAppend=16MiB in the connection string"} {
		if got.exit != fault.ExitFailed || !strings.Contains(string(got.err), says) {
			t.Errorf("copy = %d %s, want it to say %q", got.exit, got.err, says)
		}
	}
	if row := copyStore(t, node, from, to+"&maxAppend=16MiB"); row.Records != 3 || row.Copied != 2 || row.Digest != want || digestOf(t, target) != want {
		t.Errorf("copy with maxAppend = %+v, want the 2 that were left", row)
	}
}

// A copy refused by its target reports the refusal and leaves a valid prefix of the
// source, which a later copy extends.
func TestACopyThatFailsGoesOn(t *testing.T) {
	t.Parallel()
	from := newSeededStore(t)
	to, target := serveStore(t, server.Config{MaxAppend: 600})
	node := []string{"LEDGER_NODE=" + t.TempDir(), "LEDGER_PATIENCE=200ms"}
	got := ledgerWithEnv(t, node, "store", "copy", from, to)
	if got.exit != fault.ExitFailed || !strings.Contains(string(got.err), "copy to "+to) || !strings.Contains(string(got.err), "server refused the request") {
		t.Errorf("copy to one that takes no more = %d %s, want its refusal", got.exit, got.err)
	}
	half := filepath.Join(t.TempDir(), "half")
	if row := copyStore(t, node, to, half); row.Records != uint64(len(readEntries(t, half))) {
		t.Errorf("what was copied before = %+v", row)
	}
	if row := copyStore(t, node, from, half); row.Digest == digestOf(t, target) || row.Records != uint64(len(readEntries(t, from))) {
		t.Errorf("copy of the rest = %+v", row)
	}
}

// A copy counts the outputs that no reachable node has and copies all records
// regardless. A later copy from a store that has the outputs adds them.
func TestACopyCountsOutputsThatAreMissing(t *testing.T) {
	t.Parallel()
	from := newSeededStore(t)
	bare := newStoreWith(t, readEntries(t, from)) // the same log without its outputs
	to := filepath.Join(t.TempDir(), "to")
	if row := copyStore(t, nil, bare, to); row.Missing != 1 || row.Outputs != 0 || row.Records != uint64(len(readEntries(t, to))) {
		t.Errorf("copy = %+v, want one missing output", row)
	}
	if got := ledgerWithEnv(t, nil, "store", "copy", bare, to); got.exit != 0 || !strings.Contains(string(got.out), "1 output, which no node that can be asked has, not copied: ledger verify lists them") {
		t.Errorf("copy = %d %s, want it to tell of the output", got.exit, got.out)
	}
	if row := copyStore(t, nil, from, to); row.Missing != 0 || row.Outputs != 1 {
		t.Errorf("copy of one that has it = %+v, want it copied", row)
	}
}
