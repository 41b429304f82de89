package eventstoredb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/mapping"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Append is events.Store's. An answer that leaves it open whether the records
// were added is not believed: the same records are sent again until the answer
// is certain or the context ends. A server that cannot be reached at all is an
// ErrUnreachable after the store's patience, and nothing was sent then.
func (s *Store) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	sent, err := s.sendable(stream, records)
	if err != nil {
		return fmt.Errorf("append to %s: %w", stream, err)
	}
	ctx, free := s.bound(ctx)
	defer free()
	a := &appending{store: s, stream: stream, after: after, records: records, events: sent}
	a.others = s.writing.begin(stream)
	defer s.writing.end(stream, a.others)
	if a.high, a.sighted = s.known(); after > math.MaxInt64-events.Revision(len(records)) {
		return &events.Conflict{Stream: stream, After: after} // no stream is as long
	}
	err = a.run(ctx)
	if err != nil && !errors.Is(err, events.ErrConflict) && !errors.Is(err, events.ErrClosed) {
		return fmt.Errorf("append to %s after revision %d: %w", stream, after, err)
	}
	return err
}

// sendable returns records as the client takes them, in memory of their own.
func (s *Store) sendable(stream events.Stream, records []events.Record) ([]esdb.EventData, error) {
	switch {
	case stream == "":
		return nil, fmt.Errorf("%w: it has no stream", events.ErrBadRecord)
	case s.namespace == "" && strings.HasPrefix(string(stream), system):
		return nil, fmt.Errorf("%w: streams that begin with %s are the server's own", events.ErrBadRecord, system)
	case len(records) == 0:
		return nil, fmt.Errorf("%w: there are no records", events.ErrBadRecord)
	}
	var faults []error
	sent, total, limit := make([]esdb.EventData, len(records)), 0, s.limit()
	for i, r := range records {
		if err := r.Valid(); err != nil {
			faults = append(faults, err)
			continue
		}
		f, err := mapping.FromRecord(r)
		if err != nil {
			faults = append(faults, fmt.Errorf("%w: %w", events.ErrBadRecord, err))
			continue
		}
		size := f.Size()
		if total += size; total > limit {
			return nil, s.tooLarge(i, len(records), r, size, total)
		}
		sent[i] = esdb.EventData{EventID: f.ID, EventType: f.Type, Data: bytes.Clone(f.Data), Metadata: f.Metadata}
		if f.ContentType == mapping.JSON {
			sent[i].ContentType = esdb.ContentTypeJson
		}
	}
	return sent, errors.Join(faults...)
}

func (s *Store) tooLarge(i, n int, r events.Record, size, total int) error {
	if size > s.limit() {
		return fmt.Errorf("%w: record %d of %d, %s %s, has %d bytes, and the limit is %d", events.ErrTooLarge, i+1, n, r.Kind, r.ID, size, s.limit())
	}
	return fmt.Errorf("%w: with record %d of %d, %s %s, of %d bytes, the append has %d, and the limit is %d: append fewer at once",
		events.ErrTooLarge, i+1, n, r.Kind, r.ID, size, total, s.limit())
}

// An appending is an append under way.
type appending struct {
	store   *Store
	stream  events.Stream
	after   events.Revision
	records []events.Record
	events  []esdb.EventData
	high    events.Position // where the log ended, as far as was known, before anything was sent
	sighted bool            // high is known
	others  *writers
	maybe   bool      // it was sent, and what came of it is not known
	silent  int       // how often in a row the server ended it without a word,
	hushed  time.Time // and since when
}

// run sends until the answer is certain.
func (a *appending) run(ctx context.Context) error {
	for p := (&pace{}); ; {
		p.begin()
		reply, err := a.send(ctx)
		verdict, err := a.judge(reply, err)
		switch {
		case err == nil && a.fresh(reply):
			a.store.saw(events.NewPosition(reply.CommitPosition, reply.PreparePosition))
			return nil
		case context.Cause(ctx) != nil:
			return ended(ctx, p.last)
		case err == nil || verdict == conflict:
			var held bool
			if held, err = a.held(ctx); err == nil && held {
				return nil
			} else if err == nil {
				return &events.Conflict{Stream: a.stream, After: a.after}
			}
			if verdict, err = judge(err); verdict == final {
				return err
			}
		case verdict != uncertain:
			return err
		}
		patience := a.store.patience
		if a.maybe || a.silent > 0 { // the silence ends by itself
			patience = 0
		}
		if err := p.failed(ctx, err, patience); err != nil {
			return err
		}
	}
}

// mostSilences is how often, and Patience how long, an append is sent to a
// server that ends it without a word. The client hides the reason, which can be
// that the connection broke or that the server never takes it.
const mostSilences = 3

// judge says what an answer means.
func (a *appending) judge(reply *esdb.WriteResult, err error) (verdict, error) {
	if err == nil {
		return uncertain, nil
	}
	verdict, judged := judge(err)
	if errors.Is(err, io.EOF) && verdict == uncertain {
		if a.silent++; a.silent == 1 {
			a.hushed = time.Now()
		} else if a.silent > mostSilences && time.Since(a.hushed) > a.store.patience {
			return final, fmt.Errorf("%w: it ends the append without a reason: it may take less at once", ErrRefused)
		}
	} else {
		a.silent = 0
	}
	return verdict, judged
}

// fresh reports whether a reply is to records that were added just now. A
// server takes records whose IDs it holds at their place for a repetition,
// whatever else is in them, and answers with where those stand; and the client
// takes an answer that it does not understand for success.
func (a *appending) fresh(reply *esdb.WriteResult) bool {
	end := uint64(a.after) + uint64(len(a.records)) - 1
	at := events.NewPosition(reply.CommitPosition, reply.PreparePosition)
	return reply.NextExpectedVersion == end && a.sighted && at.Compare(a.high) > 0 && !a.maybe && !a.store.writing.shared(a.others)
}

// held reports whether the stream holds the records at their place.
func (a *appending) held(ctx context.Context) (bool, error) {
	found := 0
	for e, err := range a.store.Read(ctx, a.stream, a.after) {
		if err != nil {
			return false, err
		}
		if !same(e.Record, a.records[found]) {
			return false, nil
		}
		if found++; found == len(a.records) {
			return true, nil
		}
	}
	return false, nil
}

// What the client says begins so when there was no call to send records in, and
// when the server ended it before all were sent, which takes none then. The
// version of the client is pinned, and nothing else tells: tests hold that it
// says so.
const (
	notBegun = "could not construct append operation"
	notSent  = "could not send append request"
)

// untaken reports whether an error says that no leader was given the records.
func untaken(err error) bool {
	if of, ok := errors.AsType[*esdb.Error](err); ok && of.Code() == esdb.ErrorCodeNotLeader {
		return true
	}
	text := err.Error()
	return errors.Is(err, errNoNode) || status.Code(err) == codes.NotFound || strings.HasPrefix(text, notBegun) || strings.HasPrefix(text, notSent)
}

// send sends the records once. It returns when the server has answered, and at
// once when the context ends.
func (a *appending) send(ctx context.Context) (*esdb.WriteResult, error) {
	expected := esdb.ExpectedRevision(esdb.NoStream{})
	if a.after > 0 {
		expected = esdb.Revision(uint64(a.after) - 1)
	}
	type answer struct {
		sent  bool
		reply *esdb.WriteResult
		err   error
	}
	if !a.store.begin() {
		return nil, events.ErrClosed
	}
	answers := make(chan answer, 1)
	a.store.crew.do(func() {
		defer a.store.running.Done()
		var got answer
		got.err = a.store.guard.call(ctx, func(l line, c *esdb.Client) (err error) {
			got.sent = true
			got.reply, err = c.AppendToStream(l, a.store.namespace+string(a.stream), esdb.AppendToStreamOptions{ExpectedRevision: expected}, a.events...)
			return err
		})
		answers <- got
	})
	select {
	case got := <-answers:
		if verdict, _ := judge(got.err); got.sent && got.err != nil && verdict == uncertain && !untaken(got.err) {
			a.maybe = true
		}
		return got.reply, got.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// writing knows which appends of this store to one stream are under way at
// once.
type writing struct {
	sync.Mutex
	streams map[events.Stream]*writers
}

// writers are the appends to a stream since there was none.
type writers struct {
	n    int
	many bool
}

func (w *writing) begin(s events.Stream) *writers {
	w.Lock()
	defer w.Unlock()
	if w.streams == nil {
		w.streams = map[events.Stream]*writers{}
	}
	all := w.streams[s]
	if all == nil {
		all = &writers{}
		w.streams[s] = all
	}
	all.n++
	all.many = all.many || all.n > 1
	return all
}

func (w *writing) shared(all *writers) bool {
	w.Lock()
	defer w.Unlock()
	return all.many
}

func (w *writing) end(s events.Stream, all *writers) {
	w.Lock()
	defer w.Unlock()
	if all.n--; all.n == 0 {
		delete(w.streams, s)
	}
}
