package server

import (
	"sync/atomic"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/protobuf/proto"

	"github.com/settlement-ledger/ledger/events"
)

// The bounds of what is kept for subscribers that are current.
const (
	keptMessages = 256
	keptBytes    = 8 << 10 // of one; all are 2 MiB at most
)

// A kept message tells of an entry. It is encoded, and to send it is to copy
// that.
type kept struct {
	position events.Position
	message  *streams.ReadResp
}

// A gallery keeps the messages that current subscribers were sent last, as all
// of them are sent the same. It is safe for concurrent use.
type gallery [keptMessages]atomic.Pointer[kept]

// message returns the message that tells of an entry. It is not changed.
func (g *gallery) message(e events.Entry, ids idForm) (*streams.ReadResp, error) {
	commit, _ := e.Position.Parts()
	slot := &g[commit%keptMessages]
	if k := slot.Load(); k != nil && k.position == e.Position {
		return k.message, nil
	}
	m, err := event(e, ids)
	if err != nil {
		return nil, err
	}
	if proto.Size(m) > keptBytes {
		return m, nil
	}
	encoded, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	// A message of fields that are not known is encoded as they stand.
	m = &streams.ReadResp{}
	m.ProtoReflect().SetUnknown(encoded)
	slot.Store(&kept{position: e.Position, message: m})
	return m, nil
}

// galleries are one for each form of IDs.
type galleries struct{ structured, spelled gallery }

func (g *galleries) of(ids idForm) *gallery {
	if ids([16]byte{}).GetStructured() == nil {
		return &g.spelled
	}
	return &g.structured
}
