package eventstoredb_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/events/eventstoredb/mapping"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// collect reads a loop to its end and returns the entries and the error.
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

// holds fails the test unless a stream has exactly these records.
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

// openBehindProxy opens a store behind a faultProxy.
func openBehindProxy(t *testing.T, settings string) (*faultProxy, *eventstoredb.Store) {
	t.Helper()
	m := newFaultProxy(t, newDatabase(t).address)
	s, err := eventstoredb.Open(t.Context(), m.url()+settings, eventstoredb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return m, s
}

// An append whose response was lost is repeated, and its records are stored once.
func TestAppendWithLostResponseIsStoredOnce(t *testing.T) {
	t.Parallel()
	fates := map[string]fault{"silent": {noResponse: true}}
	deadlines := map[string]string{"silent": "&defaultDeadline=1500"}
	for _, code := range []codes.Code{codes.Unavailable, codes.Aborted, codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.Canceled} {
		fates["lost "+code.String()] = fault{loseResponse: statusOf(code)}
		fates["unheard "+code.String()] = fault{refuse: statusOf(code)}
	}
	for name, f := range fates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, s := openBehindProxy(t, deadlines[name])
			mint := newMint()
			one, two := record(mint, "Kind", 1), record(mint, "Kind", 2)
			m.inject(firstCalls(appendMethod, 2, f))
			if err := s.Append(t.Context(), "lost-1", 0, one, two); err != nil {
				t.Fatal(err)
			}
			if n := len(m.calls(appendMethod)); n != 3 {
				t.Errorf("the records were sent %d times, want 3", n)
			}
			holds(t, s, "lost-1", one, two)
			three := record(mint, "Kind", 3)
			m.inject(firstCalls(appendMethod, 1, f))
			if err := s.Append(t.Context(), "lost-1", 2, three); err != nil {
				t.Fatal(err)
			}
			holds(t, s, "lost-1", one, two, three)
		})
	}
}

// An append whose response was lost returns a conflict if the stream has other
// records at these revisions.
func TestAppendWithLostResponseConflictsWithStoredRecords(t *testing.T) {
	t.Parallel()
	m, s := openBehindProxy(t, "")
	mint := newMint()
	theirs, ours := record(mint, "Kind", 1), record(mint, "Kind", 2)
	if err := s.Append(t.Context(), "late-1", 0, theirs); err != nil {
		t.Fatal(err)
	}
	m.inject(firstCalls(appendMethod, 1, fault{loseResponse: unavailable()}))
	if err := s.Append(t.Context(), "late-1", 0, ours); !errors.Is(err, events.ErrConflict) {
		t.Errorf("Append = %v, want a Conflict", err)
	}
	holds(t, s, "late-1", theirs)
}

// An append of records with the IDs of stored records and other data is a conflict.
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
}

// An append that no server accepts is not sent: an invalid stream or record is an
// ErrBadRecord, and a revision beyond the longest stream is a conflict.
func TestAppendThatNoServerTakesIsNotSent(t *testing.T) {
	t.Parallel()
	m, s := openBehindProxy(t, "")
	r := record(newMint(), "Kind", 1)
	late := changed(r, func(r *events.Record) { r.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) })
	m.inject(nil)
	for name, of := range map[string]struct {
		stream  events.Stream
		records []events.Record
	}{
		"a stream of the server's": {"$streams", []events.Record{r}},
		"the metadata of a stream": {"$$session-1", []events.Record{r}},
		"no stream":                {"", []events.Record{r}},
		"no records":               {"session-1", nil},
		"a time without a form":    {"session-1", []events.Record{r, late}},
		"a record that is none":    {"session-1", []events.Record{r, {}}},
	} {
		if err := s.Append(t.Context(), of.stream, 0, of.records...); !errors.Is(err, events.ErrBadRecord) {
			t.Errorf("Append of %s = %v, want ErrBadRecord", name, err)
		}
	}
	for _, after := range []events.Revision{math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		if err := s.Append(t.Context(), "session-1", after, r); !errors.Is(err, events.ErrConflict) {
			t.Errorf("Append after revision %d = %v, want a Conflict", after, err)
		}
	}
	if calls := m.calls(appendMethod); len(calls) > 0 {
		t.Errorf("%d appends were sent", len(calls))
	}
}

// An append over the limit returns ErrTooLarge without a request.
func TestAppendThatIsTooLargeIsNotSent(t *testing.T) {
	t.Parallel()
	m := newFaultProxy(t, newDatabase(t).address)
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
	m.inject(nil)
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

// An append over the limit of the server is refused. The client hides the response if
// it arrives while it still sends records.
func TestAppendOverTheLimitOfTheServerIsRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.served.MaxAppend = 1000
	d.restart()
	d.config.RetryTimeout = 100 * time.Millisecond
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

// Each gRPC status of the server becomes the sentinel that the package doc names.
func TestStatusCodesBecomeSentinels(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]error{
		codes.PermissionDenied:   eventstoredb.ErrRefused,
		codes.InvalidArgument:    eventstoredb.ErrRefused,
		codes.FailedPrecondition: eventstoredb.ErrRefused,
		codes.ResourceExhausted:  eventstoredb.ErrRefused,
		codes.Unimplemented:      eventstoredb.ErrRefused,
		codes.OutOfRange:         eventstoredb.ErrRefused,
		codes.DataLoss:           events.ErrDamaged,
		codes.Unauthenticated:    eventstoredb.ErrUnauthenticated,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			m, s := openBehindProxy(t, "")
			m.inject(func(proxiedCall) fault { return fault{refuse: statusOf(code)} })
			check := func(what string, err error) {
				if !errors.Is(err, want) || !strings.Contains(err.Error(), "the fault proxy says") {
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

// The store follows a node that names another node as the leader.
func TestCallsGoToTheLeader(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	m := newFaultProxy(t, d.address)
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
	m.inject(func(proxiedCall) fault {
		return fault{refuse: statusOf(codes.NotFound), trailer: metadata.Pairs("exception", "not-leader", "leader-endpoint-host", host, "leader-endpoint-port", port)}
	})
	holds(t, s, "leader-1", r)
	if n := len(m.calls(readMethod)); n != 1 {
		t.Errorf("the node that is not the leader was read %d times, want once", n)
	}
}

// A call returns at once when its context ends, also while the server does not
// respond.
func TestContextThatEndsIsObeyedWhileTheServerIsSilent(t *testing.T) {
	t.Parallel()
	m, s := openBehindProxy(t, "")
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
		m.inject(func(proxiedCall) fault {
			cancel(errStop) // when the server has it
			return fault{noResponse: true}
		})
		if err := call(ctx); !errors.Is(err, errStop) {
			t.Errorf("%s = %v, want the cause", what, err)
		}
	}
}

// An append conflicts if another program appended between two of its tries, and
// succeeds if its first try was stored.
func TestAppendNoticesAnotherWriterBetweenItsTries(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	m := newFaultProxy(t, d.address)
	other := d.open()
	s, err := eventstoredb.Open(t.Context(), m.url(), eventstoredb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mint := newMint()
	one, ours, theirs := record(mint, "Kind", 1), record(mint, "Kind", 2), record(mint, "Kind", 3)
	if err := s.Append(t.Context(), "between-1", 0, one); err != nil {
		t.Fatal(err)
	}
	// The first try never came to the server, and then there is another.
	m.inject(func(h proxiedCall) fault {
		if h.method != appendMethod || h.n > 0 {
			return fault{}
		}
		if err := other.Append(t.Context(), "between-1", 1, theirs); err != nil {
			t.Error(err)
		}
		return fault{refuse: unavailable()}
	})
	if err := s.Append(t.Context(), "between-1", 1, ours); !errors.Is(err, events.ErrConflict) {
		t.Errorf("Append = %v, want a Conflict", err)
	}
	holds(t, s, "between-1", one, theirs)
	// The first try was made, and then there are others behind it.
	behind := []events.Record{record(mint, "Kind", 4), record(mint, "Kind", 5)}
	m.inject(func(h proxiedCall) fault {
		switch {
		case h.method == appendMethod && h.n == 0:
			return fault{loseResponse: unavailable()}
		case h.method == appendMethod && h.n == 1:
			if err := other.Append(t.Context(), "between-1", 3, behind...); err != nil {
				t.Error(err)
			}
		}
		return fault{}
	})
	if err := s.Append(t.Context(), "between-1", 2, ours); err != nil {
		t.Errorf("Append of what was made = %v", err)
	}
	holds(t, s, "between-1", one, theirs, ours, behind[0], behind[1])
}

// The limit counts bytes as the server does: data, metadata, and two for each UTF-16
// unit of the type.
func TestSizesAreCountedAsTheServerCounts(t *testing.T) {
	t.Parallel()
	const limit = 2000
	d := newDatabase(t)
	d.served.MaxAppend = limit
	d.restart()
	mint := newMint()
	ones := []events.Record{record(mint, "Kind", 1), record(mint, "Größe𝄞", 2)}
	size := 2 * (4 + 7) // the last letter of the second type is two units
	for _, r := range ones {
		f, err := mapping.FromRecord(r)
		if err != nil {
			t.Fatal(err)
		}
		size += len(f.Data) + len(f.Metadata)
	}
	for _, of := range []struct {
		total, limit int
		want         error
	}{
		{limit - 1, limit, nil}, {limit, limit, nil}, {limit + 1, limit, events.ErrTooLarge},
		{limit, limit - 1, events.ErrTooLarge}, {limit + 1, limit + 1, eventstoredb.ErrRefused},
	} {
		m := newFaultProxy(t, d.address)
		s, err := eventstoredb.Open(t.Context(), m.url(), eventstoredb.Config{MaxAppend: of.limit, RetryTimeout: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		records := slices.Clone(ones)
		records[0].Data = fmt.Appendf(nil, `"%s"`, strings.Repeat("x", len(ones[0].Data)-2+of.total-size))
		stream := events.Stream(fmt.Sprintf("size-%d-%d", of.total, of.limit))
		if err := s.Append(t.Context(), stream, 0, records...); !errors.Is(err, of.want) {
			t.Errorf("Append of %d bytes with the limit %d = %v, want %v", of.total, of.limit, err, of.want)
		}
		if sent := len(m.calls(appendMethod)) > 0; sent == errors.Is(of.want, events.ErrTooLarge) {
			t.Errorf("that an append of %d bytes was sent with the limit %d is %t", of.total, of.limit, sent)
		}
		if of.want == nil {
			holds(t, s, stream, records...)
		}
		_ = s.Close()
	}
}

// A record that just fits into one protocol message is stored and read back.
func TestRecordOfSixteenMegabytesIsKept(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.config.MaxAppend = 16 << 20
	s, mint := d.open(), newMint()
	large := record(mint, "Kind", 1)
	large.Data = make([]byte, 16_700_000) // no JSON, which takes long to validate
	if err := s.Append(t.Context(), "huge-1", 0, large); err != nil {
		t.Fatal(err)
	}
	holds(t, s, "huge-1", large)
	larger := record(mint, "Kind", 2)
	larger.Data = make([]byte, 16_770_000)
	if err := s.Append(t.Context(), "huge-1", 1, larger); !errors.Is(err, eventstoredb.ErrRefused) {
		t.Errorf("Append of more than a message holds = %v, want ErrRefused", err)
	}
	for what, loop := range map[string]func(func(events.Entry, error) bool){
		"ReadAll": s.ReadAll(t.Context(), events.Position{}), "Backward": s.Scan(t.Context(), events.Query{Backward: true}),
	} {
		if entries, err := collect(loop); err != nil || len(entries) != 1 || len(entries[0].Data) != len(large.Data) {
			t.Errorf("%s yields %d entries and %v, want the one", what, len(entries), err)
		}
	}
}

// An append to a cluster without a leader was not stored and returns ErrUnreachable.
func TestAppendThatNoLeaderTakesIsUnreachable(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(m *faultProxy) fault{
		"each names another": func(m *faultProxy) fault { return notLeader(m.address) },
		"nobody is named":    func(*faultProxy) fault { return fault{refuse: statusOf(codes.NotFound)} },
	} {
		m := newFaultProxy(t, newDatabase(t).address)
		s, err := eventstoredb.Open(t.Context(), m.url(), eventstoredb.Config{RetryTimeout: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		m.inject(func(h proxiedCall) fault {
			if h.method == featuresMethod {
				return fault{}
			}
			return answer(m)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := s.Append(ctx, "nobody-1", 0, record(newMint(), "Kind", 1)); !errors.Is(err, eventstoredb.ErrUnreachable) {
			t.Errorf("%s: Append = %v, want ErrUnreachable", name, err)
		}
		for what, loop := range loops(ctx, s) {
			if what == "Follow" {
				continue // it waits for the leader
			}
			if entries, err := collect(loop); !errors.Is(err, eventstoredb.ErrUnreachable) {
				t.Errorf("%s: %s yields %d entries and %v, want ErrUnreachable", name, what, len(entries), err)
			}
		}
		cancel()
		_ = s.Close()
	}
}
