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
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// The bounds of the appends that one BatchAppend call has open. They bound the
// memory and the goroutines of a call whose client never completes its batches,
// or sends faster than the store appends.
const (
	// openAppends bounds the appends that run concurrently.
	openAppends = 64
	// openBytes bounds the bytes of incomplete batches, as a multiple of
	// Config.MaxAppend.
	openBytes = 4
)

// emptyPB is Google's message without fields. It is never changed.
var emptyPB = &emptypb.Empty{}

// A pendingAppend is an append whose events arrive in several messages with one
// correlation ID. The last message is marked as final.
type pendingAppend struct {
	clientAppend
	options *streams.BatchAppendReq_Options
	// deadline is the time after which the client no longer waits for the append.
	// Zero: no deadline.
	deadline time.Time
	// err is the first error in the messages. The remaining messages are
	// discarded, and err becomes the reply when the final one has arrived.
	err error
}

// A batchCall is a running BatchAppend call. It makes the appends of one stream
// in the order in which they became complete, and appends of different streams
// concurrently.
//
// The goroutine of the handler receives and owns open and size. Each complete
// append runs on a goroutine of its own, which takes a slot, waits for the
// previous append to the same stream, and sends its reply.
type batchCall struct {
	*streamsService
	ctx  context.Context
	role auth.Role
	to   streams.Streams_BatchAppendServer
	open map[[16]byte]*pendingAppend // incomplete appends, by correlation ID
	size int                         // bytes of the events in open
	// slots holds one value for each running append, including appends that
	// wait for an earlier append to the same stream. While slots is full, the
	// handler receives no further message, and HTTP/2 flow control stops the
	// client.
	slots chan struct{}
	// running counts the goroutines of appends; the handler waits for them before
	// it returns.
	running sync.WaitGroup
	// sending serializes Send, which gRPC does not allow from two goroutines at
	// once.
	sending sync.Mutex
	mu      struct {
		sync.Mutex
		// last has the done channel of the latest append to each stream, which is
		// closed when that append has ended. A stream without a running append
		// has no entry.
		last map[events.Stream]chan struct{}
	}
}

// BatchAppend implements Streams.BatchAppend: it receives appends until the
// caller ends the call or the server shuts down, and sends one reply for each,
// with its correlation ID. Replies come in the order in which the appends end.
// BatchAppend returns after all complete appends have ended, and discards
// incomplete ones.
func (s *streamsService) BatchAppend(to streams.Streams_BatchAppendServer) error {
	role, err := s.requireRole(to.Context(), auth.Reader)
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

// A recvResult is one received message, or the error that ended the receiving
// side of the call.
type recvResult[T any] struct {
	value T
	err   error
}

// receive starts a goroutine that calls recv and sends the results to the
// returned channel, so that a handler can wait for a message and for the shutdown
// at once. The goroutine ends after an error, or when ctx ends. gRPC makes recv
// fail at the latest when the handler returns.
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

// take adds a message to the pending append with the same correlation ID, and
// runs the append when it is complete. An error in one append becomes the reply
// to that append and does not affect others. take itself returns only errors
// that end the call: INVALID_ARGUMENT for a message without a correlation ID,
// and RESOURCE_EXHAUSTED for too many incomplete appends.
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
			batch.err = b.addEvent(b.ctx, &batch.clientAppend, p)
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

// parseOptions validates the options, which are in the first message of an
// append. It converts a relative deadline to a time by the server's clock.
// Clients for version 21.10.0 send the deadline as a time.
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

// run makes an append on a goroutine of its own, after the previous append to the
// same stream, and sends the reply. It blocks while openAppends appends run.
//
// The chain cannot deadlock: an append waits only for appends that became
// complete earlier and already hold a slot.
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

// send sends a reply. It ignores the error of Send: the call has ended then, and
// the receiving loop gets the same error.
func (b *batchCall) send(reply *streams.BatchAppendResp) {
	b.sending.Lock()
	defer b.sending.Unlock()
	_ = b.to.Send(reply)
}

// reply makes an append and returns its reply. Every failure is a reply and does
// not end the call.
func (b *batchCall) reply(batch *pendingAppend) *streams.BatchAppendResp {
	reply := batch.echo()
	done, err := appendResult{}, batch.err
	if err == nil {
		err = b.authorizeAppend(b.role, batch.clientAppend)
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

// writeUntil makes an append, with the deadline of the request if it has one.
// If the deadline ends the append, the records may have been written, and the
// reply is a timeout.
func (b *batchCall) writeUntil(batch *pendingAppend) (appendResult, error) {
	ctx := b.ctx
	if !batch.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, batch.deadline.Sub(b.cfg.Now()))
		defer cancel()
	}
	return b.write(ctx, batch.clientAppend)
}

// echo returns a reply without a result. It repeats the stream and the expected
// position of the request, because clients name the append by them in their
// errors.
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

// batchSuccess encodes a successful append.
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

// wrongPosition encodes a conflict: the expected and the current position.
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

// failureStatus encodes an error as the status of a batch reply, with the detail
// message by which clients tell errors apart. An append that may have been
// written (ABORTED) is sent as a timeout, since clients repeat an append after a
// timeout.
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

// statusWithDetail returns a status with one detail message, or without it if the
// detail does not encode.
func statusWithDetail(c codes.Code, text string, detail proto.Message) *wire.Status {
	packed, err := anypb.New(detail)
	if err != nil {
		return &wire.Status{Code: int32(c), Message: text} // clients read the code without the detail
	}
	return &wire.Status{Code: int32(c), Message: text, Details: []*anypb.Any{packed}}
}
