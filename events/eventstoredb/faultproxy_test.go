package eventstoredb_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A faultProxy forwards calls between a client and a server unchanged, except for
// injected faults.
type faultProxy struct {
	address string
	mu      struct {
		sync.Mutex
		seen []proxiedCall
		fate func(proxiedCall) fault
	}
}

// A proxiedCall is a call that a faultProxy received.
type proxiedCall struct {
	method string
	n      int // number of earlier calls of the method
	header metadata.MD
}

// A fault is the treatment of a call. The zero fault forwards it.
type fault struct {
	refuse       error       // respond with this error without the server
	loseResponse error       // forward the call and respond with this error
	noResponse   bool        // forward the call and do not respond
	trailer      metadata.MD // of the error
	respond      []byte      // respond with this message without the server

	endWhen <-chan struct{} // ends the call when it is closed,
	endWith func() fault    // with the error of this fault
}

// newFaultProxy starts a proxy in front of a server, which ends with the test.
func newFaultProxy(t testing.TB, server string) *faultProxy {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	quick := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 2, MaxDelay: 50 * time.Millisecond}, MinConnectTimeout: time.Second}
	to, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(quick))
	if err != nil {
		t.Fatal(err)
	}
	m := &faultProxy{address: at.Addr().String()}
	s := grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}), grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(func(_ any, from grpc.ServerStream) error {
		return m.handle(from, to)
	}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(at) }) // it ends when it is stopped
	t.Cleanup(func() { s.Stop(); serving.Wait(); _ = to.Close() })
	return m
}

func (m *faultProxy) url() string { return "esdb://" + m.address + "?tls=false" }

// inject sets the function that decides the fault of each later call, and forgets the
// earlier calls.
func (m *faultProxy) inject(f func(proxiedCall) fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.fate = f
	m.mu.seen = nil
}

// calls returns the calls of a method since inject.
func (m *faultProxy) calls(method string) (found []proxiedCall) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.mu.seen {
		if h.method == method {
			found = append(found, h)
		}
	}
	return found
}

const (
	appendMethod = "/event_store.client.streams.Streams/Append"
	readMethod   = "/event_store.client.streams.Streams/Read"
)

func (m *faultProxy) observe(from grpc.ServerStream) fault {
	method, _ := grpc.MethodFromServerStream(from)
	h := proxiedCall{method: method, n: len(m.calls(method))}
	h.header, _ = metadata.FromIncomingContext(from.Context())
	m.mu.Lock()
	m.mu.seen = append(m.mu.seen, h)
	decide := m.mu.fate
	m.mu.Unlock()
	if decide == nil {
		return fault{}
	}
	return decide(h)
}

func (m *faultProxy) handle(from grpc.ServerStream, to *grpc.ClientConn) error {
	f := m.observe(from)
	if f.refuse != nil {
		from.SetTrailer(f.trailer)
		return f.refuse
	}
	if f.respond != nil {
		return from.SendMsg(&f.respond)
	}
	method, _ := grpc.MethodFromServerStream(from)
	ctx, cancel := context.WithCancel(from.Context())
	defer cancel()
	if f.endWhen != nil {
		ends := make(chan struct{})
		defer close(ends)
		go func() { // ends with the call
			select {
			case <-f.endWhen:
				cancel()
			case <-ends:
			}
		}()
	}
	header, _ := metadata.FromIncomingContext(ctx)
	out, err := to.NewStream(metadata.NewOutgoingContext(ctx, header), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(bytesCodec{}))
	if err != nil {
		return err
	}
	go func() { // ends with the call
		for {
			var b []byte
			if err := from.RecvMsg(&b); err != nil {
				_ = out.CloseSend()
				return
			}
			if out.SendMsg(&b) != nil {
				return
			}
		}
	}()
	for {
		var b []byte
		if err := out.RecvMsg(&b); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			if ctx.Err() != nil && from.Context().Err() == nil {
				end := f.endWith()
				from.SetTrailer(end.trailer)
				return end.refuse
			}
			from.SetTrailer(out.Trailer())
			return err
		}
		if f.loseResponse != nil || f.noResponse {
			continue
		}
		if err := from.SendMsg(&b); err != nil {
			return err
		}
	}
	if f.noResponse {
		<-from.Context().Done()
		return status.FromContextError(from.Context().Err()).Err()
	}
	from.SetTrailer(out.Trailer())
	return f.loseResponse
}

// A bytesCodec passes messages through as bytes.
type bytesCodec struct{}

func (bytesCodec) Name() string                  { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte{}, data...)
	return nil
}

// firstCalls injects a fault into the first n calls of a method.
func firstCalls(method string, n int, f fault) func(proxiedCall) fault {
	return func(h proxiedCall) fault {
		if h.method == method && h.n < n {
			return f
		}
		return fault{}
	}
}

func unavailable() error { return status.Error(codes.Unavailable, "the fault proxy says so") }

func statusOf(code codes.Code) error {
	return status.Error(code, fmt.Sprintf("the fault proxy says %s", code))
}
