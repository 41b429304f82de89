package server

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/groups"
)

// Create makes a group.
func (s *groupsOf) Create(ctx context.Context, req *persistent.CreateReq) (*persistent.CreateResp, error) {
	if _, err := s.admit(ctx, Writer); err != nil {
		return nil, err
	}
	o := req.GetOptions()
	def := groups.Definition{Key: groups.Key{Name: o.GetGroupName()}}
	if err := checkGroup(def.Name); err != nil {
		return nil, err
	}
	from, err := createFrom(o, &def)
	if err != nil {
		return nil, err
	}
	strategy := o.GetSettings().GetConsumerStrategy()
	if strategy == "" {
		//lint:ignore SA1019 the official Go client names the strategy here and nowhere else
		strategy = o.GetSettings().GetNamedConsumerStrategy().String()
	}
	if def.Settings, err = settingsOf(o.GetSettings(), strategy); err != nil {
		return nil, groupStatus(ctx, def.Key, err)
	}
	if def.Start, err = s.start(ctx, def.Source, from); err != nil {
		return nil, statusOf(err)
	}
	def.Settings.Told.StartFrom = from.told(def.Source)
	if err := s.groups.Create(def); err != nil {
		return nil, groupStatus(ctx, def.Key, err)
	}
	return &persistent.CreateResp{}, nil
}

// createFrom reads what a group reads and from where. Old clients name the
// stream and the revision in fields that newer ones leave out.
func createFrom(o *persistent.CreateReq_Options, def *groups.Definition) (from place, err error) {
	switch of := o.GetStreamOption().(type) {
	case *persistent.CreateReq_Options_All:
		switch p := of.All.GetAllOption().(type) {
		case *persistent.CreateReq_AllOptions_Position:
			from.position = events.NewPosition(p.Position.GetCommitPosition(), p.Position.GetPreparePosition())
			from.end = p.Position.GetCommitPosition() == atEnd && p.Position.GetPreparePosition() == atEnd
		case *persistent.CreateReq_AllOptions_Start:
			from.start = true
		case *persistent.CreateReq_AllOptions_End:
			from.end = true
		default:
			return from, lacking("a position, start or end")
		}
		if f := of.All.GetFilter(); f != nil {
			def.Filter, err = groupFilter(f)
		}
		return from, err
	case *persistent.CreateReq_Options_Stream:
		def.Source, err = streamOf(of.Stream.GetStreamIdentifier())
		switch r := of.Stream.GetRevisionOption().(type) {
		case *persistent.CreateReq_StreamOptions_Revision:
			from.revision, from.end = r.Revision, r.Revision == atEnd
		case *persistent.CreateReq_StreamOptions_Start:
			from.start = true
		case *persistent.CreateReq_StreamOptions_End:
			from.end = true
		default:
			return from, lacking("a revision, start or end")
		}
		return from, err
	}
	//lint:ignore SA1019 the official Node client names the stream here and nowhere else
	def.Source, err = streamOf(o.GetStreamIdentifier())
	//lint:ignore SA1019 and the revision here
	from.revision = o.GetSettings().GetRevision()
	from.end = from.revision == atEnd
	return from, err
}

func groupFilter(o *persistent.CreateReq_AllOptions_FilterOptions) (*groups.Filter, error) {
	switch f := o.GetFilter().(type) {
	case *persistent.CreateReq_AllOptions_FilterOptions_StreamIdentifier:
		return &groups.Filter{Prefixes: f.StreamIdentifier.GetPrefix(), Regex: f.StreamIdentifier.GetRegex()}, nil
	case *persistent.CreateReq_AllOptions_FilterOptions_EventType:
		return &groups.Filter{ByKind: true, Prefixes: f.EventType.GetPrefix(), Regex: f.EventType.GetRegex()}, nil
	}
	return nil, lacking("a filter by stream or by type")
}

// start returns the place behind which a group begins. The end is where it is
// now.
func (s *Server) start(ctx context.Context, source events.Stream, from place) (p groups.Place, err error) {
	switch {
	case from.start:
	case from.end && source == "":
		p.Position, err = s.head(ctx)
	case from.end:
		p.Revision, err = s.length(ctx, source)
	case source == "":
		p.Position = before(from.position)
		err = s.checkPosition(ctx, from)
	default:
		p.Revision = events.Revision(from.revision)
	}
	return p, err
}

// told returns a place as clients read it: a revision or two positions, -1
// being the end.
func (p place) told(source events.Stream) string {
	switch {
	case p.end && source == "":
		return "C:-1/P:-1"
	case p.end:
		return "-1"
	case source == "":
		return toldPosition(p.position)
	}
	return strconv.FormatUint(p.revision, 10)
}

func toldPosition(p events.Position) string {
	commit, prepare := p.Parts()
	return fmt.Sprintf("C:%d/P:%d", commit, prepare)
}

// toldPlace returns the last entry before a place as clients read it, and
// nothing if there is none.
func toldPlace(p groups.Place, source events.Stream) string {
	switch {
	case source == "" && !p.Position.IsZero():
		return toldPosition(p.Position)
	case source != "" && p.Revision > 0:
		return strconv.FormatUint(uint64(p.Revision)-1, 10)
	}
	return ""
}

// The settings that requests to create and to update have in common.
type settings interface {
	GetResolveLinks() bool
	GetExtraStatistics() bool
	GetMaxRetryCount() int32
	GetMinCheckpointCount() int32
	GetMaxCheckpointCount() int32
	GetMaxSubscriberCount() int32
	GetLiveBufferSize() int32
	GetReadBatchSize() int32
	GetHistoryBufferSize() int32
	GetMessageTimeoutTicks() int64
	GetMessageTimeoutMs() int32
	GetCheckpointAfterTicks() int64
	GetCheckpointAfterMs() int32
}

// settingsOf reads settings. Of the bounds that mean the same here, the larger
// counts.
func settingsOf(o settings, strategy string) (groups.Settings, error) {
	if o.GetLiveBufferSize() <= 0 || o.GetReadBatchSize() <= 0 || o.GetHistoryBufferSize() <= 0 {
		return groups.Settings{}, fmt.Errorf("%w: it needs a live buffer, a history buffer and a read batch of at least 1", groups.ErrBadGroup)
	}
	buffer := max(o.GetHistoryBufferSize(), o.GetLiveBufferSize())
	if buffer > maxBuffer {
		return groups.Settings{}, fmt.Errorf("%w: it holds at most %d entries in its buffer, and not %d", groups.ErrBadGroup, maxBuffer, buffer)
	}
	if o.GetMaxCheckpointCount() < 0 {
		return groups.Settings{}, fmt.Errorf("%w: a checkpoint after %d entries is none", groups.ErrBadGroup, o.GetMaxCheckpointCount())
	}
	timeout, err := span(o.GetMessageTimeoutTicks(), o.GetMessageTimeoutMs())
	if err != nil {
		return groups.Settings{}, err
	}
	after, err := span(o.GetCheckpointAfterTicks(), o.GetCheckpointAfterMs())
	if err != nil {
		return groups.Settings{}, err
	}
	return groups.Settings{
		Strategy:        groups.Strategy(strategy),
		MessageTimeout:  timeout,
		CheckpointAfter: after,
		MaxRetries:      int(o.GetMaxRetryCount()),
		MaxConsumers:    int(o.GetMaxSubscriberCount()),
		Buffer:          int(buffer),
		MinCheckpoint:   int(o.GetMinCheckpointCount()),
		MaxCheckpoint:   int(max(o.GetMaxCheckpointCount(), 1)),
		Told: groups.Told{
			LiveBuffer: o.GetLiveBufferSize(), HistoryBuffer: o.GetHistoryBufferSize(), ReadBatch: o.GetReadBatchSize(),
			ResolveLinks: o.GetResolveLinks(), ExtraStatistics: o.GetExtraStatistics(),
		},
	}, nil
}

// The bounds of settings.
const (
	maxBuffer = 100_000 // entries that a group holds in memory
	longest   = 1 << 53 // ticks of a time: 28 years
)

// span returns a time that is told in ticks of 100 ns or in milliseconds.
func span(ticks int64, ms int32) (time.Duration, error) {
	if ticks < 0 || ticks > longest || ms < 0 {
		return 0, fmt.Errorf("%w: a time of %d ticks and %d ms is negative or longer than %d ticks", groups.ErrBadGroup, ticks, ms, int64(longest))
	}
	return time.Duration(ticks)*100*time.Nanosecond + time.Duration(ms)*time.Millisecond, nil
}

// Update gives a group other settings. Where it reads from stays: it has read.
func (s *groupsOf) Update(ctx context.Context, req *persistent.UpdateReq) (*persistent.UpdateResp, error) {
	if _, err := s.admit(ctx, Writer); err != nil {
		return nil, err
	}
	o := req.GetOptions()
	key := groups.Key{Name: o.GetGroupName()}
	err := checkGroup(key.Name)
	if err != nil {
		return nil, err
	}
	switch of := o.GetStreamOption().(type) {
	case *persistent.UpdateReq_Options_All:
	case *persistent.UpdateReq_Options_Stream:
		key.Source, err = streamOf(of.Stream.GetStreamIdentifier())
	default:
		//lint:ignore SA1019 the official Node client names the stream here and nowhere else
		key.Source, err = streamOf(o.GetStreamIdentifier())
	}
	if err != nil {
		return nil, err
	}
	group, err := s.groups.Group(key)
	if err != nil {
		return nil, groupStatus(ctx, key, err)
	}
	given, err := settingsOf(o.GetSettings(), o.GetSettings().GetNamedConsumerStrategy().String())
	if err != nil {
		return nil, groupStatus(ctx, key, err)
	}
	given.Told.StartFrom = group.Stand().Settings.Told.StartFrom
	if err := s.groups.Update(key, given); err != nil {
		return nil, groupStatus(ctx, key, err)
	}
	return &persistent.UpdateResp{}, nil
}

// Delete ends a group.
func (s *groupsOf) Delete(ctx context.Context, req *persistent.DeleteReq) (*persistent.DeleteResp, error) {
	if _, err := s.admit(ctx, Writer); err != nil {
		return nil, err
	}
	key, err := keyOf(req.GetOptions())
	if err != nil {
		return nil, err
	}
	if err := s.groups.Delete(key); err != nil {
		return nil, groupStatus(ctx, key, err)
	}
	return &persistent.DeleteResp{}, nil
}

// GetInfo tells how a group stands.
func (s *groupsOf) GetInfo(ctx context.Context, req *persistent.GetInfoReq) (*persistent.GetInfoResp, error) {
	if _, err := s.admit(ctx, Reader); err != nil {
		return nil, err
	}
	key, err := keyOf(req.GetOptions())
	if err != nil {
		return nil, err
	}
	group, err := s.groups.Group(key)
	if err != nil {
		return nil, groupStatus(ctx, key, err)
	}
	return &persistent.GetInfoResp{SubscriptionInfo: info(group.Stand())}, nil
}

// List tells how all groups stand, or those of one stream.
func (s *groupsOf) List(ctx context.Context, req *persistent.ListReq) (*persistent.ListResp, error) {
	if _, err := s.admit(ctx, Reader); err != nil {
		return nil, err
	}
	of := req.GetOptions().GetListForStream()
	var source events.Stream
	switch {
	case of.GetStream() != nil:
		var err error
		if source, err = streamOf(of.GetStream()); err != nil {
			return nil, err
		}
	case of.GetAll() == nil && req.GetOptions().GetListAllSubscriptions() == nil:
		return nil, status.Error(codes.InvalidArgument, "list groups: a stream, all or list_all_subscriptions is required")
	}
	resp := &persistent.ListResp{}
	for _, group := range s.groups.All() {
		if of == nil || group.Key().Source == source {
			resp.Subscriptions = append(resp.Subscriptions, info(group.Stand()))
		}
	}
	if of != nil && len(resp.Subscriptions) == 0 {
		except(ctx, "persistent-subscription-does-not-exist", "stream-name", string(source), "group-name", "")
		return nil, status.Error(codes.NotFound, "list groups: there are none of this stream")
	}
	return resp, nil
}

// ReplayParked hands out again what a group set aside.
func (s *groupsOf) ReplayParked(ctx context.Context, req *persistent.ReplayParkedReq) (*persistent.ReplayParkedResp, error) {
	if _, err := s.admit(ctx, Writer); err != nil {
		return nil, err
	}
	o := req.GetOptions()
	key, err := keyOf(o)
	if err != nil {
		return nil, err
	}
	group, err := s.groups.Group(key)
	if err != nil {
		return nil, groupStatus(ctx, key, err)
	}
	most := 0 // all
	switch stop := o.GetStopAtOption().(type) {
	case *persistent.ReplayParkedReq_Options_NoLimit:
	case *persistent.ReplayParkedReq_Options_StopAt:
		if stop.StopAt < 0 {
			return nil, status.Error(codes.InvalidArgument, "replay: stop_at is negative")
		}
		if stop.StopAt == 0 {
			return &persistent.ReplayParkedResp{}, nil
		}
		most = int(stop.StopAt)
	default:
		return nil, status.Error(codes.InvalidArgument, "replay: stop_at or no_limit is required")
	}
	if err := group.Replay(most); err != nil {
		return nil, groupStatus(ctx, key, err)
	}
	return &persistent.ReplayParkedResp{}, nil
}

// RestartSubsystem ends all consumers, which are told to come again, and reads
// the groups from the store. One that had stopped goes on.
func (s *groupsOf) RestartSubsystem(ctx context.Context, _ *shared.Empty) (*shared.Empty, error) {
	if _, err := s.admit(ctx, Writer); err != nil {
		return nil, err
	}
	if err := s.groups.Restart(s.draining); err != nil {
		return nil, groupStatus(ctx, groups.Key{}, err)
	}
	return none, nil
}

// info tells clients how a group stands.
func info(g groups.Stand) *persistent.SubscriptionInfo {
	source, state := string(g.Source), "Live"
	if source == "" {
		source = "$all"
	}
	if g.Ended != nil {
		state = "Faulted"
	}
	set := g.Settings
	m := &persistent.SubscriptionInfo{
		EventSource: source, GroupName: g.Name, Status: state,
		TotalItems:                    g.Total,
		LastCheckpointedEventPosition: toldPlace(g.Saved, g.Source),
		LastKnownEventPosition:        toldPlace(g.Read, g.Source),
		ResolveLinkTos:                set.Told.ResolveLinks,
		StartFrom:                     set.Told.StartFrom,
		MessageTimeoutMilliseconds:    int32(set.MessageTimeout.Milliseconds()),
		ExtraStatistics:               set.Told.ExtraStatistics,
		MaxRetryCount:                 int32(set.MaxRetries),
		LiveBufferSize:                set.Told.LiveBuffer,
		BufferSize:                    cmp.Or(set.Told.HistoryBuffer, int32(set.Buffer)),
		ReadBatchSize:                 set.Told.ReadBatch,
		CheckPointAfterMilliseconds:   int32(set.CheckpointAfter.Milliseconds()),
		MinCheckPointCount:            int32(set.MinCheckpoint),
		MaxCheckPointCount:            int32(set.MaxCheckpoint),
		ReadBufferCount:               int32(g.Waiting),
		RetryBufferCount:              int32(g.Retried),
		TotalInFlightMessages:         int32(g.InHand),
		OutstandingMessagesCount:      int32(g.InHand),
		NamedConsumerStrategy:         string(set.Strategy),
		MaxSubscriberCount:            int32(set.MaxConsumers),
		ParkedMessageCount:            int64(g.Parked),
	}
	for _, c := range g.Consumers {
		m.Connections = append(m.Connections, &persistent.SubscriptionInfo_ConnectionInfo{
			From: c.From, Username: c.User, TotalItems: c.Total, ConnectionName: c.Name,
			AvailableSlots: int32(c.Room - c.InHand), InFlightMessages: int32(c.InHand),
		})
	}
	return m
}
