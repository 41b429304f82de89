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

// Append implements events.Store. If the response leaves open whether the server
// stored the records, Append sends the same records again until the result is certain
// or ctx ends. It returns ErrUnreachable if no server was reached within the retry
// timeout; the records were not sent then. Append copies the records before it sends
// them, so the caller may reuse their memory when it returns.
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
		return &events.Conflict{Stream: stream, After: after} // no server has a stream of this length
	}
	err = a.run(ctx)
	if err != nil && !errors.Is(err, events.ErrConflict) && !errors.Is(err, events.ErrClosed) {
		return fmt.Errorf("append to %s after revision %d: %w", stream, after, err)
	}
	return err
}

// encodeAppend converts records to events of the client and copies their data. It
// returns ErrBadRecord with every invalid record, or ErrTooLarge for the first record
// that exceeds the limit of an append.
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

// tooLargeError returns the ErrTooLarge for r, the record with index i of n. size is
// the size of r in bytes. total is the size of the records of the append from the first
// to r.
func (s *Store) tooLargeError(i, n int, r events.Record, size, total int) error {
	if size > s.maxAppendBytes() {
		return fmt.Errorf("%w: record %d of %d, %s %s, has %d bytes, and the limit is %d", events.ErrTooLarge, i+1, n, r.Kind, r.ID, size, s.maxAppendBytes())
	}
	return fmt.Errorf("%w: with record %d of %d, %s %s, of %d bytes, the append has %d, and the limit is %d: append fewer at once",
		events.ErrTooLarge, i+1, n, r.Kind, r.ID, size, total, s.maxAppendBytes())
}

// An appendOp is one call of Append. The goroutine of the caller owns it.
//
// The protocol. A request names the length that the stream must have, and each record
// has a fixed event ID, so a repeated request cannot add the records twice. A success
// response is not always proof that this request added the records: if the server
// already has the event IDs at these revisions, it reports success, even if the stored
// records differ. A missing response is no proof either, since the connection may break
// before it. After each request run therefore does one of these:
//
//   - It returns nil, if the response is certain to be to this request (isNewAppend).
//   - It reads the stream and compares the records in all fields (alreadyStored), if
//     the response may be to an earlier append or is a conflict. Equal records are a
//     success, different ones a Conflict.
//   - It returns a permanent error, which a repeated request would not change.
//   - It waits and sends the same request again.
//
// As long as no request may have been stored, the retry timeout ends the append.
// Afterwards only the stream, a permanent error or the end of the context does.
type appendOp struct {
	store   *Store
	stream  events.Stream
	after   events.Revision
	records []events.Record
	events  []esdb.EventData
	// knownEnd is the end of the log that the store knew before the first request.
	// New records are behind it.
	knownEnd events.Position
	// endKnown is set if knownEnd is valid.
	endKnown bool
	// concurrent counts the appends of this store to the same stream.
	concurrent *streamAppends
	// mayBeStored is set when a request was sent whose result is unknown.
	mayBeStored bool
	// silentEnds is the number of consecutive requests that the server ended without a
	// status.
	silentEnds int
	// silentSince is the time of the first of these requests.
	silentSince time.Time
}

// run sends the records until the result is certain, ctx ends or an error is permanent.
// If a response may be to an earlier append of the same records, run reads the stream.
// run returns nil, a Conflict, a permanent error, or the cause of ctx with the last
// error.
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
		if a.mayBeStored || a.silentEnds > 0 { // classify limits the tries that end without a status
			timeout = 0
		}
		if err := p.wait(ctx, err, timeout); err != nil {
			return err
		}
	}
}

// maxSilentEnds is the number of consecutive requests that the server may end without a
// status. After more such requests, and after the retry timeout, the append ends: the
// client hides the reason, which can be a broken connection or an append that the
// server never accepts.
const maxSilentEnds = 3

// classify returns the class of the result of one request and, for a permanent class,
// the error that ends the append. A response without an error has the class retryable,
// since the caller must read the stream to find out whether the records are stored.
// classify also counts the requests that the server ended without a status.
func (a *appendOp) classify(response *esdb.WriteResult, err error) (errorClass, error) {
	if err == nil {
		return retryable, nil
	}
	class, judged := classify(err)
	if errors.Is(err, io.EOF) && class == retryable {
		if a.silentEnds++; a.silentEnds == 1 {
			a.silentSince = time.Now()
		} else if a.silentEnds > maxSilentEnds && time.Since(a.silentSince) > a.store.retryTimeout {
			return permanent, fmt.Errorf("%w: it ended the append without a reason: append fewer records at once", ErrRefused)
		}
	} else {
		a.silentEnds = 0
	}
	return class, judged
}

// isNewAppend reports whether the server certainly added the records for this request.
// A server that already has the event IDs at these revisions returns the old positions
// without comparing the data, and the client reports success for response messages that
// it does not know. isNewAppend therefore returns true only under these conditions:
//
//   - The revision is the expected one.
//   - The position is behind the known end of the log.
//   - No earlier request of this append may have been stored.
//   - No other append of this store to the stream may have run at the same time.
//
// If isNewAppend returns false, the caller reads the stream.
func (a *appendOp) isNewAppend(response *esdb.WriteResult) bool {
	end := uint64(a.after) + uint64(len(a.records)) - 1
	position := events.NewPosition(response.CommitPosition, response.PreparePosition)
	return response.NextExpectedVersion == end && a.endKnown && position.Compare(a.knownEnd) > 0 && !a.mayBeStored && !a.store.inFlight.overlapped(a.concurrent)
}

// alreadyStored reports whether the stream has the records, equal in all fields,
// directly after the length a.after. It reads at most as many entries as the append has
// records.
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

// The client begins its error text with notBegunPrefix if it could not open the call,
// and with notSentPrefix if the server ended the call before the client had sent all
// records. The server stores no record in either case. Tests check these texts for the
// pinned version of the client.
const (
	notBegunPrefix = "could not construct append operation"
	notSentPrefix  = "could not send append request"
)

// notTaken reports whether err proves that no leader received all of the records. The
// retry timeout can then still end the append.
func notTaken(err error) bool {
	if clientErr, ok := errors.AsType[*esdb.Error](err); ok && clientErr.Code() == esdb.ErrorCodeNotLeader {
		return true
	}
	text := err.Error()
	return errors.Is(err, errNoNode) || status.Code(err) == codes.NotFound || strings.HasPrefix(text, notBegunPrefix) || strings.HasPrefix(text, notSentPrefix)
}

// sendOnce sends the records in one request, on a goroutine of the worker pool, and
// returns the response of the server. If ctx ends first, it returns the cause of ctx at
// once, and the request goes on until the client ends it. sendOnce sets mayBeStored if
// the result of a finished request is unknown.
func (a *appendOp) sendOnce(ctx context.Context) (*esdb.WriteResult, error) {
	expected := esdb.ExpectedRevision(esdb.NoStream{})
	if a.after > 0 {
		expected = esdb.Revision(uint64(a.after) - 1)
	}
	// A result is the report of the worker. called is false if no client was
	// acquired, so no request was sent.
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

// inFlightAppends counts the appends of the store that are in progress, by stream. Its
// mutex guards the map and the fields of every streamAppends in the map.
type inFlightAppends struct {
	sync.Mutex
	streams map[events.Stream]*streamAppends
}

// A streamAppends counts overlapping appends to one stream. The last append to end
// removes it from the map.
type streamAppends struct {
	// n is the number of appends in progress.
	n int
	// overlapped is set when a second append begins while another is in progress, and
	// stays set while n is above 0. An append that overlapped no other may therefore
	// find it set; such an append reads the stream once more than necessary.
	overlapped bool
}

// add counts an append to stream s and returns the counter of the stream. At the end of
// the append the caller calls the method remove.
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

// overlapped reports whether two appends to one stream have been in progress at the
// same time. The argument is the counter that the method add returned for the stream.
func (w *inFlightAppends) overlapped(all *streamAppends) bool {
	w.Lock()
	defer w.Unlock()
	return all.overlapped
}

// remove stops counting an append to stream s. The argument all is the counter that the
// method add returned for this append. After the last append, remove deletes the
// counter from the map.
func (w *inFlightAppends) remove(s events.Stream, all *streamAppends) {
	w.Lock()
	defer w.Unlock()
	if all.n--; all.n == 0 {
		delete(w.streams, s)
	}
}
