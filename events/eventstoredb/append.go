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
	sent, err := s.encodeAppend(stream, records)
	if err != nil {
		return fmt.Errorf("append to %s: %w", stream, err)
	}
	ctx, release := s.withStoreLifetime(ctx)
	defer release()
	a := &appendOp{store: s, stream: stream, after: after, records: records, events: sent}
	a.concurrent = s.inFlight.add(stream)
	defer s.inFlight.remove(stream, a.concurrent)
	if a.knownEnd, a.endKnown = s.knownEnd(); after > math.MaxInt64-events.Revision(len(records)) {
		return &events.Conflict{Stream: stream, After: after} // no stream is as long
	}
	err = a.run(ctx)
	if err != nil && !errors.Is(err, events.ErrConflict) && !errors.Is(err, events.ErrClosed) {
		return fmt.Errorf("append to %s after revision %d: %w", stream, after, err)
	}
	return err
}

// encodeAppend returns records as the client takes them, in memory of their own.
func (s *Store) encodeAppend(stream events.Stream, records []events.Record) ([]esdb.EventData, error) {
	switch {
	case stream == "":
		return nil, fmt.Errorf("%w: it has no stream", events.ErrBadRecord)
	case s.namespace == "" && strings.HasPrefix(string(stream), systemPrefix):
		return nil, fmt.Errorf("%w: streams that begin with %s are the server's own", events.ErrBadRecord, systemPrefix)
	case len(records) == 0:
		return nil, fmt.Errorf("%w: there are no records", events.ErrBadRecord)
	}
	var errs []error
	sent, total, limit := make([]esdb.EventData, len(records)), 0, s.maxAppendBytes()
	for i, r := range records {
		if err := r.Valid(); err != nil {
			errs = append(errs, err)
			continue
		}
		event, err := mapping.FromRecord(r)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", events.ErrBadRecord, err))
			continue
		}
		size := event.Size()
		if total += size; total > limit {
			return nil, s.tooLargeError(i, len(records), r, size, total)
		}
		sent[i] = esdb.EventData{EventID: event.ID, EventType: event.Type, Data: bytes.Clone(event.Data), Metadata: event.Metadata}
		if event.ContentType == mapping.JSON {
			sent[i].ContentType = esdb.ContentTypeJson
		}
	}
	return sent, errors.Join(errs...)
}

func (s *Store) tooLargeError(i, n int, r events.Record, size, total int) error {
	if size > s.maxAppendBytes() {
		return fmt.Errorf("%w: record %d of %d, %s %s, has %d bytes, and the limit is %d", events.ErrTooLarge, i+1, n, r.Kind, r.ID, size, s.maxAppendBytes())
	}
	return fmt.Errorf("%w: with record %d of %d, %s %s, of %d bytes, the append has %d, and the limit is %d: append fewer at once",
		events.ErrTooLarge, i+1, n, r.Kind, r.ID, size, total, s.maxAppendBytes())
}

// An appendOp is an append under way.
type appendOp struct {
	store       *Store
	stream      events.Stream
	after       events.Revision
	records     []events.Record
	events      []esdb.EventData
	knownEnd    events.Position // where the log ended, as far as was known, before anything was sent
	endKnown    bool            // high is known
	concurrent  *streamAppends
	mayBeStored bool      // it was sent, and what came of it is not known
	silentEnds  int       // how often in a row the server ended it without a word,
	silentSince time.Time // and since when
}

// run sends until the answer is certain.
func (a *appendOp) run(ctx context.Context) error {
	for p := (&retryBackoff{}); ; {
		p.attempt()
		response, err := a.sendOnce(ctx)
		class, err := a.classify(response, err)
		switch {
		case err == nil && a.isNewAppend(response):
			a.store.advanceEnd(events.NewPosition(response.CommitPosition, response.PreparePosition))
			return nil
		case context.Cause(ctx) != nil:
			return contextError(ctx, p.lastErr)
		case err == nil || class == wrongLength:
			var stored bool
			if stored, err = a.alreadyStored(ctx); err == nil && stored {
				return nil
			} else if err == nil {
				return &events.Conflict{Stream: a.stream, After: a.after}
			}
			if class, err = classify(err); class == permanent {
				return err
			}
		case class != retryable:
			return err
		}
		timeout := a.store.retryTimeout
		if a.mayBeStored || a.silentEnds > 0 { // the silence ends by itself
			timeout = 0
		}
		if err := p.wait(ctx, err, timeout); err != nil {
			return err
		}
	}
}

// maxSilentEnds is how often, and Patience how long, an append is sent to a
// server that ends it without a word. The client hides the reason, which can be
// that the connection broke or that the server never takes it.
const maxSilentEnds = 3

// classify says what an answer means.
func (a *appendOp) classify(response *esdb.WriteResult, err error) (errorClass, error) {
	if err == nil {
		return retryable, nil
	}
	class, judged := classify(err)
	if errors.Is(err, io.EOF) && class == retryable {
		if a.silentEnds++; a.silentEnds == 1 {
			a.silentSince = time.Now()
		} else if a.silentEnds > maxSilentEnds && time.Since(a.silentSince) > a.store.retryTimeout {
			return permanent, fmt.Errorf("%w: it ends the append without a reason: it may take less at once", ErrRefused)
		}
	} else {
		a.silentEnds = 0
	}
	return class, judged
}

// isNewAppend reports whether a reply is to records that were added just now. A
// server takes records whose IDs it holds at their place for a repetition,
// whatever else is in them, and answers with where those stand; and the client
// takes an answer that it does not understand for success.
func (a *appendOp) isNewAppend(response *esdb.WriteResult) bool {
	end := uint64(a.after) + uint64(len(a.records)) - 1
	position := events.NewPosition(response.CommitPosition, response.PreparePosition)
	return response.NextExpectedVersion == end && a.endKnown && position.Compare(a.knownEnd) > 0 && !a.mayBeStored && !a.store.inFlight.overlapped(a.concurrent)
}

// alreadyStored reports whether the stream holds the records at their place.
func (a *appendOp) alreadyStored(ctx context.Context) (bool, error) {
	matched := 0
	for e, err := range a.store.Read(ctx, a.stream, a.after) {
		if err != nil {
			return false, err
		}
		if !sameRecord(e.Record, a.records[matched]) {
			return false, nil
		}
		if matched++; matched == len(a.records) {
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
	notBegunPrefix = "could not construct append operation"
	notSentPrefix  = "could not send append request"
)

// notTaken reports whether an error says that no leader was given the records.
func notTaken(err error) bool {
	if clientErr, ok := errors.AsType[*esdb.Error](err); ok && clientErr.Code() == esdb.ErrorCodeNotLeader {
		return true
	}
	text := err.Error()
	return errors.Is(err, errNoNode) || status.Code(err) == codes.NotFound || strings.HasPrefix(text, notBegunPrefix) || strings.HasPrefix(text, notSentPrefix)
}

// sendOnce sends the records once. It returns when the server has answered, and at
// once when the context ends.
func (a *appendOp) sendOnce(ctx context.Context) (*esdb.WriteResult, error) {
	expected := esdb.ExpectedRevision(esdb.NoStream{})
	if a.after > 0 {
		expected = esdb.Revision(uint64(a.after) - 1)
	}
	type result struct {
		called   bool
		response *esdb.WriteResult
		err      error
	}
	if !a.store.startTask() {
		return nil, events.ErrClosed
	}
	results := make(chan result, 1)
	a.store.workers.run(func() {
		defer a.store.tasks.Done()
		var res result
		res.err = a.store.connector.call(ctx, func(l callContext, c *esdb.Client) (err error) {
			res.called = true
			res.response, err = c.AppendToStream(l, a.store.namespace+string(a.stream), esdb.AppendToStreamOptions{ExpectedRevision: expected}, a.events...)
			return err
		})
		results <- res
	})
	select {
	case res := <-results:
		if class, _ := classify(res.err); res.called && res.err != nil && class == retryable && !notTaken(res.err) {
			a.mayBeStored = true
		}
		return res.response, res.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// inFlightAppends knows which appends of this store to one stream are under way at
// once.
type inFlightAppends struct {
	sync.Mutex
	streams map[events.Stream]*streamAppends
}

// streamAppends are the appends to a stream since there was none.
type streamAppends struct {
	n          int
	overlapped bool
}

func (w *inFlightAppends) add(s events.Stream) *streamAppends {
	w.Lock()
	defer w.Unlock()
	if w.streams == nil {
		w.streams = map[events.Stream]*streamAppends{}
	}
	all := w.streams[s]
	if all == nil {
		all = &streamAppends{}
		w.streams[s] = all
	}
	all.n++
	all.overlapped = all.overlapped || all.n > 1
	return all
}

func (w *inFlightAppends) overlapped(all *streamAppends) bool {
	w.Lock()
	defer w.Unlock()
	return all.overlapped
}

func (w *inFlightAppends) remove(s events.Stream, all *streamAppends) {
	w.Lock()
	defer w.Unlock()
	if all.n--; all.n == 0 {
		delete(w.streams, s)
	}
}
