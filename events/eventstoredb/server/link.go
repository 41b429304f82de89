package server

import (
	"context"
	"strconv"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"

	"github.com/settlement-ledger/ledger/events"
)

// linkKind is the event type of a link: an event that refers to another event.
// The data of a link name the target as REVISION@STREAM, with the revision as on
// the wire, from 0.
const linkKind = "$>"

// linkTarget returns the entry that a link names, or the zero Entry if the data
// do not parse or no such entry exists. It follows one link, as EventStoreDB
// does: the target of a link to a link is a link.
func (s *Server) linkTarget(ctx context.Context, link events.Entry) (events.Entry, error) {
	number, stream, ok := strings.Cut(string(link.Data), "@")
	revision, err := strconv.ParseUint(number, 10, 63)
	if !ok || err != nil || stream == "" {
		return events.Entry{}, nil
	}
	return s.entry(ctx, events.Stream(stream), events.Revision(revision)+1)
}

// resolvedResponse returns the response with a link and its target. If the target
// does not exist, the response has the link and no event, which clients show as
// an unresolved link.
func (s *Server) resolvedResponse(ctx context.Context, link events.Entry, ids uuidFormat) (*streams.ReadResp, error) {
	target, err := s.linkTarget(ctx, link)
	if err != nil {
		return nil, err
	}
	m, err := eventResponse(link, ids)
	if err != nil {
		return nil, err
	}
	event := m.GetEvent()
	event.Link, event.Event = event.Event, nil
	if !target.ID.IsZero() {
		event.Event, err = recordedEvent(target, ids)
	}
	return m, err
}

// message returns the response for an entry. If the entry is a link and the
// request asks to resolve links, message also reads the target from its stream.
func (s *Server) message(ctx context.Context, q *readRequest, e events.Entry) (*streams.ReadResp, error) {
	if q.links && e.Kind == linkKind {
		return s.resolvedResponse(ctx, e, q.ids)
	}
	return eventResponse(e, q.ids)
}
