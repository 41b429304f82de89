package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/groups"
)

// persistentService implements the gRPC service PersistentSubscriptions: groups
// of competing consumers.
type persistentService struct {
	persistent.UnimplementedPersistentSubscriptionsServer
	*Server
}

// follow yields the entries of $all, if source is empty, or of a stream, after a
// cursor and without end. It is the Follow of groups.Config.
func (s *Server) follow(ctx context.Context, source events.Stream, after groups.Cursor) iter.Seq2[events.Entry, error] {
	if source == "" {
		return s.store.Follow(ctx, after.Position)
	}
	return s.followStream(ctx, source, after.Revision, nil)
}

// compileFilter returns the predicate of a group's filter. It returns
// ErrBadGroup for an invalid regular expression, and for a filter that has both
// an expression and prefixes, or neither.
func compileFilter(of groups.Filter) (func(events.Header) bool, error) {
	f, err := newFilter(of.ByKind, filterExpression{of})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", groups.ErrBadGroup, err)
	}
	return f.matches, nil
}

// A filterExpression makes a group's filter a filterClause, so that newFilter
// validates both.
type filterExpression struct{ groups.Filter }

func (f filterExpression) GetRegex() string    { return f.Regex }
func (f filterExpression) GetPrefix() []string { return f.Prefixes }

// groupStatus converts an error of a group to a gRPC status, and sets the
// trailers by which clients tell such errors apart: the name of the exception,
// the source, the group and the reason. It returns nil for nil.
func groupStatus(ctx context.Context, key groups.QualifiedName, err error) error {
	if err == nil {
		return nil
	}
	for _, e := range groupExceptions {
		if errors.Is(err, e.is) {
			if e.name != "" {
				setException(ctx, e.name, "stream-name", sourceName(key.Source), "group-name", key.Name, "reason", err.Error())
			}
			return status.Error(e.code, err.Error())
		}
	}
	return statusOf(err)
}

// groupExceptions maps the errors of groups to a status code and, if clients have
// an exception for it, to the name of that exception. groupStatus uses the first
// row that matches.
var groupExceptions = []struct {
	is   error
	code codes.Code
	name string
}{
	{groups.ErrExists, codes.AlreadyExists, "persistent-subscription-exists"},
	{groups.ErrNotFound, codes.NotFound, "persistent-subscription-does-not-exist"},
	{groups.ErrBadGroup, codes.InvalidArgument, "persistent-subscription-failed"},
	{groups.ErrFull, codes.FailedPrecondition, "maximum-subscribers-reached"},
	{groups.ErrDeleted, codes.Aborted, "persistent-subscription-dropped"},
	{groups.ErrStopped, codes.Unavailable, ""},
	{events.ErrConflict, codes.Aborted, ""}, // another process appended to the group's stream
}

// sourceName returns the name by which clients know a group's source: the stream,
// or $all.
func sourceName(source events.Stream) string { return cmp.Or(string(source), "$all") }

// A groupRequest names a group and its source, which is a stream or $all.
type groupRequest interface {
	GetStreamIdentifier() *shared.StreamIdentifier
	GetAll() *shared.Empty
	GetGroupName() string
}

// parseKey returns the key of the group that a request names. It returns
// INVALID_ARGUMENT for an invalid stream or group name.
func parseKey(o groupRequest) (key groups.QualifiedName, err error) {
	if o.GetAll() == nil {
		key.Source, err = parseStream(o.GetStreamIdentifier())
	}
	if key.Name = o.GetGroupName(); err == nil {
		err = checkGroupName(key.Name)
	}
	return key, err
}

// checkGroupName returns INVALID_ARGUMENT for a group name that is empty or
// longer than maxName.
func checkGroupName(name string) error {
	switch {
	case name == "":
		return status.Error(codes.InvalidArgument, "a group name is required")
	case len(name) > maxName:
		return status.Errorf(codes.InvalidArgument, "the name of a group has %d bytes, and the limit is %d", len(name), maxName)
	}
	return nil
}

// Read implements PersistentSubscriptions.Read: it makes the caller a consumer
// of a group. It sends the entries that the group delivers to this consumer,
// and receives the acks and nacks of the consumer. It returns when the caller
// closes its side, when the call or the server ends, or when the group ends the
// consumer.
//
// The goroutine of the handler sends. A second goroutine receives; its error
// becomes the cause of ctx, which ends the handler's wait for the next
// delivery.
func (s *persistentService) Read(to persistent.PersistentSubscriptions_ReadServer) error {
	if _, err := s.requireRole(to.Context(), auth.Reader); err != nil {
		return err
	}
	ctx, release := s.untilShutdown(to.Context())
	defer release()
	first, err := to.Recv()
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the options are missing
		return statusOf(err)
	}
	o := first.GetOptions()
	if o == nil {
		return status.Error(codes.InvalidArgument, "consume: options are required before acks and nacks")
	}
	key, err := parseKey(o)
	if err != nil {
		return err
	}
	if o.BufferSize < 0 {
		return status.Errorf(codes.InvalidArgument, "consume: the buffer size %d is negative", o.BufferSize)
	}
	c, err := s.join(ctx, key, int(min(o.BufferSize, maxInFlight)))
	if err != nil {
		return groupStatus(ctx, key, err)
	}
	defer c.Leave()
	confirmation := &persistent.ReadResp_SubscriptionConfirmation{SubscriptionId: c.ID()}
	if err := to.Send(&persistent.ReadResp{Content: &persistent.ReadResp_SubscriptionConfirmation_{SubscriptionConfirmation: confirmation}}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { cancel(receiveAcks(c, to)) }() // Recv fails at the latest when the call ends
	for {
		d, err := c.Next(ctx)
		if errors.Is(err, io.EOF) { // the caller closed its side
			return nil
		}
		if err != nil {
			return groupStatus(ctx, key, err)
		}
		m, err := s.deliveryResponse(ctx, key, d, groupUUIDFormat(o))
		if err != nil {
			return err
		}
		if err := to.Send(m); err != nil {
			return err
		}
	}
}

// join makes the caller a consumer that holds at most capacity unacknowledged
// entries. The statistics of the group show the caller's address, user and
// connection name. It returns groups.ErrNotFound, groups.ErrFull, or the reason
// why the group ended.
func (s *persistentService) join(ctx context.Context, key groups.QualifiedName, capacity int) (*groups.Consumer, error) {
	group, err := s.groups.Group(key)
	if err != nil {
		return nil, err
	}
	cfg := groups.ConsumerConfig{Capacity: capacity, User: "anonymous", Name: connectionName(ctx)}
	if from, ok := peer.FromContext(ctx); ok {
		cfg.From = from.Addr.String()
	}
	if name, ok := userOf(ctx); ok {
		cfg.User = name
	}
	return group.Join(cfg)
}

// connectionName returns the name that a client gives its connection, with
// invalid UTF-8 replaced, or <unknown> as EventStoreDB does. The name is for
// display.
func connectionName(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	if names := md.Get("connection-name"); len(names) > 0 {
		return strings.ToValidUTF8(names[0], "\uFFFD")
	}
	return "<unknown>"
}

// groupUUIDFormat returns the UUID format that a consumer requests, or
// structuredUUID by default.
func groupUUIDFormat(o *persistent.ReadReq_Options) uuidFormat {
	if _, ok := o.GetUuidOption().GetContent().(*persistent.ReadReq_Options_UUIDOption_String_); ok {
		return textUUID
	}
	return structuredUUID
}

// maxInFlight bounds the unacknowledged entries of one consumer, and with them
// its memory. A larger buffer size in a request is reduced to it.
const maxInFlight = 10_000

// receiveAcks passes the acks and nacks of a caller to its consumer. It returns
// the error that ends the call: io.EOF when the caller closes its side,
// INVALID_ARGUMENT for a message that is neither an ack nor a nack, and otherwise
// the error of Recv.
func receiveAcks(c *groups.Consumer, from persistent.PersistentSubscriptions_ReadServer) error {
	for {
		m, err := from.Recv()
		if err != nil {
			return err
		}
		switch answer := m.GetContent().(type) {
		case *persistent.ReadReq_Ack_:
			ids, err := parseUUIDs(answer.Ack.GetIds())
			if err != nil {
				return err
			}
			c.Ack(ids...)
		case *persistent.ReadReq_Nack_:
			ids, err := parseUUIDs(answer.Nack.GetIds())
			if err != nil {
				return err
			}
			action, err := nackAction(answer.Nack.GetAction())
			if err != nil {
				return err
			}
			c.Nack(action, answer.Nack.GetReason(), ids...)
		default:
			return status.Error(codes.InvalidArgument, "consume: an ack or a nack is required")
		}
	}
}

// nackAction converts the action of a nack. Unknown is a retry. It returns
// INVALID_ARGUMENT for a number that the protocol does not define.
func nackAction(a persistent.ReadReq_Nack_Action) (groups.NackAction, error) {
	switch a {
	case persistent.ReadReq_Nack_Park:
		return groups.Park, nil
	case persistent.ReadReq_Nack_Skip:
		return groups.Skip, nil
	case persistent.ReadReq_Nack_Stop:
		return groups.Stop, nil
	case persistent.ReadReq_Nack_Retry, persistent.ReadReq_Nack_Unknown:
		return groups.Retry, nil
	}
	return groups.Retry, status.Errorf(codes.InvalidArgument, "consume: unknown nack action %d", a)
}

// parseUUIDs decodes event IDs. It returns INVALID_ARGUMENT if one of them is
// invalid.
func parseUUIDs(wire []*shared.UUID) (ids []domain.EventID, err error) {
	for _, w := range wire {
		raw, err := parseUUID(w)
		if err != nil {
			return nil, err
		}
		ids = append(ids, domain.EventIDFromBytes(raw))
	}
	return ids, nil
}

// deliveryResponse returns the response with a delivered entry and the number of
// its earlier deliveries. It resolves a link if the group's settings ask for it.
func (s *persistentService) deliveryResponse(ctx context.Context, key groups.QualifiedName, d groups.Delivery, ids uuidFormat) (*persistent.ReadResp, error) {
	q := readRequest{ids: ids}
	if d.Kind == linkKind {
		group, err := s.groups.Group(key)
		if err != nil {
			return nil, groupStatus(ctx, key, err)
		}
		q.links = group.Stats().Settings.Passthrough.ResolveLinks
	}
	m, err := s.message(ctx, &q, d.Entry)
	if err != nil {
		return nil, statusOf(err)
	}
	event := m.GetEvent()
	return &persistent.ReadResp{Content: &persistent.ReadResp_Event{Event: &persistent.ReadResp_ReadEvent{
		Event:    persistentEvent(event.Event),
		Link:     persistentEvent(event.Link),
		Position: &persistent.ReadResp_ReadEvent_CommitPosition{CommitPosition: event.GetCommitPosition()},
		Count:    &persistent.ReadResp_ReadEvent_RetryCount{RetryCount: int32(d.Retries)},
	}}}, nil
}

// persistentEvent converts an event to the type of the persistent subscriptions
// service, which has the same fields. It returns nil for nil.
func persistentEvent(r *streams.ReadResp_ReadEvent_RecordedEvent) *persistent.ReadResp_ReadEvent_RecordedEvent {
	if r == nil {
		return nil
	}
	return &persistent.ReadResp_ReadEvent_RecordedEvent{
		Id: r.Id, StreamIdentifier: r.StreamIdentifier, StreamRevision: r.StreamRevision,
		CommitPosition: r.CommitPosition, PreparePosition: r.PreparePosition,
		Metadata: r.Metadata, CustomMetadata: r.CustomMetadata, Data: r.Data,
	}
}

// userOf returns the name in the caller's authorization header, with invalid
// UTF-8 replaced, and false if the header is missing or not Basic. The name is
// for display: requireRole has checked the password before, if the server has
// users.
func userOf(ctx context.Context) (string, bool) {
	md, _ := metadata.FromIncomingContext(ctx)
	if header := md.Get("authorization"); len(header) > 0 {
		name, _, ok := basic(header[0])
		return strings.ToValidUTF8(name, "\uFFFD"), ok
	}
	return "", false
}
