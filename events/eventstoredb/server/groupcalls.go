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
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/groups"
)

// Create implements PersistentSubscriptions.Create: it validates the request,
// finds the start point in the log, and records the group. The caller needs the
// role Writer. A group with the same key gives ALREADY_EXISTS.
func (s *persistentService) Create(ctx context.Context, req *persistent.CreateReq) (*persistent.CreateResp, error) {
	if _, err := s.requireRole(ctx, auth.Writer); err != nil {
		return nil, err
	}
	o := req.GetOptions()
	def := groups.GroupConfig{QualifiedName: groups.QualifiedName{Name: o.GetGroupName()}}
	if err := checkGroupName(def.Name); err != nil {
		return nil, err
	}
	from, err := parseCreateSource(o, &def)
	if err != nil {
		return nil, err
	}
	strategy := o.GetSettings().GetConsumerStrategy()
	if strategy == "" {
		//lint:ignore SA1019 the official Go client names the strategy here and nowhere else
		strategy = o.GetSettings().GetNamedConsumerStrategy().String()
	}
	if def.Settings, err = parseSettings(o.GetSettings(), strategy); err != nil {
		return nil, groupStatus(ctx, def.QualifiedName, err)
	}
	if def.Start, err = s.start(ctx, def.Source, from); err != nil {
		return nil, statusOf(err)
	}
	def.Settings.Passthrough.StartFrom = from.format(def.Source)
	if err := s.groups.Create(def); err != nil {
		return nil, groupStatus(ctx, def.QualifiedName, err)
	}
	return &persistent.CreateResp{}, nil
}

// parseCreateSource reads the source, the filter and the start point of a new
// group. It sets the source and the filter of def and returns the start point, or
// INVALID_ARGUMENT. Old clients, and the official Node client, put the stream and
// the revision into deprecated fields.
func parseCreateSource(o *persistent.CreateReq_Options, def *groups.GroupConfig) (from startPoint, err error) {
	switch option := o.GetStreamOption().(type) {
	case *persistent.CreateReq_Options_All:
		switch p := option.All.GetAllOption().(type) {
		case *persistent.CreateReq_AllOptions_Position:
			from.position = events.NewPosition(p.Position.GetCommitPosition(), p.Position.GetPreparePosition())
			from.end = p.Position.GetCommitPosition() == atEnd && p.Position.GetPreparePosition() == atEnd
		case *persistent.CreateReq_AllOptions_Start:
			from.start = true
		case *persistent.CreateReq_AllOptions_End:
			from.end = true
		default:
			return from, missingField("a position, start or end")
		}
		if f := option.All.GetFilter(); f != nil {
			def.Filter, err = parseGroupFilter(f)
		}
		return from, err
	case *persistent.CreateReq_Options_Stream:
		def.Source, err = parseStream(option.Stream.GetStreamIdentifier())
		switch r := option.Stream.GetRevisionOption().(type) {
		case *persistent.CreateReq_StreamOptions_Revision:
			from.revision, from.end = r.Revision, r.Revision == atEnd
		case *persistent.CreateReq_StreamOptions_Start:
			from.start = true
		case *persistent.CreateReq_StreamOptions_End:
			from.end = true
		default:
			return from, missingField("a revision, start or end")
		}
		return from, err
	}
	//lint:ignore SA1019 the official Node client names the stream here and nowhere else
	def.Source, err = parseStream(o.GetStreamIdentifier())
	//lint:ignore SA1019 and the revision here
	from.revision = o.GetSettings().GetRevision()
	from.end = from.revision == atEnd
	return from, err
}

// parseGroupFilter reads a filter by stream or by event type. It does not
// validate the expression; Groups.Create does.
func parseGroupFilter(o *persistent.CreateReq_AllOptions_FilterOptions) (*groups.Filter, error) {
	switch f := o.GetFilter().(type) {
	case *persistent.CreateReq_AllOptions_FilterOptions_StreamIdentifier:
		return &groups.Filter{Prefixes: f.StreamIdentifier.GetPrefix(), Regex: f.StreamIdentifier.GetRegex()}, nil
	case *persistent.CreateReq_AllOptions_FilterOptions_EventType:
		return &groups.Filter{ByKind: true, Prefixes: f.EventType.GetPrefix(), Regex: f.EventType.GetRegex()}, nil
	}
	return nil, missingField("a filter by stream or by type")
}

// start returns the cursor after which a new group begins.
//
//   - For the end of the source, it is the current end, so that the group
//     delivers entries that are appended later.
//   - For a position or a revision, it is the cursor before that entry, so that
//     the group delivers the entry itself.
//
// A position after the end of the log gives INVALID_ARGUMENT.
func (s *Server) start(ctx context.Context, source events.Stream, from startPoint) (p groups.Cursor, err error) {
	switch {
	case from.start:
	case from.end && source == "":
		p.Position, err = s.head(ctx)
	case from.end:
		p.Revision, err = s.length(ctx, source)
	case source == "":
		p.Position = justBefore(from.position)
		err = s.checkPosition(ctx, from)
	default:
		p.Revision = events.Revision(from.revision)
	}
	return p, err
}

// format returns a start point as clients parse it: a revision, or the two parts
// of a position. Each number is -1 for the end.
func (p startPoint) format(source events.Stream) string {
	switch {
	case p.end && source == "":
		return "C:-1/P:-1"
	case p.end:
		return "-1"
	case source == "":
		return formatPosition(p.position)
	}
	return strconv.FormatUint(p.revision, 10)
}

// formatPosition returns a position as clients parse it: C:COMMIT/P:PREPARE.
func formatPosition(p events.Position) string {
	commit, prepare := p.Parts()
	return fmt.Sprintf("C:%d/P:%d", commit, prepare)
}

// formatCheckpoint returns the last entry before a cursor as clients parse it, or
// an empty string for a cursor at the start.
func formatCheckpoint(p groups.Cursor, source events.Stream) string {
	switch {
	case source == "" && !p.Position.IsZero():
		return formatPosition(p.Position)
	case source != "" && p.Revision > 0:
		return strconv.FormatUint(uint64(p.Revision)-1, 10)
	}
	return ""
}

// groupSettings is implemented by the settings in requests to create and to
// update a group. A duration has two fields, in ticks and in milliseconds; a
// client sets one of them.
type groupSettings interface {
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

// parseSettings converts settings from the protocol. A group has one buffer, as
// large as the larger of the history and live buffers of EventStoreDB. The other
// buffer sizes are stored for display only. It returns groups.ErrBadGroup for
// sizes below 1, sizes over maxBuffer, and durations that are negative or too
// long.
func parseSettings(o groupSettings, strategy string) (groups.Settings, error) {
	if o.GetLiveBufferSize() <= 0 || o.GetReadBatchSize() <= 0 || o.GetHistoryBufferSize() <= 0 {
		return groups.Settings{}, fmt.Errorf("%w: the live buffer, history buffer and read batch must be at least 1", groups.ErrBadGroup)
	}
	buffer := max(o.GetHistoryBufferSize(), o.GetLiveBufferSize())
	if buffer > maxBuffer {
		return groups.Settings{}, fmt.Errorf("%w: the buffer is limited to %d entries, and the request has %d", groups.ErrBadGroup, maxBuffer, buffer)
	}
	if o.GetMaxCheckpointCount() < 0 {
		return groups.Settings{}, fmt.Errorf("%w: the maximal checkpoint count %d is negative", groups.ErrBadGroup, o.GetMaxCheckpointCount())
	}
	timeout, err := parseDuration(o.GetMessageTimeoutTicks(), o.GetMessageTimeoutMs())
	if err != nil {
		return groups.Settings{}, err
	}
	after, err := parseDuration(o.GetCheckpointAfterTicks(), o.GetCheckpointAfterMs())
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
		Passthrough: groups.PassthroughSettings{
			LiveBuffer: o.GetLiveBufferSize(), HistoryBuffer: o.GetHistoryBufferSize(), ReadBatch: o.GetReadBatchSize(),
			ResolveLinks: o.GetResolveLinks(), ExtraStatistics: o.GetExtraStatistics(),
		},
	}, nil
}

// The bounds of a group's settings.
const (
	maxBuffer = 100_000 // entries
	maxTicks  = 1 << 53 // ticks of 100 ns: 28 years
)

// parseDuration returns a duration that a client sends either in ticks of 100
// ns or in milliseconds; the argument that the client did not send is 0. It
// returns groups.ErrBadGroup for a negative number and for more than maxTicks
// ticks.
func parseDuration(ticks int64, ms int32) (time.Duration, error) {
	if ticks < 0 || ticks > maxTicks || ms < 0 {
		return 0, fmt.Errorf("%w: a time of %d ticks and %d ms is negative or longer than %d ticks", groups.ErrBadGroup, ticks, ms, int64(maxTicks))
	}
	return time.Duration(ticks)*100*time.Nanosecond + time.Duration(ms)*time.Millisecond, nil
}

// Update implements PersistentSubscriptions.Update. It replaces the settings of a
// group and keeps its consumers. It ignores the start point and the filter of the
// request: the group continues from its checkpoint.
func (s *persistentService) Update(ctx context.Context, req *persistent.UpdateReq) (*persistent.UpdateResp, error) {
	if _, err := s.requireRole(ctx, auth.Writer); err != nil {
		return nil, err
	}
	o := req.GetOptions()
	key := groups.QualifiedName{Name: o.GetGroupName()}
	err := checkGroupName(key.Name)
	if err != nil {
		return nil, err
	}
	switch option := o.GetStreamOption().(type) {
	case *persistent.UpdateReq_Options_All:
	case *persistent.UpdateReq_Options_Stream:
		key.Source, err = parseStream(option.Stream.GetStreamIdentifier())
	default:
		//lint:ignore SA1019 the official Node client names the stream here and nowhere else
		key.Source, err = parseStream(o.GetStreamIdentifier())
	}
	if err != nil {
		return nil, err
	}
	group, err := s.groups.Group(key)
	if err != nil {
		return nil, groupStatus(ctx, key, err)
	}
	updated, err := parseSettings(o.GetSettings(), o.GetSettings().GetNamedConsumerStrategy().String())
	if err != nil {
		return nil, groupStatus(ctx, key, err)
	}
	updated.Passthrough.StartFrom = group.Stats().Settings.Passthrough.StartFrom
	if err := s.groups.Update(key, updated); err != nil {
		return nil, groupStatus(ctx, key, err)
	}
	return &persistent.UpdateResp{}, nil
}

// Delete implements PersistentSubscriptions.Delete. It ends the consumers of the
// group with ABORTED.
func (s *persistentService) Delete(ctx context.Context, req *persistent.DeleteReq) (*persistent.DeleteResp, error) {
	if _, err := s.requireRole(ctx, auth.Writer); err != nil {
		return nil, err
	}
	key, err := parseKey(req.GetOptions())
	if err != nil {
		return nil, err
	}
	if err := s.groups.Delete(key); err != nil {
		return nil, groupStatus(ctx, key, err)
	}
	return &persistent.DeleteResp{}, nil
}

// GetInfo implements PersistentSubscriptions.GetInfo: it returns the settings,
// the progress and the consumers of one group.
func (s *persistentService) GetInfo(ctx context.Context, req *persistent.GetInfoReq) (*persistent.GetInfoResp, error) {
	if _, err := s.requireRole(ctx, auth.Reader); err != nil {
		return nil, err
	}
	key, err := parseKey(req.GetOptions())
	if err != nil {
		return nil, err
	}
	group, err := s.groups.Group(key)
	if err != nil {
		return nil, groupStatus(ctx, key, err)
	}
	return &persistent.GetInfoResp{SubscriptionInfo: subscriptionInfo(group.Stats())}, nil
}

// List implements PersistentSubscriptions.List: it returns the groups of one
// stream, of $all, or all groups. A source without groups gives NOT_FOUND, as in
// EventStoreDB; a server without groups gives an empty list.
func (s *persistentService) List(ctx context.Context, req *persistent.ListReq) (*persistent.ListResp, error) {
	if _, err := s.requireRole(ctx, auth.Reader); err != nil {
		return nil, err
	}
	option := req.GetOptions().GetListForStream()
	var source events.Stream
	switch {
	case option.GetStream() != nil:
		var err error
		if source, err = parseStream(option.GetStream()); err != nil {
			return nil, err
		}
	case option.GetAll() == nil && req.GetOptions().GetListAllSubscriptions() == nil:
		return nil, status.Error(codes.InvalidArgument, "list groups: a stream, all or list_all_subscriptions is required")
	}
	resp := &persistent.ListResp{}
	for _, group := range s.groups.All() {
		if option == nil || group.Key().Source == source {
			resp.Subscriptions = append(resp.Subscriptions, subscriptionInfo(group.Stats()))
		}
	}
	if option != nil && len(resp.Subscriptions) == 0 {
		setException(ctx, "persistent-subscription-does-not-exist", "stream-name", string(source), "group-name", "")
		return nil, status.Error(codes.NotFound, "list groups: the stream has no groups")
	}
	return resp, nil
}

// ReplayParked implements PersistentSubscriptions.ReplayParked: it queues parked
// entries for delivery, the oldest first, all or up to stop_at entries. It
// returns before the group delivers the entries.
func (s *persistentService) ReplayParked(ctx context.Context, req *persistent.ReplayParkedReq) (*persistent.ReplayParkedResp, error) {
	if _, err := s.requireRole(ctx, auth.Writer); err != nil {
		return nil, err
	}
	o := req.GetOptions()
	key, err := parseKey(o)
	if err != nil {
		return nil, err
	}
	group, err := s.groups.Group(key)
	if err != nil {
		return nil, groupStatus(ctx, key, err)
	}
	limit := 0 // 0: all
	switch stop := o.GetStopAtOption().(type) {
	case *persistent.ReplayParkedReq_Options_NoLimit:
	case *persistent.ReplayParkedReq_Options_StopAt:
		if stop.StopAt < 0 {
			return nil, status.Error(codes.InvalidArgument, "replay: stop_at is negative")
		}
		if stop.StopAt == 0 {
			return &persistent.ReplayParkedResp{}, nil
		}
		limit = int(stop.StopAt)
	default:
		return nil, status.Error(codes.InvalidArgument, "replay: stop_at or no_limit is required")
	}
	if err := group.Replay(limit); err != nil {
		return nil, groupStatus(ctx, key, err)
	}
	return &persistent.ReplayParkedResp{}, nil
}

// RestartSubsystem implements PersistentSubscriptions.RestartSubsystem. It ends
// all consumers with UNAVAILABLE, which makes clients reconnect, and reloads the
// groups from the store, including groups that had stopped after an error of the
// store.
func (s *persistentService) RestartSubsystem(ctx context.Context, _ *shared.Empty) (*shared.Empty, error) {
	if _, err := s.requireRole(ctx, auth.Writer); err != nil {
		return nil, err
	}
	if err := s.groups.Restart(s.draining); err != nil {
		return nil, groupStatus(ctx, groups.QualifiedName{}, err)
	}
	return emptyMessage, nil
}

// subscriptionInfo encodes the statistics of a group. The state is Live, or
// Faulted for a group that has ended. All waiting entries count as its read
// buffer.
func subscriptionInfo(g groups.Stats) *persistent.SubscriptionInfo {
	source, state := string(g.Source), "Live"
	if source == "" {
		source = "$all"
	}
	if g.Ended != nil {
		state = "Faulted"
	}
	s := g.Settings
	m := &persistent.SubscriptionInfo{
		EventSource: source, GroupName: g.Name, Status: state,
		TotalItems:                    g.Total,
		LastCheckpointedEventPosition: formatCheckpoint(g.Saved, g.Source),
		LastKnownEventPosition:        formatCheckpoint(g.Read, g.Source),
		ResolveLinkTos:                s.Passthrough.ResolveLinks,
		StartFrom:                     s.Passthrough.StartFrom,
		MessageTimeoutMilliseconds:    int32(s.MessageTimeout.Milliseconds()),
		ExtraStatistics:               s.Passthrough.ExtraStatistics,
		MaxRetryCount:                 int32(s.MaxRetries),
		LiveBufferSize:                s.Passthrough.LiveBuffer,
		BufferSize:                    cmp.Or(s.Passthrough.HistoryBuffer, int32(s.Buffer)),
		ReadBatchSize:                 s.Passthrough.ReadBatch,
		CheckPointAfterMilliseconds:   int32(s.CheckpointAfter.Milliseconds()),
		MinCheckPointCount:            int32(s.MinCheckpoint),
		MaxCheckPointCount:            int32(s.MaxCheckpoint),
		ReadBufferCount:               int32(g.Waiting),
		RetryBufferCount:              int32(g.Retried),
		TotalInFlightMessages:         int32(g.InFlight),
		OutstandingMessagesCount:      int32(g.InFlight),
		NamedConsumerStrategy:         string(s.Strategy),
		MaxSubscriberCount:            int32(s.MaxConsumers),
		ParkedMessageCount:            int64(g.Parked),
	}
	for _, c := range g.Consumers {
		m.Connections = append(m.Connections, &persistent.SubscriptionInfo_ConnectionInfo{
			From: c.From, Username: c.User, TotalItems: c.Total, ConnectionName: c.Name,
			AvailableSlots: int32(c.Capacity - c.InFlight), InFlightMessages: int32(c.InFlight),
		})
	}
	return m
}
