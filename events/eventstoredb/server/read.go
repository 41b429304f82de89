package server

import (
	"context"
	"iter"
	"math"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// streamsService implements the gRPC service Streams.
type streamsService struct {
	streams.UnimplementedStreamsServer
	*Server
}

// Read implements Streams.Read: it serves a bounded read or a subscription, on
// the goroutine of the handler. A client that receives slowly blocks Send and
// therefore the read.
func (s *streamsService) Read(req *streams.ReadReq, to streams.Streams_ReadServer) error {
	if _, err := s.requireRole(to.Context(), auth.Reader); err != nil {
		return err
	}
	q, err := parseReadRequest(req.GetOptions())
	if err != nil {
		return err
	}
	if q.live {
		return statusOf(s.subscribe(q, to))
	}
	return statusOf(s.read(q, to))
}

// read sends the events of a bounded read, and then the message that ends it. The
// count applies to the events that match the filter. A read that reaches its
// count ends without a further message, as in EventStoreDB.
func (s *Server) read(q readRequest, to streams.Streams_ReadServer) error {
	ctx := to.Context()
	if q.stream == "" && q.backward {
		if err := s.checkPosition(ctx, q.from); err != nil {
			return err
		}
	}
	sent, last := uint64(0), events.Revision(0)
	if q.count > 0 {
		for e, err := range s.entries(ctx, q) {
			if err != nil {
				return err
			}
			if !q.filter.matches(e.Header()) {
				continue
			}
			m, err := s.message(ctx, &q, e)
			if err != nil {
				return err
			}
			if err := to.Send(m); err != nil {
				return err
			}
			last = e.Revision
			if sent++; sent == q.count {
				return nil
			}
		}
	}
	if sent > 0 {
		return s.sendLastPosition(q, last, to)
	}
	return s.sendEmptyResult(ctx, q, to)
}

// sendLastPosition sends the last revision of a stream that was read forwards to
// its end. It sends no message to a client that did not announce support for it,
// since the Go client terminates its process on an unknown message.
func (s *Server) sendLastPosition(q readRequest, last events.Revision, to streams.Streams_ReadServer) error {
	if !q.wantsLastPosition || q.stream == "" || q.backward {
		return nil
	}
	return to.Send(&streams.ReadResp{Content: &streams.ReadResp_LastStreamPosition{LastStreamPosition: uint64(last) - 1}})
}

// sendEmptyResult ends a read that sent no event: with the message StreamNotFound
// for a stream without entries, with INVALID_ARGUMENT for a position after the
// end of the log, and otherwise as sendLastPosition does. A read with count 0 of
// an existing stream sends no message.
func (s *Server) sendEmptyResult(ctx context.Context, q readRequest, to streams.Streams_ReadServer) error {
	if q.stream == "" {
		return s.checkPosition(ctx, q.from)
	}
	length, err := s.length(ctx, q.stream)
	switch {
	case err != nil, length > 0 && q.count == 0:
		return err
	case length > 0:
		return s.sendLastPosition(q, length, to)
	}
	return to.Send(&streams.ReadResp{Content: &streams.ReadResp_StreamNotFound_{
		StreamNotFound: &streams.ReadResp_StreamNotFound{StreamIdentifier: streamIdentifier(q.stream)},
	}})
}

// checkPosition returns INVALID_ARGUMENT for a position after the end of the log.
// Such a position belongs to another store, or to a store that was restored from
// an older copy; a subscription from there would silently skip entries.
func (s *Server) checkPosition(ctx context.Context, from startPoint) error {
	if from.start || from.end || from.position.IsZero() {
		return nil
	}
	head, err := s.head(ctx)
	if err == nil && from.position.Compare(head) > 0 {
		err = status.Errorf(codes.InvalidArgument, "read from position %s: the log ends at %s", from.position, head)
	}
	return err
}

// entries yields the entries of a read in its order, forwards or backwards,
// including the entry at the start point. It ignores count, and may yield entries
// that the filter does not match, since a store applies only the part of the
// filter that pushdown returns.
func (s *Server) entries(ctx context.Context, q readRequest) iter.Seq2[events.Entry, error] {
	switch {
	case q.stream != "" && q.backward:
		return s.streamBackward(ctx, q)
	case q.stream != "" && q.from.end:
		return noEntries
	case q.stream != "":
		return s.store.Read(ctx, q.stream, events.Revision(q.from.revision))
	case q.backward && q.from.end:
		return events.Scan(ctx, s.store, events.Query{Backward: true, Filter: q.filter.pushdown()})
	case q.backward && (q.from.start || q.from.position.IsZero()), q.from.end:
		return noEntries
	case q.backward:
		return events.Scan(ctx, s.store, events.Query{Backward: true, After: q.from.position, Filter: q.filter.pushdown()})
	}
	return s.at(ctx, q)
}

// noEntries is an empty sequence of entries.
func noEntries(func(events.Entry, error) bool) {}

// at yields the entries of the log forwards from the position of the request
// on, including the entry at that position.
func (s *Server) at(ctx context.Context, q readRequest) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for e, err := range events.Scan(ctx, s.store, events.Query{After: justBefore(q.from.position), Filter: q.filter.pushdown()}) {
			if err == nil && e.Position.Compare(q.from.position) < 0 {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// justBefore returns the largest position whose commit part is smaller than
// that of p. A read of the protocol begins at a position, and a scan of the
// store begins after one. For a read at p, the server therefore scans after
// justBefore(p). The scan may also yield entries before p, with the same commit
// part and a smaller prepare part; the caller skips them.
func justBefore(p events.Position) events.Position {
	commit, _ := p.Parts()
	if commit == 0 {
		return events.Position{}
	}
	return events.NewPosition(commit-1, math.MaxUint64)
}

// streamBackward yields the entries of a stream backwards from a revision on,
// including the revision. It reads the following entry first, because a backward
// scan begins before a position. If that entry does not exist, it begins at the
// end of the stream.
func (s *Server) streamBackward(ctx context.Context, q readRequest) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		query := events.Query{Stream: q.stream, Backward: true}
		if !q.from.end && q.from.revision < math.MaxUint64 {
			next, err := s.entry(ctx, q.stream, events.Revision(q.from.revision)+2)
			if err != nil {
				yield(events.Entry{}, err)
				return
			}
			query.After = next.Position
		}
		events.Scan(ctx, s.store, query)(yield)
	}
}

// entry returns the entry of a stream with the given revision, or the zero
// Entry if the stream is shorter.
func (s *Server) entry(ctx context.Context, stream events.Stream, revision events.Revision) (events.Entry, error) {
	for e, err := range s.store.Read(ctx, stream, revision-1) {
		return e, err
	}
	return events.Entry{}, nil
}

// length returns the length of a stream, and 0 for a stream without entries. It
// reads one header.
func (s *Server) length(ctx context.Context, stream events.Stream) (events.Revision, error) {
	for h, err := range events.Headers(ctx, s.store, events.Query{Stream: stream, Backward: true}) {
		return h.Revision, err
	}
	return 0, nil
}

// A headStore returns the position of its last record from memory, as
// embedded.Store does.
type headStore interface{ Head() events.Position }

// head returns the position of the last record of the log, and the zero position
// if the log is empty. It reads one header if the store is no headStore.
func (s *Server) head(ctx context.Context) (events.Position, error) {
	if store, ok := s.store.(headStore); ok {
		return store.Head(), nil
	}
	for h, err := range events.Headers(ctx, s.store, events.Query{Backward: true}) {
		return h.Position, err
	}
	return events.Position{}, nil
}
