package server

import (
	"context"
	"crypto/rand"
	"iter"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/settlement-ledger/ledger/events"
)

// EachTime is the key of a header, with any value, by which a subscriber asks
// to be told each time that it has caught up, and not only the first.
const CaughtUpEachTime = "ledger-caught-up-each-time"

// A subscription is one subscriber. It holds nothing of the store but its
// place: a subscriber that is slow to receive slows its own loop.
type subscription struct {
	*readRequest
	server        *Server
	cache         *messageCache
	to            streams.Streams_ReadServer
	revision      events.Revision // of a stream, behind which the subscriber is
	everyCaughtUp bool            // tell each time
	caughtUpSent  bool            // was told that it has caught up
	storeCounts   bool            // by the store, which says when a checkpoint is due
	examined      uint64
	sendErr       error // of sending from within the store's loop
	stop          context.CancelCauseFunc
}

// subscribe sends what there is behind a place and then what is appended, until
// the call ends or the server shuts down.
func (s *Server) subscribe(q readRequest, to streams.Streams_ReadServer) error {
	ctx, release := s.untilShutdown(to.Context())
	defer release()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	md, _ := metadata.FromIncomingContext(ctx)
	sub := &subscription{readRequest: &q, server: s, cache: s.caches.of(q.ids), to: to, everyCaughtUp: len(md.Get(CaughtUpEachTime)) > 0, stop: stop}
	entries, err := s.followFrom(ctx, sub)
	if err != nil {
		return err
	}
	if err := sub.send(&streams.ReadResp{Content: &streams.ReadResp_Confirmation{
		Confirmation: &streams.ReadResp_SubscriptionConfirmation{SubscriptionId: rand.Text()},
	}}); err != nil {
		return err
	}
	for e, err := range entries {
		if sub.sendErr != nil {
			return sub.sendErr
		}
		if err != nil {
			return err
		}
		if err := sub.take(ctx, e); err != nil {
			return err
		}
	}
	return sub.sendErr
}

// followFrom returns the entries of a subscription.
func (s *Server) followFrom(ctx context.Context, sub *subscription) (iter.Seq2[events.Entry, error], error) {
	if sub.stream != "" {
		var err error
		sub.revision, err = s.startRevision(ctx, sub.readRequest)
		return s.followStream(ctx, sub.stream, sub.revision, sub.caughtUp), err
	}
	after := sub.from.position
	if sub.from.end {
		head, err := s.head(ctx)
		if err != nil {
			return nil, err
		}
		after = head
	}
	if err := s.checkPosition(ctx, sub.from); err != nil {
		return nil, err
	}
	following := events.Following{CaughtUp: sub.caughtUp}
	store, ok := s.store.(pushdownStore)
	if !ok || sub.filter == nil {
		return s.store.Follow(ctx, after, following), nil
	}
	sub.storeCounts, following.Filter = true, sub.filter.pushdown()
	return store.FollowEvery(ctx, after, following, sub.filter.interval, sub.passed), nil
}

// A counting store tells how many entries it passed over, as FollowEvery of
// embedded.Store does. What a filter keeps back need not leave it then.
type pushdownStore interface {
	FollowEvery(ctx context.Context, after events.Position, f events.Following, every uint64, passed func(events.Position)) iter.Seq2[events.Entry, error]
}

// streamPlace returns the length behind which a subscription to a stream
// begins.
func (s *Server) startRevision(ctx context.Context, q *readRequest) (events.Revision, error) {
	switch {
	case q.from.start:
		return 0, nil
	case q.from.end:
		return s.length(ctx, q.stream)
	}
	return events.Revision(q.from.revision) + 1, nil
}

// followStream yields the entries of a stream behind a length: those that there
// are by the stream's own index, and from then on those of the log that belong
// to it. It calls caughtUp, if that is not nil, as Follow of a store does.
func (s *Server) followStream(ctx context.Context, stream events.Stream, after events.Revision, caughtUp func(events.Position)) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		head, err := s.head(ctx)
		if err != nil {
			yield(events.Entry{}, err)
			return
		}
		for e, err := range s.store.Read(ctx, stream, after) {
			if !yield(e, err) || err != nil {
				return
			}
			after = e.Revision
		}
		following := events.Following{Filter: events.Filter{Prefixes: []string{string(stream)}}, CaughtUp: caughtUp}
		for e, err := range s.store.Follow(ctx, head, following) {
			if err == nil && (e.Stream != stream || e.Revision <= after) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// take sends an entry that the filter admits, and a checkpoint when so many
// were examined.
func (u *subscription) take(ctx context.Context, e events.Entry) error {
	u.revision = e.Revision
	if u.filter.matches(e.Header()) {
		m, err := u.message(ctx, e)
		if err != nil {
			return err
		}
		if err := u.send(m); err != nil {
			return err
		}
	}
	if u.filter == nil || u.storeCounts {
		return nil
	}
	if u.examined++; u.examined%u.filter.interval > 0 {
		return nil
	}
	return u.checkpoint(e.Position)
}

// message returns the response that carries an entry. Subscriptions that have caught
// up share it, unless the entry is a link.
func (u *subscription) message(ctx context.Context, e events.Entry) (*streams.ReadResp, error) {
	if u.caughtUpSent && e.Kind != linkKind {
		return u.cache.message(e, u.ids)
	}
	return u.server.message(ctx, u.readRequest, e)
}

// passed sends a checkpoint that the store says is due.
func (u *subscription) passed(at events.Position) {
	if u.sendErr == nil {
		u.sendErr = u.checkpoint(at)
	}
	if u.sendErr != nil {
		u.stop(u.sendErr)
	}
}

// checkpoint tells how far the log was examined.
func (u *subscription) checkpoint(at events.Position) error {
	commit, prepare := at.Parts()
	m := &streams.ReadResp_Checkpoint{CommitPosition: commit, PreparePosition: prepare}
	m.ProtoReflect().SetUnknown(u.stamp(3))
	return u.send(&streams.ReadResp{Content: &streams.ReadResp_Checkpoint_{Checkpoint: m}})
}

// The fields of CaughtUp. The version of EventStoreDB that the server says it is
// sends them, as newer clients wait for them; the generated types are older.
const (
	caughtUpTime     = 1
	caughtUpRevision = 2
	caughtUpPosition = 3
)

// caughtUpAt returns the message that says that the subscriber has been sent
// everything up to a place: a revision in a stream, and else a position. There is
// none where a stream or the log is empty.
func (u *subscription) caughtUpAt(at events.Position) *streams.ReadResp {
	b := u.stamp(caughtUpTime)
	switch {
	case u.stream != "" && u.revision > 0:
		b = protowire.AppendTag(b, caughtUpRevision, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(u.revision)-1)
	case u.stream == "" && !at.IsZero():
		commit, prepare := at.Parts()
		var position []byte
		for i, part := range []uint64{commit, prepare} {
			position = protowire.AppendTag(position, protowire.Number(i+1), protowire.VarintType)
			position = protowire.AppendVarint(position, part)
		}
		b = protowire.AppendTag(b, caughtUpPosition, protowire.BytesType)
		b = protowire.AppendBytes(b, position)
	}
	m := &streams.ReadResp_CaughtUp{}
	m.ProtoReflect().SetUnknown(b)
	return &streams.ReadResp{Content: &streams.ReadResp_CaughtUp_{CaughtUp: m}}
}

// stamp returns the time of the server as a field of a message.
func (u *subscription) stamp(field protowire.Number) []byte {
	now, err := proto.Marshal(timestamppb.New(u.server.cfg.Now()))
	if err != nil {
		return nil // a time that cannot be told is left out
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), now)
}

// caughtUp tells the subscriber, with a checkpoint if there is a filter.
func (u *subscription) caughtUp(at events.Position) {
	if u.caughtUpSent && !u.everyCaughtUp || u.sendErr != nil {
		return
	}
	u.caughtUpSent = true
	if u.filter != nil {
		u.sendErr = u.checkpoint(at)
	}
	if u.sendErr == nil {
		u.sendErr = u.send(u.caughtUpAt(at))
	}
	if u.sendErr != nil {
		u.stop(u.sendErr)
	}
}

func (u *subscription) send(m *streams.ReadResp) error { return u.to.Send(m) }
