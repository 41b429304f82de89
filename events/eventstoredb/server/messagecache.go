package server

import (
	"sync/atomic"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/protobuf/proto"

	"github.com/settlement-ledger/ledger/events"
)

// The bounds of a messageCache.
const (
	// cacheSlots is the number of entries.
	cacheSlots = 256
	// maxCachedBytes bounds the encoded bytes of one message, so that a cache has
	// at most 2 MiB.
	maxCachedBytes = 8 << 10
)

// A cachedMessage is the response for one entry. It holds the response in encoded
// form, so sending it copies bytes and encodes no fields. It is immutable, since
// several subscriptions send it at once.
type cachedMessage struct {
	position events.Position
	message  *streams.ReadResp
}

// A messageCache caches the responses for the most recent entries. All
// subscriptions that have caught up send the same entries, and share their
// encoding: an entry is encoded about once, and not once for each subscriber. A
// slot holds the entry written last among the entries whose commit positions are
// congruent modulo cacheSlots. It is safe for concurrent use and takes no lock;
// two subscribers that miss at the same time both encode the entry.
type messageCache [cacheSlots]atomic.Pointer[cachedMessage]

// message returns the response for an entry, from the cache or newly encoded. The
// caller must not change it. A message over maxCachedBytes is returned without
// being cached. DATA_LOSS reports a record that has no event.
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
	// protobuf marshals unknown fields by copying them.
	m = &streams.ReadResp{}
	m.ProtoReflect().SetUnknown(encoded)
	slot.Store(&cachedMessage{position: e.Position, message: m})
	return m, nil
}

// messageCaches holds one cache for each form of UUIDs on the wire, because the
// encoded responses of the two forms differ.
type messageCaches struct{ structuredUUID, textUUID messageCache }

// of returns the cache for a UUID format. It encodes the zero UUID to find out
// the format, since functions cannot be compared.
func (g *messageCaches) of(ids uuidFormat) *messageCache {
	if ids([16]byte{}).GetStructured() == nil {
		return &g.textUUID
	}
	return &g.structuredUUID
}
