package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
)

// The harness syncs before it cuts the power, because Interval keeps only synced
// records.
func TestLawsUnderInterval(t *testing.T) {
	t.Parallel()
	eventstest.Test(t, func(*testing.T) eventstest.Harness {
		storage := vfs.NewCrashableMem()
		return eventstest.Harness{
			Open: func(ctx context.Context) (events.Store, error) {
				return Open(ctx, "store", Config{FS: storage, Durability: Interval(time.Hour)})
			},
			Close: func(s events.Store) error { return s.(io.Closer).Close() },
			CutPower: func(s events.Store) error {
				if err := s.(*Store).Sync(t.Context()); err != nil {
					return err
				}
				dead := storage
				storage = dead.CrashClone(vfs.CrashCloneCfg{})
				return s.(io.Closer).Close()
			},
		}
	})
}

func TestUnderIntervalAPowerCutTakesTheEndSinceTheLastSync(t *testing.T) {
	t.Parallel()
	storage := vfs.NewCrashableMem()
	s, err := Open(t.Context(), "store", Config{FS: storage, Durability: Interval(time.Hour)})
	must(t, err)
	p := newRecordWriter(1)
	must(t, s.Append(t.Context(), "s-1", 0, p.records(3, 10)...))
	if s.Durable() != (events.Position{}) || s.Head() != events.NewPosition(3, 3) {
		t.Errorf("before a sync Durable() = %s and Head() = %s, want 0 and 3", s.Durable(), s.Head())
	}
	must(t, s.Sync(t.Context()))
	if s.Durable() != events.NewPosition(3, 3) {
		t.Errorf("after a sync Durable() = %s, want 3", s.Durable())
	}
	must(t, s.Append(t.Context(), "s-2", 0, p.records(2, 10)...))
	if n := len(all(t, s)); n != 5 {
		t.Errorf("readers see %d records before a sync, want 5", n)
	}
	after := open(t, storage.CrashClone(vfs.CrashCloneCfg{}))
	if n := len(all(t, after)); n != 3 {
		t.Errorf("%d records survive, want the 3 that were synced", n)
	}
	must(t, s.Close())
	if n := len(all(t, open(t, storage.CrashClone(vfs.CrashCloneCfg{})))); n != 5 {
		t.Errorf("%d records survive a power cut after Close, want 5", n)
	}
}

// A sync begins within the interval after an append, on the clock of a synctest
// bubble.
func TestUnderIntervalASyncBeginsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), "store", Config{FS: vfs.NewMem(), Durability: Interval(time.Second)})
		must(t, err)
		p := newRecordWriter(1)
		for round := range events.Revision(3) {
			time.Sleep(10 * time.Second) // in which there is nothing to sync
			must(t, s.Append(t.Context(), "s-1", round, p.records(1, 10)...))
			time.Sleep(999 * time.Millisecond)
			synctest.Wait()
			if at, _ := s.Durable().Parts(); at != uint64(round) {
				t.Errorf("just before the interval is over %d records are durable, want %d", at, round)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if at, _ := s.Durable().Parts(); at != uint64(round)+1 {
				t.Errorf("just after the interval %d records are durable, want %d", at, round+1)
			}
		}
		must(t, s.Close())
	})
}

func TestUnderIntervalAFailedSyncStopsTheStore(t *testing.T) {
	t.Parallel()
	disk := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData {
			return syscall.EIO
		}
		return nil
	})}
	storage := vfs.NewCrashableMem()
	s, err := Open(t.Context(), "store", Config{FS: errorfs.Wrap(storage, disk), Durability: Interval(time.Hour)})
	must(t, err)
	p := newRecordWriter(1)
	must(t, s.Append(t.Context(), "s-1", 0, p.records(1, 10)...))
	disk.On()
	for range 2 {
		if err := s.Sync(t.Context()); !errors.Is(err, syscall.EIO) || !errors.Is(err, errStopped) {
			t.Errorf("Sync on a disk that fails = %v, want its error", err)
		}
		disk.Off()
	}
	if err := s.Append(t.Context(), "s-1", 1, p.records(1, 10)...); !errors.Is(err, errStopped) {
		t.Errorf("Append after a sync that failed = %v, want the failure", err)
	}
	if s.Durable() != (events.Position{}) {
		t.Errorf("Durable() = %s after a sync that failed, want 0", s.Durable())
	}
	must(t, s.Close())
}

// A sync may not cover a record that is appended while it runs, so Durable does not
// include that record.
func TestDurableDoesNotCountWhatIsAppendedDuringTheSync(t *testing.T) {
	t.Parallel()
	var during atomic.Pointer[func()]
	storage := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData || !strings.HasSuffix(op.Path, ".log") {
			return nil
		}
		if do := during.Swap(nil); do != nil {
			(*do)()
		}
		return nil
	}))
	s, err := Open(t.Context(), "store", Config{FS: storage, Durability: Interval(time.Hour)})
	must(t, err)
	p := newRecordWriter(1)
	must(t, s.Append(t.Context(), "s-1", 0, p.records(1, 10)...))
	did := false
	appending := func() {
		did = true
		if err := s.Append(t.Context(), "s-1", 1, p.records(2, 10)...); err != nil {
			t.Errorf("Append during a sync = %v", err)
		}
	}
	during.Store(&appending)
	must(t, s.Sync(t.Context()))
	if !did || s.Head() != events.NewPosition(3, 3) || s.Durable() != events.NewPosition(1, 1) {
		t.Errorf("after a sync with an append during it (%t), Head() = %s and Durable() = %s, want 3 and 1", did, s.Head(), s.Durable())
	}
	must(t, s.Close())
}

func TestSyncMakesCheckpointsDurable(t *testing.T) {
	t.Parallel()
	storage := vfs.NewCrashableMem()
	s := open(t, storage)
	must(t, s.SaveCheckpoint(t.Context(), "calls", []byte("one")))
	must(t, s.Sync(t.Context()))
	after := open(t, storage.CrashClone(vfs.CrashCloneCfg{}))
	if data, err := after.LoadCheckpoint(t.Context(), "calls"); string(data) != "one" || err != nil {
		t.Errorf("LoadCheckpoint after Sync and a power cut = %q, %v, want what was saved", data, err)
	}
	must(t, s.Close())
	if err := s.Sync(t.Context()); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Sync of a closed store = %v, want ErrClosed", err)
	}
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if err := s.Sync(ctx); err != stop {
		t.Errorf("Sync in a context that ended = %v, want its cause", err)
	}
}

func TestDurabilitiesAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for _, d := range []Durability{Sync(), Interval(time.Millisecond), Interval(90 * time.Second)} {
		if got, err := ParseDurability(d.String()); got != d || err != nil {
			t.Errorf("ParseDurability(%q) = %v, %v", d, got, err)
		}
	}
	for _, d := range []time.Duration{0, -time.Second} {
		if Interval(d) != Sync() {
			t.Errorf("Interval(%v) = %v, want Sync", d, Interval(d))
		}
	}
	for _, text := range []string{"", "Sync", "interval", "interval()", "interval(1)", "interval(0s)", "interval(-1s)", "(1s)", "interval(1s", "1s", "sync "} {
		if d, err := ParseDurability(text); err == nil {
			t.Errorf("ParseDurability(%q) = %v, want an error", text, d)
		}
	}
	if text := fmt.Sprint(Interval(50 * time.Millisecond)); text != "interval(50ms)" {
		t.Errorf("Interval(50ms).String() = %q", text)
	}
}
