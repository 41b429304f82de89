package server

import (
	"math"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events"
)

// A question is what a caller asks to read, once it is known to make sense.
type readRequest struct {
	stream            events.Stream // empty: all
	from              startPoint
	backward          bool
	count             uint64 // of a reading
	live              bool   // a subscription
	filter            *filter
	ids               uuidFormat
	wantsLastPosition bool // the caller knows the messages of newer servers
	links             bool // what links name is sent with them
}

// The largest revision, and each part of the largest position, name the end.
const atEnd = math.MaxUint64

// A place is where a reading begins: before everything, behind everything, or
// at a revision or position.
type startPoint struct {
	start, end bool
	revision   uint64          // as the protocol counts: the first is 0
	position   events.Position // of the order of all
}

// parseReadRequest reads a request. What it lacks is INVALID_ARGUMENT.
func parseReadRequest(o *streams.ReadReq_Options) (q readRequest, err error) {
	if o == nil {
		return q, missingField("options")
	}
	switch o.ReadDirection {
	case streams.ReadReq_Options_Forwards:
	case streams.ReadReq_Options_Backwards:
		q.backward = true
	default:
		return q, status.Errorf(codes.InvalidArgument, "read: there is no direction %d", o.ReadDirection)
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
			return q, status.Error(codes.InvalidArgument, "read: a subscription goes forwards")
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

func missingField(field string) error {
	return status.Errorf(codes.InvalidArgument, "read: %s is required", field)
}

// parseSource reads which stream is asked for, and from which place.
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
