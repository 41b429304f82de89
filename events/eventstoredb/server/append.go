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
)

// A writing is an append as a caller asks for it.
type writing struct {
	stream  events.Stream
	expect  expectation
	records []events.Record
	size    int
	foreign bool // one of the records is not the ledger's
}

// An expectation is what a caller says of the length of a stream.
type expectation struct {
	any, exists bool
	after       events.Revision // exactly, if it is neither any nor exists
}

// A proposal is an event in any of the requests that have one.
type proposal interface {
	GetId() *shared.UUID
	GetMetadata() map[string]string
	GetCustomMetadata() []byte
	GetData() []byte
}

// propose adds an event to a writing.
func (s *Server) propose(ctx context.Context, w *writing, p proposal) error {
	id, err := idOf(p.GetId())
	if err != nil {
		return err
	}
	system := p.GetMetadata()
	kind, ok := system[keyType]
	if !ok || system[keyContentType] == "" {
		return status.Error(codes.InvalidArgument, "append: an event needs the metadata type and content-type")
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
		if err := mayHold(ctx, w.stream, r.Data); err != nil {
			return err
		}
	}
	w.records = append(w.records, r)
	w.foreign = w.foreign || !own
	return nil
}

// mayWrite returns PERMISSION_DENIED if a caller may not do what it asks for.
func (s *Server) mayWrite(role Role, w writing) error {
	switch {
	case s.cfg.opened(w.stream) && role >= Writer:
		return nil
	case role < Ledger:
		return status.Errorf(codes.PermissionDenied, "append to %s: access denied: the stream is not opened to others, and the caller has the role %s", w.stream, role)
	case w.foreign || len(w.records) == 0:
		return status.Errorf(codes.PermissionDenied, "append to %s: access denied: the stream is not opened to others; what the ledger writes there has the member %s in its metadata", w.stream, mapping.LedgerKey)
	}
	return nil
}

// An outcome is how a writing ended: it is on record, or the stream had
// another length.
type outcome struct {
	conflict bool
	length   events.Revision // with the records; of a conflict, that the stream has
	position events.Position // of the last record
}

// write appends what a caller asks for.
func (s *Server) write(ctx context.Context, w writing) (outcome, error) {
	if len(w.records) == 0 {
		return s.look(ctx, w)
	}
	if w.expect.any || w.expect.exists {
		return s.writeAnywhere(ctx, w)
	}
	at, err := s.append(ctx, w, w.expect.after)
	if errors.Is(err, events.ErrConflict) {
		if done, err := s.repeated(ctx, w, w.expect.after); done || err != nil {
			return s.inPlace(ctx, w, w.expect.after, err)
		}
		return s.conflict(ctx, w)
	}
	return s.written(ctx, w, w.expect.after, at, err)
}

// A placing store tells where it puts what is appended, as Place of
// embedded.Store does.
type placing interface {
	Place(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) (events.Position, error)
}

// append appends behind a length, and returns the position of the last record.
// A store that does not tell it is asked.
func (s *Server) append(ctx context.Context, w writing, after events.Revision) (events.Position, error) {
	if store, ok := s.store.(placing); ok {
		return store.Place(ctx, w.stream, after, w.records...)
	}
	if err := s.store.Append(ctx, w.stream, after, w.records...); err != nil {
		return events.Position{}, err
	}
	return s.position(ctx, w, after)
}

// position returns the position of the last record of what was appended behind
// a length.
func (s *Server) position(ctx context.Context, w writing, after events.Revision) (events.Position, error) {
	last, err := s.entry(ctx, w.stream, after+events.Revision(len(w.records)))
	return last.Position, err
}

// inPlace returns the outcome of an append that was made before, unless finding
// that out ended with an error.
func (s *Server) inPlace(ctx context.Context, w writing, after events.Revision, err error) (outcome, error) {
	var at events.Position
	if err == nil {
		at, err = s.position(ctx, w, after)
	}
	return s.written(ctx, w, after, at, err)
}

// look answers an append of nothing, which asks whether the stream is as
// expected.
func (s *Server) look(ctx context.Context, w writing) (outcome, error) {
	length, err := s.length(ctx, w.stream)
	if err != nil {
		return outcome{}, statusOf(err)
	}
	met := w.expect.any || w.expect.exists && length > 0 || !w.expect.exists && length == w.expect.after
	return outcome{conflict: !met, length: length}, nil
}

// writeAnywhere appends at the end, wherever it is, unless the stream has the
// records already. It looks for their IDs up to a length and appends behind just
// that: what others append meanwhile is a conflict, and it looks again. So an ID
// that several callers append at once is written once.
func (s *Server) writeAnywhere(ctx context.Context, w writing) (outcome, error) {
	held, err := s.ids.acquire(ctx, w.stream)
	if err != nil {
		return outcome{}, statusOf(err)
	}
	defer held.release()
	for tried := false; ; tried = true {
		grown, err := held.update(ctx, s.store)
		if err == nil && tried && !grown {
			err = status.Errorf(codes.Aborted, "append to %s: the stream has another length than it shows; try again", w.stream)
		}
		if err != nil {
			return outcome{}, statusOf(err)
		}
		found, err := held.find(ctx, s.store, w.records)
		if err != nil {
			return outcome{}, statusOf(err)
		}
		if done, ok := w.before(found, held.length); ok {
			return done, nil
		}
		at, err := s.append(ctx, w, held.length)
		if !errors.Is(err, events.ErrConflict) {
			return s.written(ctx, w, held.length, at, err)
		}
	}
}

// before returns the outcome of an append that need not be tried, of a stream
// with a length and some of the records. Where all are there it is a repeat, and
// its outcome is that of the last of them. Where some are there it is a conflict:
// to append them would write those twice, and the others alone are not what the
// caller asks for.
func (w writing) before(found map[domain.EventID]events.Header, length events.Revision) (outcome, bool) {
	if w.expect.exists && length == 0 {
		return outcome{conflict: true}, true
	}
	if len(found) == 0 {
		return outcome{}, false
	}
	for _, r := range w.records {
		if _, ok := found[r.ID]; !ok {
			return outcome{conflict: true, length: length}, true
		}
	}
	last := found[w.records[len(w.records)-1].ID]
	return outcome{length: last.Revision, position: last.Position}, true
}

// written returns the outcome of an append that ended with an error, or with
// its last record at a position.
func (s *Server) written(ctx context.Context, w writing, after events.Revision, at events.Position, err error) (outcome, error) {
	if errors.Is(err, events.ErrTooLarge) {
		return outcome{}, tooLarge(ctx, s.cfg.MaxAppend, err.Error())
	}
	if err != nil {
		return outcome{}, openEnd(err)
	}
	return outcome{length: after + events.Revision(len(w.records)), position: at}, nil
}

func (s *Server) conflict(ctx context.Context, w writing) (outcome, error) {
	length, err := s.length(ctx, w.stream)
	return outcome{conflict: true, length: length}, statusOf(err)
}

// repeated reports whether the records are in the stream behind a length. The
// store has compared records of the ledger in all their fields. Those of
// others have the time of the server, and are the same if their IDs are.
func (s *Server) repeated(ctx context.Context, w writing, after events.Revision) (bool, error) {
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

// Append reads an append of one stream, and answers it.
func (s *streamsOf) Append(from streams.Streams_AppendServer) error {
	ctx := from.Context()
	role, err := s.admit(ctx, Reader)
	if err != nil {
		return err
	}
	first, err := from.Recv()
	if err != nil && !errors.Is(err, io.EOF) { // of which the options are told to lack
		return statusOf(err)
	}
	o := first.GetOptions()
	if o == nil {
		return status.Error(codes.InvalidArgument, "append: options are required before events")
	}
	w := writing{}
	if w.stream, err = streamOf(o.GetStreamIdentifier()); err != nil {
		return err
	}
	if w.expect, err = expectationOf(o); err != nil {
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
			return status.Error(codes.InvalidArgument, "append: an event is required behind the options")
		}
		if err := s.propose(ctx, &w, m.GetProposedMessage()); err != nil {
			return err
		}
	}
	if err := s.mayWrite(role, w); err != nil {
		except(ctx, "access-denied")
		return err
	}
	done, err := s.write(ctx, w)
	if err != nil {
		return err
	}
	return from.SendAndClose(appended(w, done))
}

func expectationOf(o *streams.AppendReq_Options) (expectation, error) {
	switch x := o.ExpectedStreamRevision.(type) {
	case *streams.AppendReq_Options_Revision:
		after, err := lengthOf(x.Revision)
		return expectation{after: after}, err
	case *streams.AppendReq_Options_NoStream:
		return expectation{}, nil
	case *streams.AppendReq_Options_Any:
		return expectation{any: true}, nil
	case *streams.AppendReq_Options_StreamExists:
		return expectation{exists: true}, nil
	}
	return expectation{}, status.Error(codes.InvalidArgument, "append: an expected revision is required")
}

// appended returns the reply to an append.
func appended(w writing, done outcome) *streams.AppendResp {
	if done.conflict {
		return &streams.AppendResp{Result: &streams.AppendResp_WrongExpectedVersion_{WrongExpectedVersion: wrongVersion(w.expect, done.length)}}
	}
	success := &streams.AppendResp_Success{
		CurrentRevisionOption: &streams.AppendResp_Success_CurrentRevision{CurrentRevision: uint64(done.length) - 1},
		PositionOption:        &streams.AppendResp_Success_NoPosition{NoPosition: none},
	}
	if done.length == 0 {
		success.CurrentRevisionOption = &streams.AppendResp_Success_NoStream{NoStream: none}
	}
	if !done.position.IsZero() {
		commit, prepare := done.position.Parts()
		success.PositionOption = &streams.AppendResp_Success_Position{
			Position: &streams.AppendResp_Position{CommitPosition: commit, PreparePosition: prepare},
		}
	}
	return &streams.AppendResp{Result: &streams.AppendResp_Success_{Success: success}}
}

// wrongVersion says what was expected and what is, in the fields of old and of
// newer clients.
func wrongVersion(x expectation, length events.Revision) *streams.AppendResp_WrongExpectedVersion {
	m := &streams.AppendResp_WrongExpectedVersion{}
	if length == 0 {
		m.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentNoStream{CurrentNoStream: none}
		m.CurrentRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_NoStream_20_6_0{NoStream_20_6_0: none}
	} else {
		m.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: uint64(length) - 1}
		m.CurrentRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_CurrentRevision_20_6_0{CurrentRevision_20_6_0: uint64(length) - 1}
	}
	switch {
	case x.any:
		m.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedAny{ExpectedAny: none}
		m.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_Any_20_6_0{Any_20_6_0: none}
	case x.exists:
		m.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedStreamExists{ExpectedStreamExists: none}
		m.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_StreamExists_20_6_0{StreamExists_20_6_0: none}
	case x.after == 0:
		m.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: none}
	default:
		m.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision{ExpectedRevision: uint64(x.after) - 1}
		m.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision_20_6_0{ExpectedRevision_20_6_0: uint64(x.after) - 1}
	}
	return m
}
