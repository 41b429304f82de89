package server

import (
	"math"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events"
)

// A readRequest is a validated request to Streams.Read. It is immutable after
// parseReadRequest.
type readRequest struct {
	// stream is the stream to read; empty means $all.
	stream   events.Stream
	from     startPoint
	backward bool
	// count is the maximal number of events of a read. A subscription has no
	// limit.
	count uint64
	// live is set if the request is a subscription.
	live bool
	// filter is nil without a filter, and for every read of a stream.
	filter *filter
	// ids is the form of UUIDs that the client requests.
	ids uuidFormat
	// wantsLastPosition is set if the client understands the message
	// LastStreamPosition.
	wantsLastPosition bool
	// links is set if the client wants links resolved to their targets.
	links bool
}

// atEnd is the revision, and each half of the position, by which clients mean
// the end.
const atEnd = math.MaxUint64

// A startPoint is where a read begins: at the start, at the end, at a revision of
// a stream, or at a position in $all. At most one field is set, except that atEnd
// in revision or position also sets end.
type startPoint struct {
	start, end bool
	revision   uint64          // zero-based, as on the wire
	position   events.Position // in $all
}

// parseReadRequest validates the options of a read. It returns INVALID_ARGUMENT
// for a missing, unknown or contradictory option, and names the option.
func parseReadRequest(o *streams.ReadReq_Options) (q readRequest, err error) {
	if o == nil {
		return q, missingField("options")
	}
	switch o.ReadDirection {
	case streams.ReadReq_Options_Forwards:
	case streams.ReadReq_Options_Backwards:
		q.backward = true
	default:
		return q, status.Errorf(codes.InvalidArgument, "read: unknown direction %d", o.ReadDirection)
	}
	q.links = o.ResolveLinks
	q.wantsLastPosition = o.GetControlOption().GetCompatibility() >= 1
	switch o.GetUuidOption().GetContent().(type) {
	case *streams.ReadReq_Options_UUIDOption_Structured:
		q.ids = structuredUUID
	case *streams.ReadReq_Options_UUIDOption_String_:
		q.ids = textUUID
	default:
		return q, missingField("uuid_option")
	}
	switch c := o.CountOption.(type) {
	case *streams.ReadReq_Options_Count:
		q.count = c.Count
	case *streams.ReadReq_Options_Subscription:
		q.live = true
		if q.backward {
			return q, status.Error(codes.InvalidArgument, "read: a subscription cannot read backwards")
		}
	default:
		return q, missingField("count or subscription")
	}
	if err := q.parseSource(o); err != nil {
		return q, err
	}
	switch f := o.FilterOption.(type) {
	case *streams.ReadReq_Options_NoFilter:
	case *streams.ReadReq_Options_Filter:
		if q.stream != "" {
			return q, status.Error(codes.InvalidArgument, "read: only $all takes a filter")
		}
		q.filter, err = filterOf(f.Filter, q.live)
	default:
		return q, missingField("filter or no_filter")
	}
	return q, err
}

// missingField returns INVALID_ARGUMENT for a read without a required field.
func missingField(field string) error {
	return status.Errorf(codes.InvalidArgument, "read: %s is required", field)
}

// parseSource reads the stream, or $all, and the start point from the options. It
// returns INVALID_ARGUMENT if one of them is missing.
func (q *readRequest) parseSource(o *streams.ReadReq_Options) (err error) {
	switch s := o.StreamOption.(type) {
	case *streams.ReadReq_Options_Stream:
		if q.stream, err = parseStream(s.Stream.GetStreamIdentifier()); err != nil {
			return err
		}
		switch r := s.Stream.RevisionOption.(type) {
		case *streams.ReadReq_Options_StreamOptions_Revision:
			q.from.revision, q.from.end = r.Revision, r.Revision == atEnd
		case *streams.ReadReq_Options_StreamOptions_Start:
			q.from.start = true
		case *streams.ReadReq_Options_StreamOptions_End:
			q.from.end = true
		default:
			return missingField("a revision, start or end")
		}
	case *streams.ReadReq_Options_All:
		switch p := s.All.GetAllOption().(type) {
		case *streams.ReadReq_Options_AllOptions_Position:
			q.from.position = events.NewPosition(p.Position.GetCommitPosition(), p.Position.GetPreparePosition())
			q.from.end = p.Position.GetCommitPosition() == atEnd && p.Position.GetPreparePosition() == atEnd
		case *streams.ReadReq_Options_AllOptions_Start:
			q.from.start = true
		case *streams.ReadReq_Options_AllOptions_End:
			q.from.end = true
		default:
			return missingField("a position, start or end")
		}
	default:
		return missingField("a stream or all")
	}
	return nil
}
