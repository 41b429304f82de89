package eventstoredb

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"unicode/utf16"

	"github.com/settlement-ledger/ledger/events/eventstoredb/mapping"
)

// A workerPool runs more tasks at once than it keeps idle workers, and its workers
// end with the store.
func TestWorkerPoolRunsTasksAtOnceAndEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 3 * maxIdleWorkers
		life, end := context.WithCancel(t.Context())
		var running, calls sync.WaitGroup
		c := newWorkerPool(life, &running)
		for range 2 {
			var all sync.WaitGroup // has come
			all.Add(many)
			for range many {
				calls.Add(1)
				running.Add(1)
				c.run(func() {
					defer calls.Done()
					defer running.Done()
					all.Done()
					all.Wait()
				})
			}
			calls.Wait()
			synctest.Wait()
			if got := c.idle.Load(); got != maxIdleWorkers {
				t.Errorf("%d goroutines wait for more to do, want %d", got, maxIdleWorkers)
			}
		}
		end()
		running.Wait()
	})
}

// RawEvent.Size counts two bytes for each UTF-16 unit of a type, as the server does.
func TestKindsAreCountedAsTheServerCounts(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", "Kind", "Größe", "日本", "😀a", "\xff\xfe", "a\xf0\x9f", "\u0000"} {
		if got, want := (mapping.RawEvent{Type: kind, Data: []byte("1"), Metadata: []byte("23")}).Size(), 3+2*len(utf16.Encode([]rune(kind))); got != want {
			t.Errorf("Size() with the type %q = %d, want %d", kind, got, want)
		}
	}
}
