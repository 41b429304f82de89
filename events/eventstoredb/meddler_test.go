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

// A meddler stands between a client and a server. It passes on what they send,
// byte for byte, but for what a test has it do.
type meddler struct {
	address string
	mu      struct {
		sync.Mutex
		seen []heard
		fate func(heard) fate
	}
}

// A heard is a call that came to a meddler.
type heard struct {
	method string
	n      int // how many of this method there were before
	header metadata.MD
}

// A fate is what becomes of a call. The zero fate is to be passed on.
type fate struct {
	unheard error       // the server is not asked, and this is the answer
	lost    error       // the server is asked, and this is the answer
	silent  bool        // the server is asked, and there is no answer
	trailer metadata.MD // that comes with an error
	answer  []byte      // the server is not asked, and this is the answer

	until <-chan struct{} // if it is closed before the call has ended, the call ends
	ended func() fate     // with the error of this
}

// newMeddler starts a meddler before a server, which ends with the test.
func newMeddler(t testing.TB, server string) *meddler {
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
	m := &meddler{address: at.Addr().String()}
	s := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(func(_ any, from grpc.ServerStream) error {
		return m.handle(from, to)
	}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(at) }) // it ends when it is stopped
	t.Cleanup(func() { s.Stop(); serving.Wait(); _ = to.Close() })
	return m
}

func (m *meddler) url() string { return "esdb://" + m.address + "?tls=false" }

// decide has f say what becomes of the calls that follow.
func (m *meddler) decide(f func(heard) fate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.fate = f
	m.mu.seen = nil
}

// calls returns what was heard since decide.
func (m *meddler) calls(method string) (found []heard) {
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

func (m *meddler) hear(from grpc.ServerStream) fate {
	method, _ := grpc.MethodFromServerStream(from)
	h := heard{method: method, n: len(m.calls(method))}
	h.header, _ = metadata.FromIncomingContext(from.Context())
	m.mu.Lock()
	m.mu.seen = append(m.mu.seen, h)
	decide := m.mu.fate
	m.mu.Unlock()
	if decide == nil {
		return fate{}
	}
	return decide(h)
}

func (m *meddler) handle(from grpc.ServerStream, to *grpc.ClientConn) error {
	f := m.hear(from)
	if f.unheard != nil {
		from.SetTrailer(f.trailer)
		return f.unheard
	}
	if f.answer != nil {
		return from.SendMsg(&f.answer)
	}
	method, _ := grpc.MethodFromServerStream(from)
	ctx, cancel := context.WithCancel(from.Context())
	defer cancel()
	if f.until != nil {
		ends := make(chan struct{})
		defer close(ends)
		go func() { // ends with the call
			select {
			case <-f.until:
				cancel()
			case <-ends:
			}
		}()
	}
	header, _ := metadata.FromIncomingContext(ctx)
	out, err := to.NewStream(metadata.NewOutgoingContext(ctx, header), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(raw{}))
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
				end := f.ended()
				from.SetTrailer(end.trailer)
				return end.unheard
			}
			from.SetTrailer(out.Trailer())
			return err
		}
		if f.lost != nil || f.silent {
			continue
		}
		if err := from.SendMsg(&b); err != nil {
			return err
		}
	}
	if f.silent {
		<-from.Context().Done()
		return status.FromContextError(from.Context().Err()).Err()
	}
	from.SetTrailer(out.Trailer())
	return f.lost
}

// raw is a codec of bytes as they are.
type raw struct{}

func (raw) Name() string                       { return "proto" }
func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = append([]byte{}, data...); return nil }

// onceOf has a fate befall the first n calls of a method.
func onceOf(method string, n int, f fate) func(heard) fate {
	return func(h heard) fate {
		if h.method == method && h.n < n {
			return f
		}
		return fate{}
	}
}

func unavailable() error { return status.Error(codes.Unavailable, "the meddler says so") }

func statusOf(code codes.Code) error {
	return status.Error(code, fmt.Sprintf("the meddler says %s", code))
}
