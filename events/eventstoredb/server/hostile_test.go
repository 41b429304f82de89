package server_test

import (
	"bytes"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/settlement-ledger/ledger/events/eventstest"
)

// hostileFrames is how many frames a hostile client sends at most.
var hostileFrames = uint32(rounds(500, 1_000_000))

// hostile are frames that a client sends repeatedly without reading a response.
// The i-th frame is of stream 2i+1.
var hostile = map[string]func(f *http2.Framer, headers []byte, i uint32) error{
	"resets": func(f *http2.Framer, headers []byte, i uint32) error {
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: headers, EndHeaders: true}); err != nil {
			return err
		}
		return f.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
	},
	"calls": func(f *http2.Framer, headers []byte, i uint32) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: headers, EndHeaders: true})
	},
	"pings":    func(f *http2.Framer, _ []byte, i uint32) error { return f.WritePing(false, [8]byte{byte(i)}) },
	"settings": func(f *http2.Framer, _ []byte, _ uint32) error { return f.WriteSettings() },
	"windows":  func(f *http2.Framer, _ []byte, _ uint32) error { return f.WriteWindowUpdate(0, 1<<30) },
	"continuations": func(f *http2.Framer, headers []byte, i uint32) error {
		if i == 0 {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers})
		}
		return f.WriteContinuation(1, false, bytes.Repeat([]byte{0x40, 1, 'a', 1, 'b'}, 3000))
	},
	"large headers": func(f *http2.Framer, headers []byte, i uint32) error {
		more := append(bytes.Clone(headers), bytes.Repeat([]byte{0x40, 1, 'a', 1, 'b'}, 3000)...)
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: more, EndHeaders: true})
	},
	"data of no stream": func(f *http2.Framer, _ []byte, i uint32) error {
		return f.WriteData(2*i+1, false, make([]byte, 16<<10))
	},
	"data of one stream": func(f *http2.Framer, headers []byte, i uint32) error {
		if i == 0 {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers, EndHeaders: true})
		}
		return f.WriteData(1, false, append([]byte{0, 0, 0xff, 0xff, 0xff}, make([]byte, 16_000)...))
	},
	"garbage": func(f *http2.Framer, _ []byte, i uint32) error {
		return f.WriteRawFrame(http2.FrameType(i), http2.Flags(i>>3), i&7, bytes.Repeat([]byte{0xff}, 1000))
	},
}

// appendHeaders are the headers of an append.
func appendHeaders() []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/event_store.client.streams.Streams/Append"}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // a buffer takes all
	}
	return block.Bytes()
}

// Clients that send hostile frames grow the server's heap by a bounded amount,
// and do not block other clients.
func TestHostileFramesDelayNoOtherClient(t *testing.T) {
	address := serve(t, eventstest.NewSlice(), everything)
	honest := connect(t, address)
	mustAppend(t, honest, "s-1", esdb.Any{}, proposed("A", ""))
	for name, send := range hostile {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var flooding sync.WaitGroup
			for range 2 {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				flooding.Go(func() {
					defer c.Close()
					flood(c, send)
				})
			}
			for range 10 {
				mustAppend(t, honest, "s-1", esdb.Any{}, proposed("A", ""))
			}
			flooding.Wait()
			mustAppend(t, honest, "s-1", esdb.Any{}, proposed("A", ""))
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
				t.Errorf("the heap grew by %d MiB", grown>>20)
			}
		})
	}
}

// flood sends frames until the server closes the connection or its deadline
// passes.
func flood(c net.Conn, send func(f *http2.Framer, headers []byte, i uint32) error) {
	_ = c.SetDeadline(time.Now().Add(time.Duration(hostileFrames) * time.Millisecond))
	if _, err := c.Write([]byte(http2.ClientPreface)); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	f.AllowIllegalWrites = true
	headers, err := appendHeaders(), f.WriteSettings()
	for i := uint32(0); err == nil && i < hostileFrames; i++ {
		err = send(f, headers, i)
	}
}
