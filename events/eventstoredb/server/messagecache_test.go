package server

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/protobuf/proto"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// Concurrent subscribers of both UUID formats receive, from the cache, the
// response that the entry encodes to; entries share slots, and are small or too
// large for the cache.
func TestCachedMessageEqualsItsEvent(t *testing.T) {
	t.Parallel()
	var all messageCaches
	var running sync.WaitGroup
	for _, ids := range []uuidFormat{structuredUUID, textUUID, structuredUUID, textUUID} {
		running.Go(func() {
			for n := uint64(1); n < 2*cacheSlots; n++ {
				e := entryAt(n)
				m, err := all.of(ids).message(e, ids)
				if err != nil {
					t.Error(err)
					return
				}
				want, _ := eventResponse(e, ids)
				if got := overTheWire(t, m); !proto.Equal(got, want) {
					t.Errorf("the message of entry %d is %v, want %v", n, got, want)
				}
			}
		})
	}
	running.Wait()
	keeps := 0
	for i := range all.structuredUUID {
		if k := all.structuredUUID[i].Load(); k != nil {
			keeps++
			if size := proto.Size(k.message); size > maxCachedBytes {
				t.Errorf("a message of %d bytes is kept, want at most %d", size, maxCachedBytes)
			}
		}
	}
	if keeps != cacheSlots {
		t.Errorf("%d messages are kept, want %d", keeps, cacheSlots)
	}
}

func entryAt(n uint64) events.Entry {
	e := events.Entry{Stream: "a-1", Revision: events.Revision(n), Position: events.NewPosition(n, n)}
	e.ID = domain.EventIDFromBytes([16]byte{1, 14: byte(n >> 8), 15: byte(n)})
	e.Kind, e.Version, e.Time = fmt.Sprint("K", n), 1, time.Unix(int64(n), 0).UTC()
	e.Data = []byte(`{"a":1}`)
	if n%7 == 0 {
		e.Data = bytes.Repeat([]byte("x"), maxCachedBytes)
	}
	return e
}

// overTheWire returns a message as its client decodes it.
func overTheWire(t testing.TB, m *streams.ReadResp) *streams.ReadResp {
	encoded, err := proto.Marshal(m)
	if err != nil {
		t.Error(err)
	}
	got := &streams.ReadResp{}
	if err := proto.Unmarshal(encoded, got); err != nil {
		t.Error(err)
	}
	return got
}
