package server

import (
	"sync/atomic"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/protobuf/proto"

	"github.com/settlement-ledger/ledger/events"
)

// The bounds of what is kept for subscribers that are current.
const (
	cacheSlots     = 256
	maxCachedBytes = 8 << 10 // of one; all are 2 MiB at most
)

// A kept message tells of an entry. It is encoded, and to send it is to copy
// that.
type cachedMessage struct {
	position events.Position
	message  *streams.ReadResp
}

// A gallery keeps the messages that current subscribers were sent last, as all
// of them are sent the same. It is safe for concurrent use.
type messageCache [cacheSlots]atomic.Pointer[cachedMessage]

// message returns the message that tells of an entry. It is not changed.
func (g *messageCache) message(e events.Entry, ids uuidFormat) (*streams.ReadResp, error) {
	commit, _ := e.Position.Parts()
	slot := &g[commit%cacheSlots]
	if k := slot.Load(); k != nil && k.position == e.Position {
		return k.message, nil
	}
	m, err := eventResponse(e, ids)
	if err != nil {
		return nil, err
	}
	if proto.Size(m) > maxCachedBytes {
		return m, nil
	}
	encoded, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	// A message of fields that are not known is encoded as they stand.
	m = &streams.ReadResp{}
	m.ProtoReflect().SetUnknown(encoded)
	slot.Store(&cachedMessage{position: e.Position, message: m})
	return m, nil
}

// messageCaches are one for each form of IDs.
type messageCaches struct{ structuredUUID, textUUID messageCache }

func (g *messageCaches) of(ids uuidFormat) *messageCache {
	if ids([16]byte{}).GetStructured() == nil {
		return &g.textUUID
	}
	return &g.structuredUUID
}
