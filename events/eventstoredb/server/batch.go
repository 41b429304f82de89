package server

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	wire "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/settlement-ledger/ledger/events"
)

// The bounds of what one caller of BatchAppend has open.
const (
	openAppends = 64 // appends that run at once
	openBytes   = 4  // times the limit of one append, of batches that are not complete
)

// nothingThere is the empty message of the types that Google's are.
var emptyPB = &emptypb.Empty{}

// A pendingAppend is an append whose events come in several messages.
type pendingAppend struct {
	appendRequest
	options  *streams.BatchAppendReq_Options
	deadline time.Time // zero: none
	err      error     // of reading it, told when it is complete
}

// batchCall are the appends of one call. Those of one stream are made in the
// order in which they were completed, those of different streams at once.
type batchCall struct {
	*streamsService
	ctx     context.Context
	role    Role
	to      streams.Streams_BatchAppendServer
	open    map[[16]byte]*pendingAppend // by correlation, not complete yet
	size    int                         // of open
	slots   chan struct{}
	running sync.WaitGroup
	sending sync.Mutex
	mu      struct {
		sync.Mutex
		last map[events.Stream]chan struct{} // closed when the append that came last has ended
	}
}

// BatchAppend reads appends until the caller ends or the server shuts down, and
// answers each by its correlation.
func (s *streamsService) BatchAppend(to streams.Streams_BatchAppendServer) error {
	role, err := s.requireRole(to.Context(), Reader)
	if err != nil {
		return err
	}
	b := &batchCall{
		streamsService: s, ctx: to.Context(), role: role, to: to,
		open: map[[16]byte]*pendingAppend{}, slots: make(chan struct{}, openAppends),
	}
	b.mu.last = map[events.Stream]chan struct{}{}
	defer b.running.Wait()
	received := receive(to.Recv, to.Context())
	for {
		select {
		case <-s.draining.Done():
			return statusOf(context.Cause(s.draining))
		case m := <-received:
			if errors.Is(m.err, io.EOF) {
				return nil
			}
			if m.err != nil {
				return statusOf(m.err)
			}
			if err := b.take(m.value); err != nil {
				return err
			}
		}
	}
}

// A recvResult is what a caller sent, or why there is no more.
type recvResult[T any] struct {
	value T
	err   error
}

// receive returns what a caller sends. The goroutine ends with an error, at the
// latest when the call does.
func receive[T any](recv func() (T, error), ctx context.Context) <-chan recvResult[T] {
	c := make(chan recvResult[T])
	go func() {
		for {
			value, err := recv()
			select {
			case c <- recvResult[T]{value, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return c
}

// receive adds a message to its batch. What is wrong with a batch is told when it
// is complete, and ends no other.
func (b *batchCall) take(m *streams.BatchAppendReq) error {
	id, err := parseUUID(m.GetCorrelationId())
	if err != nil {
		return err
	}
	batch, ok := b.open[id]
	if !ok {
		batch = &pendingAppend{}
		b.open[id] = batch
		batch.err = batch.parseOptions(m.GetOptions(), b.cfg.Now())
	}
	before := batch.size
	for _, p := range m.ProposedMessages {
		if batch.err == nil {
			batch.err = b.addEvent(b.ctx, &batch.appendRequest, p)
		}
	}
	if batch.err != nil {
		batch.records, batch.size = nil, 0
	}
	if b.size += batch.size - before; b.size > openBytes*b.cfg.MaxAppend || len(b.open) > openBytes*openAppends {
		return status.Errorf(codes.ResourceExhausted, "batch append: %d batches of %d bytes are not complete", len(b.open), b.size)
	}
	if m.IsFinal {
		delete(b.open, id)
		b.size -= batch.size
		b.run(m.CorrelationId, batch)
	}
	return nil
}

// parseOptions reads the options of a batch, which its first message has.
func (batch *pendingAppend) parseOptions(o *streams.BatchAppendReq_Options, now time.Time) (err error) {
	if o == nil {
		return status.Error(codes.InvalidArgument, "batch append: options are required in the first message of a batch")
	}
	batch.options = o
	if batch.stream, err = parseStream(o.StreamIdentifier); err != nil {
		return err
	}
	switch x := o.ExpectedStreamPosition.(type) {
	case *streams.BatchAppendReq_Options_StreamPosition:
		if batch.expect.after, err = parseRevision(x.StreamPosition); err != nil {
			return err
		}
	case *streams.BatchAppendReq_Options_NoStream:
	case *streams.BatchAppendReq_Options_Any:
		batch.expect.any = true
	case *streams.BatchAppendReq_Options_StreamExists:
		batch.expect.exists = true
	default:
		return status.Error(codes.InvalidArgument, "batch append: an expected stream position is required")
	}
	switch d := o.DeadlineOption.(type) {
	case *streams.BatchAppendReq_Options_Deadline:
		batch.deadline = now.Add(d.Deadline.AsDuration())
	case *streams.BatchAppendReq_Options_Deadline_21_10_0:
		batch.deadline = d.Deadline_21_10_0.AsTime()
	}
	return nil
}

// run makes an append behind the one before it of its stream, and answers.
func (b *batchCall) run(id *shared.UUID, batch *pendingAppend) {
	b.slots <- struct{}{}
	ended := make(chan struct{})
	b.mu.Lock()
	before := b.mu.last[batch.stream]
	b.mu.last[batch.stream] = ended
	b.mu.Unlock()
	b.running.Go(func() {
		defer func() { <-b.slots }()
		if before != nil {
			<-before
		}
		reply := b.reply(batch)
		reply.CorrelationId = id
		b.send(reply)
		b.mu.Lock()
		if b.mu.last[batch.stream] == ended {
			delete(b.mu.last, batch.stream)
		}
		b.mu.Unlock()
		close(ended)
	})
}

// send sends a reply. An error is the end of the call, which the loop that
// receives is told of.
func (b *batchCall) send(reply *streams.BatchAppendResp) {
	b.sending.Lock()
	defer b.sending.Unlock()
	_ = b.to.Send(reply)
}

// reply makes an append and returns the reply to it.
func (b *batchCall) reply(batch *pendingAppend) *streams.BatchAppendResp {
	reply := batch.echo()
	done, err := appendResult{}, batch.err
	if err == nil {
		err = b.authorizeAppend(b.role, batch.appendRequest)
	}
	if err == nil {
		done, err = b.writeUntil(batch)
	}
	switch {
	case err != nil:
		reply.Result = &streams.BatchAppendResp_Error{Error: b.failureStatus(err)}
	case done.conflict:
		reply.Result = &streams.BatchAppendResp_Error{Error: statusWithDetail(codes.AlreadyExists, "WrongExpectedVersion", wrongPosition(batch.expect, done.length))}
	default:
		reply.Result = &streams.BatchAppendResp_Success_{Success: batchSuccess(done)}
	}
	return reply
}

func (b *batchCall) writeUntil(batch *pendingAppend) (appendResult, error) {
	ctx := b.ctx
	if !batch.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, batch.deadline.Sub(b.cfg.Now()))
		defer cancel()
	}
	return b.write(ctx, batch.appendRequest)
}

// echo returns a reply with what the caller said of the stream.
func (batch *pendingAppend) echo() *streams.BatchAppendResp {
	reply := &streams.BatchAppendResp{StreamIdentifier: batch.options.GetStreamIdentifier()}
	switch x := batch.options.GetExpectedStreamPosition().(type) {
	case *streams.BatchAppendReq_Options_StreamPosition:
		reply.ExpectedStreamPosition = &streams.BatchAppendResp_StreamPosition{StreamPosition: x.StreamPosition}
	case *streams.BatchAppendReq_Options_NoStream:
		reply.ExpectedStreamPosition = &streams.BatchAppendResp_NoStream{NoStream: emptyPB}
	case *streams.BatchAppendReq_Options_Any:
		reply.ExpectedStreamPosition = &streams.BatchAppendResp_Any{Any: emptyPB}
	case *streams.BatchAppendReq_Options_StreamExists:
		reply.ExpectedStreamPosition = &streams.BatchAppendResp_StreamExists{StreamExists: emptyPB}
	}
	return reply
}

func batchSuccess(done appendResult) *streams.BatchAppendResp_Success {
	success := &streams.BatchAppendResp_Success{
		CurrentRevisionOption: &streams.BatchAppendResp_Success_CurrentRevision{CurrentRevision: uint64(done.length) - 1},
		PositionOption:        &streams.BatchAppendResp_Success_NoPosition{NoPosition: emptyPB},
	}
	if done.length == 0 {
		success.CurrentRevisionOption = &streams.BatchAppendResp_Success_NoStream{NoStream: emptyPB}
	}
	if !done.position.IsZero() {
		commit, prepare := done.position.Parts()
		success.PositionOption = &streams.BatchAppendResp_Success_Position{
			Position: &shared.AllStreamPosition{CommitPosition: commit, PreparePosition: prepare},
		}
	}
	return success
}

// wrongPosition says what was expected and what is.
func wrongPosition(x expectedRevision, length events.Revision) *shared.WrongExpectedVersion {
	m := &shared.WrongExpectedVersion{
		CurrentStreamRevisionOption: &shared.WrongExpectedVersion_CurrentStreamRevision{CurrentStreamRevision: uint64(length) - 1},
	}
	if length == 0 {
		m.CurrentStreamRevisionOption = &shared.WrongExpectedVersion_CurrentNoStream{CurrentNoStream: emptyPB}
	}
	switch {
	case x.any:
		m.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedAny{ExpectedAny: emptyPB}
	case x.exists:
		m.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedStreamExists{ExpectedStreamExists: emptyPB}
	case x.after == 0:
		m.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: emptyPB}
	default:
		m.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedStreamPosition{ExpectedStreamPosition: uint64(x.after) - 1}
	}
	return m
}

// failureStatus returns a status as a batch carries it, with the detail that clients
// tell failures apart by.
func (b *batchCall) failureStatus(err error) *wire.Status {
	s, _ := status.FromError(statusOf(err))
	var detail proto.Message
	switch s.Code() {
	case codes.PermissionDenied:
		detail = &shared.AccessDenied{}
	case codes.DeadlineExceeded, codes.Aborted:
		return statusWithDetail(codes.DeadlineExceeded, s.Message(), &shared.Timeout{})
	case codes.InvalidArgument:
		detail = &shared.BadRequest{Message: s.Message()}
		if errors.Is(err, errTooLarge) {
			detail = &shared.MaximumAppendSizeExceeded{MaxAppendSize: uint32(b.cfg.MaxAppend)}
		}
	default:
		detail = &shared.Unknown{}
	}
	return statusWithDetail(s.Code(), s.Message(), detail)
}

func statusWithDetail(c codes.Code, text string, detail proto.Message) *wire.Status {
	packed, err := anypb.New(detail)
	if err != nil {
		return &wire.Status{Code: int32(c), Message: text} // the detail is no more than help
	}
	return &wire.Status{Code: int32(c), Message: text, Details: []*anypb.Any{packed}}
}
