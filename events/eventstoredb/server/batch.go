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
var nothingThere = &emptypb.Empty{}

// A batch is an append whose events come in several messages.
type batch struct {
	writing
	options  *streams.BatchAppendReq_Options
	deadline time.Time // zero: none
	failed   error     // of reading it, told when it is complete
}

// batches are the appends of one call. Those of one stream are made in the
// order in which they were completed, those of different streams at once.
type batches struct {
	*streamsOf
	ctx     context.Context
	role    Role
	to      streams.Streams_BatchAppendServer
	open    map[[16]byte]*batch // by correlation, not complete yet
	size    int                 // of open
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
func (s *streamsOf) BatchAppend(to streams.Streams_BatchAppendServer) error {
	role, err := s.admit(to.Context(), Reader)
	if err != nil {
		return err
	}
	b := &batches{
		streamsOf: s, ctx: to.Context(), role: role, to: to,
		open: map[[16]byte]*batch{}, slots: make(chan struct{}, openAppends),
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

// A received is what a caller sent, or why there is no more.
type received[T any] struct {
	value T
	err   error
}

// receive returns what a caller sends. The goroutine ends with an error, at the
// latest when the call does.
func receive[T any](recv func() (T, error), ctx context.Context) <-chan received[T] {
	c := make(chan received[T])
	go func() {
		for {
			value, err := recv()
			select {
			case c <- received[T]{value, err}:
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

// take adds a message to its batch. What is wrong with a batch is told when it
// is complete, and ends no other.
func (b *batches) take(m *streams.BatchAppendReq) error {
	id, err := idOf(m.GetCorrelationId())
	if err != nil {
		return err
	}
	of, ok := b.open[id]
	if !ok {
		of = &batch{}
		b.open[id] = of
		of.failed = of.begin(m.GetOptions(), b.cfg.Now())
	}
	before := of.size
	for _, p := range m.ProposedMessages {
		if of.failed == nil {
			of.failed = b.propose(b.ctx, &of.writing, p)
		}
	}
	if of.failed != nil {
		of.records, of.size = nil, 0
	}
	if b.size += of.size - before; b.size > openBytes*b.cfg.MaxAppend || len(b.open) > openBytes*openAppends {
		return status.Errorf(codes.ResourceExhausted, "batch append: %d batches of %d bytes are not complete", len(b.open), b.size)
	}
	if m.IsFinal {
		delete(b.open, id)
		b.size -= of.size
		b.run(m.CorrelationId, of)
	}
	return nil
}

// begin reads the options of a batch, which its first message has.
func (of *batch) begin(o *streams.BatchAppendReq_Options, now time.Time) (err error) {
	if o == nil {
		return status.Error(codes.InvalidArgument, "batch append: options are required in the first message of a batch")
	}
	of.options = o
	if of.stream, err = streamOf(o.StreamIdentifier); err != nil {
		return err
	}
	switch x := o.ExpectedStreamPosition.(type) {
	case *streams.BatchAppendReq_Options_StreamPosition:
		if of.expect.after, err = lengthOf(x.StreamPosition); err != nil {
			return err
		}
	case *streams.BatchAppendReq_Options_NoStream:
	case *streams.BatchAppendReq_Options_Any:
		of.expect.any = true
	case *streams.BatchAppendReq_Options_StreamExists:
		of.expect.exists = true
	default:
		return status.Error(codes.InvalidArgument, "batch append: an expected stream position is required")
	}
	switch d := o.DeadlineOption.(type) {
	case *streams.BatchAppendReq_Options_Deadline:
		of.deadline = now.Add(d.Deadline.AsDuration())
	case *streams.BatchAppendReq_Options_Deadline_21_10_0:
		of.deadline = d.Deadline_21_10_0.AsTime()
	}
	return nil
}

// run makes an append behind the one before it of its stream, and answers.
func (b *batches) run(id *shared.UUID, of *batch) {
	b.slots <- struct{}{}
	ended := make(chan struct{})
	b.mu.Lock()
	before := b.mu.last[of.stream]
	b.mu.last[of.stream] = ended
	b.mu.Unlock()
	b.running.Go(func() {
		defer func() { <-b.slots }()
		if before != nil {
			<-before
		}
		reply := b.reply(of)
		reply.CorrelationId = id
		b.send(reply)
		b.mu.Lock()
		if b.mu.last[of.stream] == ended {
			delete(b.mu.last, of.stream)
		}
		b.mu.Unlock()
		close(ended)
	})
}

// send sends a reply. An error is the end of the call, which the loop that
// receives is told of.
func (b *batches) send(reply *streams.BatchAppendResp) {
	b.sending.Lock()
	defer b.sending.Unlock()
	_ = b.to.Send(reply)
}

// reply makes an append and returns the reply to it.
func (b *batches) reply(of *batch) *streams.BatchAppendResp {
	reply := of.echo()
	done, err := outcome{}, of.failed
	if err == nil {
		err = b.mayWrite(b.role, of.writing)
	}
	if err == nil {
		done, err = b.writeUntil(of)
	}
	switch {
	case err != nil:
		reply.Result = &streams.BatchAppendResp_Error{Error: b.failure(err)}
	case done.conflict:
		reply.Result = &streams.BatchAppendResp_Error{Error: detailed(codes.AlreadyExists, "WrongExpectedVersion", wrongPosition(of.expect, done.length))}
	default:
		reply.Result = &streams.BatchAppendResp_Success_{Success: batched(done)}
	}
	return reply
}

func (b *batches) writeUntil(of *batch) (outcome, error) {
	ctx := b.ctx
	if !of.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, of.deadline.Sub(b.cfg.Now()))
		defer cancel()
	}
	return b.write(ctx, of.writing)
}

// echo returns a reply with what the caller said of the stream.
func (of *batch) echo() *streams.BatchAppendResp {
	reply := &streams.BatchAppendResp{StreamIdentifier: of.options.GetStreamIdentifier()}
	switch x := of.options.GetExpectedStreamPosition().(type) {
	case *streams.BatchAppendReq_Options_StreamPosition:
		reply.ExpectedStreamPosition = &streams.BatchAppendResp_StreamPosition{StreamPosition: x.StreamPosition}
	case *streams.BatchAppendReq_Options_NoStream:
		reply.ExpectedStreamPosition = &streams.BatchAppendResp_NoStream{NoStream: nothingThere}
	case *streams.BatchAppendReq_Options_Any:
		reply.ExpectedStreamPosition = &streams.BatchAppendResp_Any{Any: nothingThere}
	case *streams.BatchAppendReq_Options_StreamExists:
		reply.ExpectedStreamPosition = &streams.BatchAppendResp_StreamExists{StreamExists: nothingThere}
	}
	return reply
}

func batched(done outcome) *streams.BatchAppendResp_Success {
	success := &streams.BatchAppendResp_Success{
		CurrentRevisionOption: &streams.BatchAppendResp_Success_CurrentRevision{CurrentRevision: uint64(done.length) - 1},
		PositionOption:        &streams.BatchAppendResp_Success_NoPosition{NoPosition: nothingThere},
	}
	if done.length == 0 {
		success.CurrentRevisionOption = &streams.BatchAppendResp_Success_NoStream{NoStream: nothingThere}
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
func wrongPosition(x expectation, length events.Revision) *shared.WrongExpectedVersion {
	m := &shared.WrongExpectedVersion{
		CurrentStreamRevisionOption: &shared.WrongExpectedVersion_CurrentStreamRevision{CurrentStreamRevision: uint64(length) - 1},
	}
	if length == 0 {
		m.CurrentStreamRevisionOption = &shared.WrongExpectedVersion_CurrentNoStream{CurrentNoStream: nothingThere}
	}
	switch {
	case x.any:
		m.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedAny{ExpectedAny: nothingThere}
	case x.exists:
		m.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedStreamExists{ExpectedStreamExists: nothingThere}
	case x.after == 0:
		m.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: nothingThere}
	default:
		m.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedStreamPosition{ExpectedStreamPosition: uint64(x.after) - 1}
	}
	return m
}

// failure returns a status as a batch carries it, with the detail that clients
// tell failures apart by.
func (b *batches) failure(err error) *wire.Status {
	s, _ := status.FromError(statusOf(err))
	var detail proto.Message
	switch s.Code() {
	case codes.PermissionDenied:
		detail = &shared.AccessDenied{}
	case codes.DeadlineExceeded, codes.Aborted:
		return detailed(codes.DeadlineExceeded, s.Message(), &shared.Timeout{})
	case codes.InvalidArgument:
		detail = &shared.BadRequest{Message: s.Message()}
		if errors.Is(err, errTooLarge) {
			detail = &shared.MaximumAppendSizeExceeded{MaxAppendSize: uint32(b.cfg.MaxAppend)}
		}
	default:
		detail = &shared.Unknown{}
	}
	return detailed(s.Code(), s.Message(), detail)
}

func detailed(c codes.Code, text string, detail proto.Message) *wire.Status {
	packed, err := anypb.New(detail)
	if err != nil {
		return &wire.Status{Code: int32(c), Message: text} // the detail is no more than help
	}
	return &wire.Status{Code: int32(c), Message: text, Details: []*anypb.Any{packed}}
}
