package eventstoredb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// collect reads a loop to its end.
func collect(loop func(func(events.Entry, error) bool)) (entries []events.Entry, err error) {
	for e, failed := range loop {
		if failed != nil {
			err = failed
			continue
		}
		entries = append(entries, e)
	}
	return entries, err
}

// holds fails t unless a stream is exactly these records.
func holds(t *testing.T, s events.Store, stream events.Stream, want ...events.Record) {
	t.Helper()
	entries, err := collect(s.Read(t.Context(), stream, 0))
	if err != nil || len(entries) != len(want) {
		t.Fatalf("Read(%s, 0) yields %d entries and %v, want %d", stream, len(entries), err, len(want))
	}
	for i, e := range entries {
		if e.ID != want[i].ID || string(e.Data) != string(want[i].Data) || e.Revision != events.Revision(i+1) {
			t.Errorf("entry %d of %s is %s %s at revision %d, want %s %s", i+1, stream, e.ID, e.Data, e.Revision, want[i].ID, want[i].Data)
		}
	}
}

// meddled opens a store behind a meddler.
func meddled(t *testing.T, settings string) (*meddler, *eventstoredb.Store) {
	t.Helper()
	m := newMeddler(t, newDatabase(t).address)
	s, err := eventstoredb.Open(t.Context(), m.url()+settings, eventstoredb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return m, s
}

func TestAppendIsMadeOnceHoweverItsAnswerIsLost(t *testing.T) {
	t.Parallel()
	fates := map[string]fate{"silent": {silent: true}}
	for _, code := range []codes.Code{codes.Unavailable, codes.Aborted, codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.Canceled} {
		fates["lost "+code.String()] = fate{lost: statusOf(code)}
		fates["unheard "+code.String()] = fate{unheard: statusOf(code)}
	}
	for name, f := range fates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, s := meddled(t, "&defaultDeadline=300")
			mint := newMint()
			one, two := record(mint, "Kind", 1), record(mint, "Kind", 2)
			m.decide(onceOf(appendMethod, 2, f))
			if err := s.Append(t.Context(), "lost-1", 0, one, two); err != nil {
				t.Fatal(err)
			}
			if n := len(m.calls(appendMethod)); n != 3 {
				t.Errorf("the records were sent %d times, want 3", n)
			}
			holds(t, s, "lost-1", one, two)
			three := record(mint, "Kind", 3)
			m.decide(onceOf(appendMethod, 1, f))
			if err := s.Append(t.Context(), "lost-1", 2, three); err != nil {
				t.Fatal(err)
			}
			holds(t, s, "lost-1", one, two, three)
		})
	}
}

func TestAppendWhoseAnswerIsLostConflictsWithWhatIsThere(t *testing.T) {
	t.Parallel()
	m, s := meddled(t, "")
	mint := newMint()
	theirs, ours := record(mint, "Kind", 1), record(mint, "Kind", 2)
	if err := s.Append(t.Context(), "late-1", 0, theirs); err != nil {
		t.Fatal(err)
	}
	m.decide(onceOf(appendMethod, 1, fate{lost: unavailable()}))
	if err := s.Append(t.Context(), "late-1", 0, ours); !errors.Is(err, events.ErrConflict) {
		t.Errorf("Append = %v, want a Conflict", err)
	}
	holds(t, s, "late-1", theirs)
}

// A server compares IDs alone.
func TestRecordsWithTheSameIDsAndOtherDataConflict(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s, mint := d.open(), newMint()
	one := record(mint, "Kind", 1)
	other := one
	other.Data = []byte(`{"other":1}`)
	if err := s.Append(t.Context(), "same-1", 0, one); err != nil {
		t.Fatal(err)
	}
	for name, by := range map[string]events.Store{"the store that wrote it": s, "a store opened later": d.open()} {
		if err := by.Append(t.Context(), "same-1", 0, other); !errors.Is(err, events.ErrConflict) {
			t.Errorf("by %s, Append = %v, want a Conflict", name, err)
		}
		if err := by.Append(t.Context(), "same-1", 0, one); err != nil {
			t.Errorf("by %s, Append of the same = %v, want nil", name, err)
		}
	}
	// At once, one of them wins, and the other is told so.
	for round := range 20 {
		stream := events.Stream(fmt.Sprintf("both-%d", round))
		var both sync.WaitGroup
		var ends [2]error
		both.Go(func() { ends[0] = s.Append(t.Context(), stream, 0, one) })
		both.Go(func() { ends[1] = s.Append(t.Context(), stream, 0, other) })
		both.Wait()
		if (ends[0] == nil) == (ends[1] == nil) {
			t.Fatalf("two appends with one ID and different data at once = %v and %v, want one Conflict", ends[0], ends[1])
		}
	}
}

func TestAppendThatIsTooLargeIsNotSent(t *testing.T) {
	t.Parallel()
	m := newMeddler(t, newDatabase(t).address)
	s, err := eventstoredb.Open(t.Context(), m.url(), eventstoredb.Config{MaxAppend: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mint := newMint()
	small, large := record(mint, "Kind", 1), record(mint, "Kind", 2)
	large.Data = []byte(`"` + strings.Repeat("x", 1000) + `"`)
	many := make([]events.Record, 30)
	for i := range many {
		many[i] = record(mint, "Kind", i)
	}
	m.decide(nil)
	for says, records := range map[string][]events.Record{
		"record 2 of 2, Kind " + large.ID.String() + ", has ": {small, large},
		"record 1 of 1, Kind " + large.ID.String() + ", has ": {large},
		"append fewer at once":                                many,
	} {
		err := s.Append(t.Context(), "large-1", 0, records...)
		if !errors.Is(err, events.ErrTooLarge) || !strings.Contains(err.Error(), "the limit is 1000") || !strings.Contains(err.Error(), says) {
			t.Errorf("Append = %v, want ErrTooLarge with the limit and %q", err, says)
		}
	}
	if calls := m.calls(appendMethod); len(calls) > 0 {
		t.Errorf("%d appends were sent", len(calls))
	}
	if err := s.Append(t.Context(), "large-1", 0, small); err != nil {
		t.Error(err)
	}
}

// The limit of the server can be below the store's. The client hides the answer
// of the server if it comes while records are still being sent.
func TestAppendOverTheLimitOfTheServerIsRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.served.MaxAppend = 1000
	d.restart()
	d.config.Patience = 100 * time.Millisecond
	s, mint := d.open(), newMint()
	records := make([]events.Record, 3000)
	for i := range records {
		records[i] = record(mint, "Kind", i)
	}
	if err := s.Append(t.Context(), "over-1", 0, records...); !errors.Is(err, eventstoredb.ErrRefused) {
		t.Errorf("Append = %v, want ErrRefused", err)
	}
	holds(t, s, "over-1")
}

func TestAnswersOfTheServerAreErrorsOfOurs(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]error{
		codes.PermissionDenied:   eventstoredb.ErrRefused,
		codes.InvalidArgument:    eventstoredb.ErrRefused,
		codes.FailedPrecondition: eventstoredb.ErrRefused,
		codes.ResourceExhausted:  eventstoredb.ErrRefused,
		codes.Unimplemented:      eventstoredb.ErrRefused,
		codes.Unauthenticated:    eventstoredb.ErrUnauthenticated,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			m, s := meddled(t, "")
			m.decide(func(heard) fate { return fate{unheard: statusOf(code)} })
			check := func(what string, err error) {
				if !errors.Is(err, want) || !strings.Contains(err.Error(), "the meddler says") {
					t.Errorf("%s = %v, want %v with what the server said", what, err, want)
				}
			}
			check("Append", s.Append(t.Context(), "told-1", 0, record(newMint(), "Kind", 1)))
			for what, loop := range loops(t.Context(), s) {
				_, err := collect(loop)
				check(what, err)
			}
		})
	}
}

func loops(ctx context.Context, s *eventstoredb.Store) map[string]func(func(events.Entry, error) bool) {
	return map[string]func(func(events.Entry, error) bool){
		"Read":     s.Read(ctx, "told-1", 0),
		"ReadAll":  s.ReadAll(ctx, events.Position{}),
		"Follow":   s.Follow(ctx, events.Position{}),
		"Backward": s.Scan(ctx, events.Query{Backward: true}),
	}
}

// A node that is not the leader names the leader, and the client goes there.
func TestCallsGoToTheLeader(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	m := newMeddler(t, d.address)
	s, err := eventstoredb.Open(t.Context(), m.url(), eventstoredb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := record(newMint(), "Kind", 1)
	if err := s.Append(t.Context(), "leader-1", 0, r); err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(d.address, ":")
	m.decide(func(heard) fate {
		return fate{unheard: statusOf(codes.NotFound), trailer: metadata.Pairs("exception", "not-leader", "leader-endpoint-host", host, "leader-endpoint-port", port)}
	})
	holds(t, s, "leader-1", r)
	if n := len(m.calls(readMethod)); n != 1 {
		t.Errorf("the node that is not the leader was read %d times, want once", n)
	}
}

func TestContextThatEndsIsObeyedWhileTheServerIsSilent(t *testing.T) {
	t.Parallel()
	m, s := meddled(t, "")
	errStop := errors.New("stopped")
	calls := map[string]func(context.Context) error{
		"Append": func(ctx context.Context) error { return s.Append(ctx, "told-1", 0, record(newMint(), "Kind", 1)) },
	}
	for what := range loops(t.Context(), s) {
		calls[what] = func(ctx context.Context) error {
			_, err := collect(loops(ctx, s)[what])
			return err
		}
	}
	for what, call := range calls {
		ctx, cancel := context.WithCancelCause(t.Context())
		m.decide(func(heard) fate {
			cancel(errStop) // when the server has it
			return fate{silent: true}
		})
		if err := call(ctx); !errors.Is(err, errStop) {
			t.Errorf("%s = %v, want the cause", what, err)
		}
	}
}
