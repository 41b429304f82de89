package server

import (
	"math"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events"
)

// A question is what a caller asks to read, once it is known to make sense.
type question struct {
	stream   events.Stream // empty: all
	from     place
	backward bool
	count    uint64 // of a reading
	live     bool   // a subscription
	filter   *filter
	ids      idForm
	newer    bool // the caller knows the messages of newer servers
	links    bool // what links name is sent with them
}

// The largest revision, and each part of the largest position, name the end.
const atEnd = math.MaxUint64

// A place is where a reading begins: before everything, behind everything, or
// at a revision or position.
type place struct {
	start, end bool
	revision   uint64          // as the protocol counts: the first is 0
	position   events.Position // of the order of all
}

// ask reads a request. What it lacks is INVALID_ARGUMENT.
func ask(o *streams.ReadReq_Options) (q question, err error) {
	if o == nil {
		return q, lacking("options")
	}
	switch o.ReadDirection {
	case streams.ReadReq_Options_Forwards:
	case streams.ReadReq_Options_Backwards:
		q.backward = true
	default:
		return q, status.Errorf(codes.InvalidArgument, "read: there is no direction %d", o.ReadDirection)
	}
	q.links = o.ResolveLinks
	q.newer = o.GetControlOption().GetCompatibility() >= 1
	switch o.GetUuidOption().GetContent().(type) {
	case *streams.ReadReq_Options_UUIDOption_Structured:
		q.ids = structured
	case *streams.ReadReq_Options_UUIDOption_String_:
		q.ids = spelled
	default:
		return q, lacking("uuid_option")
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
		return q, lacking("count or subscription")
	}
	if err := q.where(o); err != nil {
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
		return q, lacking("filter or no_filter")
	}
	return q, err
}

func lacking(what string) error {
	return status.Errorf(codes.InvalidArgument, "read: %s is required", what)
}

// where reads which stream is asked for, and from which place.
func (q *question) where(o *streams.ReadReq_Options) (err error) {
	switch s := o.StreamOption.(type) {
	case *streams.ReadReq_Options_Stream:
		if q.stream, err = streamOf(s.Stream.GetStreamIdentifier()); err != nil {
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
			return lacking("a revision, start or end")
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
			return lacking("a position, start or end")
		}
	default:
		return lacking("a stream or all")
	}
	return nil
}
