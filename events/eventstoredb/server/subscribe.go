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

// CaughtUpEachTime is the key of a header. A subscription whose call has the
// header, with any value, receives CaughtUp each time that it has caught up,
// and not only the first time.
const CaughtUpEachTime = "ledger-caught-up-each-time"

// A subscriber sends the entries of $all or of a stream to one client. The
// goroutine of the handler owns it, also while the store calls caughtUp and
// passed. It buffers no entries: a client that receives slowly blocks its own
// subscription in Send, and delays no other.
//
// A subscription first sends the existing entries after its start point and then
// CaughtUp. From then on it sends each entry when it is durable. A subscription
// with a filter also sends checkpoints, from which the client can resume although
// no entry matched.
type subscriber struct {
	*readRequest
	server *Server
	cache  *messageCache
	to     streams.Streams_ReadServer
	// revision is the revision of the last entry taken from a stream. CaughtUp
	// reports it.
	revision events.Revision
	// everyCaughtUp is set if the client wants CaughtUp each time that the
	// subscription has caught up, and not only the first time.
	everyCaughtUp bool
	// caughtUpSent is set when CaughtUp was sent once.
	caughtUpSent bool
	// storeCounts is set if the store filters the entries and reports when a
	// checkpoint is due. Otherwise the subscriber counts the entries in the
	// field examined.
	storeCounts bool
	examined    uint64
	// sendErr is the first error of a send in a callback of the store, which has
	// no error to return. It ends the subscription.
	sendErr error
	// stop cancels the context of the store's Follow after sendErr was set.
	stop context.CancelCauseFunc
}

// subscribe sends the entries after a start point, and then new entries as they
// are appended, until the call ends or the server shuts down. It confirms the
// subscription before the first entry, and only after it has checked the start
// point.
func (s *Server) subscribe(q readRequest, to streams.Streams_ReadServer) error {
	ctx, release := s.untilShutdown(to.Context())
	defer release()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	md, _ := metadata.FromIncomingContext(ctx)
	sub := &subscriber{readRequest: &q, server: s, cache: s.caches.of(q.ids), to: to, everyCaughtUp: len(md.Get(CaughtUpEachTime)) > 0, stop: stop}
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

// followFrom returns the entries of a subscription, in order and without end. If
// the store is a pushdownStore, it leaves the filter and the counting of examined
// entries to the store. It returns INVALID_ARGUMENT for a position after the end
// of the log.
func (s *Server) followFrom(ctx context.Context, sub *subscriber) (iter.Seq2[events.Entry, error], error) {
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

// A pushdownStore filters entries itself and calls passed after each interval of
// examined entries, as FollowEvery of embedded.Store does. It need not read or
// decode entries that the filter excludes.
type pushdownStore interface {
	FollowEvery(ctx context.Context, after events.Position, f events.Following, every uint64, passed func(events.Position)) iter.Seq2[events.Entry, error]
}

// startRevision returns the length of the stream after which a subscription
// begins. A request names the revision of the last entry that the client has, and
// the subscription begins with the next one.
func (s *Server) startRevision(ctx context.Context, q *readRequest) (events.Revision, error) {
	switch {
	case q.from.start:
		return 0, nil
	case q.from.end:
		return s.length(ctx, q.stream)
	}
	return events.Revision(q.from.revision) + 1, nil
}

// followStream yields the entries of a stream after the length given by after,
// and then new entries as they are appended. It reads existing entries by the
// index of the stream, and new ones from the log. It calls caughtUp, if not
// nil, as Follow of a store does.
//
// It first takes the end of the log, then reads the stream, and then follows
// the log from that end. An entry that was appended meanwhile is in both reads,
// and followStream yields it once. So no entry is missing.
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

// take sends an entry if the filter matches it, and a checkpoint after each
// interval of examined entries, if the store does not count them.
func (u *subscriber) take(ctx context.Context, e events.Entry) error {
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

// message returns the response for an entry. After the subscription has caught
// up, message takes the response from the shared cache, unless the entry is a
// link. Earlier entries are old and would evict recent ones from the cache.
func (u *subscriber) message(ctx context.Context, e events.Entry) (*streams.ReadResp, error) {
	if u.caughtUpSent && e.Kind != linkKind {
		return u.cache.message(e, u.ids)
	}
	return u.server.message(ctx, u.readRequest, e)
}

// passed is a callback of FollowEvery: it sends a checkpoint at the position
// that the store reports.
func (u *subscriber) passed(at events.Position) {
	if u.sendErr == nil {
		u.sendErr = u.checkpoint(at)
	}
	if u.sendErr != nil {
		u.stop(u.sendErr)
	}
}

// checkpoint sends the position up to which the log was examined. The client
// resumes after it.
func (u *subscriber) checkpoint(at events.Position) error {
	commit, prepare := at.Parts()
	m := &streams.ReadResp_Checkpoint{CommitPosition: commit, PreparePosition: prepare}
	m.ProtoReflect().SetUnknown(u.stamp(3))
	return u.send(&streams.ReadResp{Content: &streams.ReadResp_Checkpoint_{Checkpoint: m}})
}

// The field numbers of CaughtUp. The EventStoreDB version that the server
// reports sends these fields, and newer clients expect them. The generated Go
// types are older and lack them.
const (
	caughtUpTime     = 1
	caughtUpRevision = 2
	caughtUpPosition = 3
)

// caughtUpAt returns the message CaughtUp. For a stream it has the revision of
// the last entry sent, and for $all the position at. If the stream or the log
// is empty, it has neither.
func (u *subscriber) caughtUpAt(at events.Position) *streams.ReadResp {
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

// stamp returns the server's time, encoded as a protobuf Timestamp in the field
// with the given number. It returns no bytes if the time does not encode.
func (u *subscriber) stamp(field protowire.Number) []byte {
	now, err := proto.Marshal(timestamppb.New(u.server.cfg.Now()))
	if err != nil {
		return nil // the client accepts a message without the time
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), now)
}

// caughtUp is a callback of the store: it sends CaughtUp, and before it a
// checkpoint if the subscription has a filter. If a send fails, it stops the
// subscription.
func (u *subscriber) caughtUp(at events.Position) {
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

// send sends a message. It blocks while the client does not receive.
func (u *subscriber) send(m *streams.ReadResp) error { return u.to.Send(m) }
