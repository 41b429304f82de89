package pebblefiles

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A long sync is recorded while it runs, with its operation and file.
func TestASlowSyncIsNoted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log HealthLog
		storage, watch := log.Watch(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSync {
				time.Sleep(time.Minute)
			}
			return nil
		})))
		file, err := storage.Create("000007.log", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write([]byte("x")); err != nil || !log.Health().Well() {
			t.Errorf("a write = %v, %+v; want it well", err, log.Health())
		}
		synced := make(chan error, 1)
		go func() { synced <- file.Sync() }()
		time.Sleep(30 * time.Second)
		if h := log.Health(); h.Slow == 0 || !strings.Contains(h.LastSlow, "000007.log") || h.SlowAt.IsZero() || h.Well() {
			t.Errorf("while a sync takes a minute the health is %+v, want it noted", h)
		}
		if err := errors.Join(<-synced, file.Close(), watch.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A failed compaction is recorded, although no caller waits for it.
func TestAFailedCompactionIsNoted(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	storage := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			return errorfs.ErrInjected
		}
		return nil
	}))
	var log HealthLog
	o := &pebble.Options{FS: storage, FormatMajorVersion: FormatVersion, EventListener: &pebble.EventListener{}, Logger: quiet{}}
	log.Listen(o.EventListener)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	noted := o.EventListener.BackgroundError
	o.EventListener.BackgroundError = func(err error) {
		noted(err)
		broken.Store(false)
		cancel() // Pebble would try again
	}
	db, err := pebble.Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := errors.Join(db.Set([]byte("a"), []byte("b"), pebble.Sync), db.Set([]byte("c"), []byte("d"), pebble.Sync), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	broken.Store(true)
	_ = db.Compact(ctx, []byte("a"), []byte("z"), false) // which ends with the first failure, or succeeds behind it
	broken.Store(false)
	if h := log.Health(); h.Failures == 0 || h.LastFailure == "" || h.FailedAt.IsZero() || h.Well() {
		t.Errorf("after a compaction that failed the health is %+v, want it noted", h)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// A quiet logger is for a database that fails on purpose.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) {}
