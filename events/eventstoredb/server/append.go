package server

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/mapping"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// A clientAppend is a decoded append request in either form of the protocol:
// Append, which has one append per call, or BatchAppend, which has many. Its
// events are already converted to records.
//
// Both forms take the same path: addEvent converts and bounds each event,
// authorizeAppend compares the role with the stream, and write makes the append
// and recognises a repeat. A repeat is an append that an earlier call already
// made, for example because the client did not receive the response.
type clientAppend struct {
	stream  events.Stream
	expect  expectedRevision
	records []events.Record
	// size is the sum of mapping.RawEvent.Size over the events, in bytes.
	// Config.MaxAppend bounds it.
	size int
	// foreign is set if at least one record comes from a foreign event, which
	// another client than the ledger appended. Such a record has the server's
	// time, so a repeat of the append has other times than the stored records.
	foreign bool
}

// An expectedRevision is a caller's condition on the length of a stream. At
// most one of the fields any and exists is set.
type expectedRevision struct {
	// any accepts every length; exists accepts every length but 0.
	any, exists bool
	// after is the exact length if neither any nor exists is set. The length 0 is
	// the protocol's NoStream.
	after events.Revision
}

// A proposedEvent is an event in an append request. The generated types of Append
// and BatchAppend implement it.
type proposedEvent interface {
	GetId() *shared.UUID
	GetMetadata() map[string]string
	GetCustomMetadata() []byte
	GetData() []byte
}

// addEvent converts an event to a record and adds the record to the append w.
// It dates a foreign event with the server's clock. It returns INVALID_ARGUMENT
// for an invalid event or an append over Config.MaxAppend, and
// PERMISSION_DENIED for stream metadata that the server refuses. After an error
// w is incomplete, and the caller must not write it.
func (s *Server) addEvent(ctx context.Context, w *clientAppend, p proposedEvent) error {
	id, err := parseUUID(p.GetId())
	if err != nil {
		return err
	}
	system := p.GetMetadata()
	kind, ok := system[keyType]
	if !ok || system[keyContentType] == "" {
		return status.Error(codes.InvalidArgument, "append: an event requires the metadata type and content-type")
	}
	f := mapping.RawEvent{ID: id, Type: kind, Data: p.GetData(), Metadata: p.GetCustomMetadata(), Created: s.cfg.Now(), ContentType: system[keyContentType]}
	w.size += f.Size()
	if w.size > s.cfg.MaxAppend {
		return tooLarge(ctx, s.cfg.MaxAppend, fmt.Sprintf("append to %s: %v: %d bytes, the limit is %d", w.stream, errTooLarge, w.size, s.cfg.MaxAppend))
	}
	r, own, err := f.Record()
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "append to %s: %v", w.stream, err)
	}
	if !own {
		if err := checkMetadata(ctx, w.stream, r.Data); err != nil {
			return err
		}
	}
	w.records = append(w.records, r)
	w.foreign = w.foreign || !own
	return nil
}

// authorizeAppend returns PERMISSION_DENIED if a role may not make an append. A
// stream that Config.Writable opens accepts every record from the role Writer on.
// Every other stream accepts only ledger records, at least one, from the role
// Ledger.
func (s *Server) authorizeAppend(role auth.Role, w clientAppend) error {
	switch {
	case s.cfg.writableByOthers(w.stream) && role >= auth.Writer:
		return nil
	case role < auth.Ledger:
		return status.Errorf(codes.PermissionDenied, "append to %s: access denied: the stream is not writable for the role %s", w.stream, role)
	case w.foreign || len(w.records) == 0:
		return status.Errorf(codes.PermissionDenied, "append to %s: access denied: the stream takes only ledger records, which have the member %s in their metadata", w.stream, mapping.LedgerKey)
	}
	return nil
}

// An appendResult is the result of an append that did not fail: success, or a
// conflict with the expected revision.
type appendResult struct {
	conflict bool
	// length is the length of the stream: after a successful append, or, for a
	// conflict, when the conflict was found.
	length events.Revision
	// position is the position of the last record. It is zero for a conflict and
	// for an append without records.
	position events.Position
}

// write makes an authorized append. If the stream already has all records of
// the append, write adds no event and returns the result of the first append.
// The error is a gRPC status; ABORTED means that the records may have been
// written.
//
// With an exact expected revision, the store itself compares the length and
// recognises repeated ledger records. If the store reports a conflict, write
// looks for the IDs of foreign events directly after that revision. Without an
// exact revision, appendAtEnd looks for the IDs in the whole stream.
func (s *Server) write(ctx context.Context, w clientAppend) (appendResult, error) {
	if len(w.records) == 0 {
		return s.checkExpected(ctx, w)
	}
	if w.expect.any || w.expect.exists {
		return s.appendAtEnd(ctx, w)
	}
	at, err := s.append(ctx, w, w.expect.after)
	if errors.Is(err, events.ErrConflict) {
		if done, err := s.isRepeat(ctx, w, w.expect.after); done || err != nil {
			return s.repeatResult(ctx, w, w.expect.after, err)
		}
		return s.conflict(ctx, w)
	}
	return s.written(ctx, w, w.expect.after, at, err)
}

// A positionStore returns the position of the last record that it appended, as
// Place of embedded.Store does. It saves one read for each append.
type positionStore interface {
	Place(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) (events.Position, error)
}

// append appends the records of w after the length given by after, and returns
// the position of the last record. If the store is no positionStore, append
// reads the position back. An error of that read is returned although the
// records are written; the client then repeats the append.
func (s *Server) append(ctx context.Context, w clientAppend, after events.Revision) (events.Position, error) {
	if store, ok := s.store.(positionStore); ok {
		return store.Place(ctx, w.stream, after, w.records...)
	}
	if err := s.store.Append(ctx, w.stream, after, w.records...); err != nil {
		return events.Position{}, err
	}
	return s.position(ctx, w, after)
}

// position reads the position of the last record of the append w, whose records
// follow the length given by after. It returns the zero position if the stream
// is shorter.
func (s *Server) position(ctx context.Context, w clientAppend, after events.Revision) (events.Position, error) {
	last, err := s.entry(ctx, w.stream, after+events.Revision(len(w.records)))
	return last.Position, err
}

// repeatResult returns the result of a repeated append, whose records already
// follow the length given by after. If err, the error of the search for these
// records, is not nil, repeatResult returns the status of err instead.
func (s *Server) repeatResult(ctx context.Context, w clientAppend, after events.Revision, err error) (appendResult, error) {
	var at events.Position
	if err == nil {
		at, err = s.position(ctx, w, after)
	}
	return s.written(ctx, w, after, at, err)
}

// checkExpected executes an append without events. It compares the length of the
// stream with the expected revision and writes no record. The comparison holds
// for the moment of the read only.
func (s *Server) checkExpected(ctx context.Context, w clientAppend) (appendResult, error) {
	length, err := s.length(ctx, w.stream)
	if err != nil {
		return appendResult{}, statusOf(err)
	}
	met := w.expect.any || w.expect.exists && length > 0 || !w.expect.exists && length == w.expect.after
	return appendResult{conflict: !met, length: length}, nil
}

// appendAtEnd appends at the end of a stream, unless the stream already has the
// records. It first reads the IDs of all entries up to the end of the stream,
// looks for the IDs of the records among them, and appends after the last entry
// read. If another append comes first, the store reports a conflict, and
// appendAtEnd starts again. An ID that several callers append concurrently is
// therefore written once.
//
// Each further round must find new entries, since a conflict means that the
// stream has grown. If there are none, the length and the entries disagree, as
// in a damaged store. appendAtEnd then returns ABORTED instead of repeating
// without end.
func (s *Server) appendAtEnd(ctx context.Context, w clientAppend) (appendResult, error) {
	held, err := s.ids.acquire(ctx, w.stream)
	if err != nil {
		return appendResult{}, statusOf(err)
	}
	defer held.release()
	for tried := false; ; tried = true {
		grown, err := held.update(ctx, s.store)
		if err == nil && tried && !grown {
			err = status.Errorf(codes.Aborted, "append to %s: the length of the stream does not match its entries; try again", w.stream)
		}
		if err != nil {
			return appendResult{}, statusOf(err)
		}
		found, err := held.find(ctx, s.store, w.records)
		if err != nil {
			return appendResult{}, statusOf(err)
		}
		if done, ok := w.earlierResult(found, held.length); ok {
			return done, nil
		}
		at, err := s.append(ctx, w, held.length)
		if !errors.Is(err, events.ErrConflict) {
			return s.written(ctx, w, held.length, at, err)
		}
	}
}

// earlierResult returns the result of an append without an exact revision, and
// true, if the result is known before writing. found holds the records of the
// append that the stream already has.
//
//   - If the stream has all of them, the append is a repeat, and the result has
//     the position of the last one.
//   - If the stream has only some of them, the result is a conflict: to append
//     all would duplicate events, and to append only the others is not the
//     request.
//   - If the request expects StreamExists and the stream is empty, the result
//     is a conflict.
func (w clientAppend) earlierResult(found map[domain.EventID]events.Header, length events.Revision) (appendResult, bool) {
	if w.expect.exists && length == 0 {
		return appendResult{conflict: true}, true
	}
	if len(found) == 0 {
		return appendResult{}, false
	}
	for _, r := range w.records {
		if _, ok := found[r.ID]; !ok {
			return appendResult{conflict: true, length: length}, true
		}
	}
	last := found[w.records[len(w.records)-1].ID]
	return appendResult{length: last.Revision, position: last.Position}, true
}

// written returns the result of an append whose records follow the length given
// by after. at is the position of the last record. If err, the error of the
// append, is not nil, written returns a status for err instead.
func (s *Server) written(ctx context.Context, w clientAppend, after events.Revision, at events.Position, err error) (appendResult, error) {
	if errors.Is(err, events.ErrTooLarge) {
		return appendResult{}, tooLarge(ctx, s.cfg.MaxAppend, err.Error())
	}
	if err != nil {
		return appendResult{}, uncertainStatus(err)
	}
	return appendResult{length: after + events.Revision(len(w.records)), position: at}, nil
}

// conflict returns a conflict with the current length of the stream. The length
// may already differ from the one that caused the conflict.
func (s *Server) conflict(ctx context.Context, w clientAppend) (appendResult, error) {
	length, err := s.length(ctx, w.stream)
	return appendResult{conflict: true, length: length}, statusOf(err)
}

// isRepeat reports whether the stream has the records of the append w directly
// after the length given by after. It compares the IDs, because a repeated
// foreign event has another time: the server dates it. If w has ledger records
// only, isRepeat returns false, since the store itself recognises a repeat of
// them. It reads at most as many entries as the append has records.
func (s *Server) isRepeat(ctx context.Context, w clientAppend, after events.Revision) (bool, error) {
	if !w.foreign {
		return false, nil
	}
	n := 0
	for e, err := range s.store.Read(ctx, w.stream, after) {
		if err != nil {
			return false, err
		}
		if e.ID != w.records[n].ID {
			return false, nil
		}
		if n++; n == len(w.records) {
			return true, nil
		}
	}
	return false, nil
}

// Append implements Streams.Append: it receives the options and then the events
// of one append, and makes the append when the client closes its side. Either all
// events are appended or no event. A conflict is a response, as in EventStoreDB,
// and not a status.
func (s *streamsService) Append(from streams.Streams_AppendServer) error {
	ctx := from.Context()
	role, err := s.requireRole(ctx, auth.Reader)
	if err != nil {
		return err
	}
	first, err := from.Recv()
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the options are missing
		return statusOf(err)
	}
	o := first.GetOptions()
	if o == nil {
		return status.Error(codes.InvalidArgument, "append: options are required before events")
	}
	w := clientAppend{}
	if w.stream, err = parseStream(o.GetStreamIdentifier()); err != nil {
		return err
	}
	if w.expect, err = parseExpectedRevision(o); err != nil {
		return err
	}
	for {
		m, err := from.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return statusOf(err)
		}
		if m.GetProposedMessage() == nil {
			return status.Error(codes.InvalidArgument, "append: an event is required after the options")
		}
		if err := s.addEvent(ctx, &w, m.GetProposedMessage()); err != nil {
			return err
		}
	}
	if err := s.authorizeAppend(role, w); err != nil {
		setException(ctx, "access-denied")
		return err
	}
	done, err := s.write(ctx, w)
	if err != nil {
		return err
	}
	return from.SendAndClose(appendResponse(w, done))
}

// parseExpectedRevision returns the condition in the options of an append, or
// INVALID_ARGUMENT if the client sent no condition.
func parseExpectedRevision(o *streams.AppendReq_Options) (expectedRevision, error) {
	switch x := o.ExpectedStreamRevision.(type) {
	case *streams.AppendReq_Options_Revision:
		after, err := parseRevision(x.Revision)
		return expectedRevision{after: after}, err
	case *streams.AppendReq_Options_NoStream:
		return expectedRevision{}, nil
	case *streams.AppendReq_Options_Any:
		return expectedRevision{any: true}, nil
	case *streams.AppendReq_Options_StreamExists:
		return expectedRevision{exists: true}, nil
	}
	return expectedRevision{}, status.Error(codes.InvalidArgument, "append: an expected revision is required")
}

// appendResponse encodes the result of an append. Revisions on the wire begin at
// 0, so the last revision is the length minus 1, and a stream without entries has
// NoStream in its place.
func appendResponse(w clientAppend, done appendResult) *streams.AppendResp {
	if done.conflict {
		return &streams.AppendResp{Result: &streams.AppendResp_WrongExpectedVersion_{WrongExpectedVersion: wrongVersion(w.expect, done.length)}}
	}
	success := &streams.AppendResp_Success{
		CurrentRevisionOption: &streams.AppendResp_Success_CurrentRevision{CurrentRevision: uint64(done.length) - 1},
		PositionOption:        &streams.AppendResp_Success_NoPosition{NoPosition: emptyMessage},
	}
	if done.length == 0 {
		success.CurrentRevisionOption = &streams.AppendResp_Success_NoStream{NoStream: emptyMessage}
	}
	if !done.position.IsZero() {
		commit, prepare := done.position.Parts()
		success.PositionOption = &streams.AppendResp_Success_Position{
			Position: &streams.AppendResp_Position{CommitPosition: commit, PreparePosition: prepare},
		}
	}
	return &streams.AppendResp{Result: &streams.AppendResp_Success_{Success: success}}
}

// wrongVersion encodes a conflict: the expected and the current revision, in the
// fields of current clients and also in the fields of clients for version 20.6.0.
func wrongVersion(x expectedRevision, length events.Revision) *streams.AppendResp_WrongExpectedVersion {
	m := &streams.AppendResp_WrongExpectedVersion{}
	if length == 0 {
		m.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentNoStream{CurrentNoStream: emptyMessage}
		m.CurrentRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_NoStream_20_6_0{NoStream_20_6_0: emptyMessage}
	} else {
		m.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: uint64(length) - 1}
		m.CurrentRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_CurrentRevision_20_6_0{CurrentRevision_20_6_0: uint64(length) - 1}
	}
	switch {
	case x.any:
		m.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedAny{ExpectedAny: emptyMessage}
		m.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_Any_20_6_0{Any_20_6_0: emptyMessage}
	case x.exists:
		m.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedStreamExists{ExpectedStreamExists: emptyMessage}
		m.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_StreamExists_20_6_0{StreamExists_20_6_0: emptyMessage}
	case x.after == 0:
		m.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: emptyMessage}
	default:
		m.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision{ExpectedRevision: uint64(x.after) - 1}
		m.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision_20_6_0{ExpectedRevision_20_6_0: uint64(x.after) - 1}
	}
	return m
}
