package eventstoredb_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/settlement-ledger/ledger/events"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// An idServer stores one stream. Like EventStoreDB, it treats an append as a
// repetition if it already has the IDs of the records at these revisions, whatever
// their data.
type idServer struct {
	before func(n int) error // is called with each append when it has come, from 0
	mu     struct {
		sync.Mutex
		n    int
		held []*streams.ReadResp
	}
}

// open serves the stream and opens a store on it.
func (s *idServer) open(t *testing.T) events.Store {
	t.Helper()
	at := &stubServer{onAppend: s.take, onRead: func(q *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
		s.mu.Lock()
		held := respondWith(s.mu.held...)
		s.mu.Unlock()
		return held(q, to)
	}}
	return at.open(t)
}

func (s *idServer) take(from streams.Streams_AppendServer) error {
	first, err := from.Recv()
	if err != nil {
		return err
	}
	after := 0
	if _, ok := first.GetOptions().GetExpectedStreamRevision().(*streams.AppendReq_Options_Revision); ok {
		after = int(first.GetOptions().GetRevision()) + 1
	}
	var proposed []*streams.AppendReq_ProposedMessage
	for {
		m, err := from.Recv()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		proposed = append(proposed, m.GetProposedMessage())
	}
	s.mu.Lock()
	n := s.mu.n
	s.mu.n++
	s.mu.Unlock()
	if s.before != nil {
		if err := s.before(n); err != nil {
			return err
		}
	}
	return from.SendAndClose(s.add(after, proposed))
}

func (s *idServer) add(after int, proposed []*streams.AppendReq_ProposedMessage) *streams.AppendResp {
	s.mu.Lock()
	defer s.mu.Unlock()
	if after == len(s.mu.held) {
		for i, p := range proposed {
			e := recordedEvent("session-1", p.GetMetadata()["type"], string(p.GetCustomMetadata()), uint64(after+i), uint64(10*(after+i+1)))
			e.GetEvent().GetEvent().Id, e.GetEvent().GetEvent().Data = p.GetId(), p.GetData()
			s.mu.held = append(s.mu.held, e)
		}
	}
	last := after + len(proposed) - 1
	for i, p := range proposed {
		if after+i >= len(s.mu.held) || !proto.Equal(s.mu.held[after+i].GetEvent().GetEvent().GetId(), p.GetId()) {
			return &streams.AppendResp{Result: &streams.AppendResp_WrongExpectedVersion_{WrongExpectedVersion: &streams.AppendResp_WrongExpectedVersion{}}}
		}
	}
	return success(uint64(last), uint64(10*(last+1)))
}

// success is the response to an append through a revision.
func success(last, position uint64) *streams.AppendResp {
	return &streams.AppendResp{Result: &streams.AppendResp_Success_{Success: &streams.AppendResp_Success{
		CurrentRevisionOption: &streams.AppendResp_Success_CurrentRevision{CurrentRevision: last},
		PositionOption:        &streams.AppendResp_Success_Position{Position: &streams.AppendResp_Position{CommitPosition: position, PreparePosition: position}},
	}}}
}

// The store does not trust the success of a server that compares only IDs: it reads
// the stream and returns a conflict if the stored records differ.
func TestServerThatComparesIDsAloneIsNotBelieved(t *testing.T) {
	t.Parallel()
	one := record(newMint(), "Kind", 1)
	other := changed(one, func(r *events.Record) { r.Data = []byte(`{"other":1}`) })

	// Of two concurrent appends, one succeeds and the other returns a conflict.
	second := make(chan struct{})
	s := (&idServer{before: func(n int) error {
		if n == 0 {
			<-second
		} else if n == 1 {
			close(second)
		}
		return nil
	}}).open(t)
	var both sync.WaitGroup
	var ends [2]error
	both.Go(func() { ends[0] = s.Append(t.Context(), "session-1", 0, one) })
	both.Go(func() { ends[1] = s.Append(t.Context(), "session-1", 0, other) })
	both.Wait()
	if (ends[0] == nil) == (ends[1] == nil) {
		t.Errorf("two appends with one ID and different data at once = %v and %v, want one Conflict", ends[0], ends[1])
	}

	// The same holds if another program appended between two tries.
	at := &idServer{}
	by, s := at.open(t), at.open(t)
	at.before = func(n int) error {
		if n > 0 {
			return nil
		}
		if err := by.Append(t.Context(), "session-1", 0, one); err != nil {
			t.Error(err)
		}
		return status.Error(codes.Unavailable, "gone")
	}
	if err := s.Append(t.Context(), "session-1", 0, other); !errors.Is(err, events.ErrConflict) {
		t.Errorf("Append of other data behind a try that was lost = %v, want a Conflict", err)
	}
	if err := s.Append(t.Context(), "session-1", 0, one); err != nil {
		t.Errorf("Append of what is there = %v", err)
	}

	// The position in the response proves no new append if the store has read a record
	// at that position.
	at = &idServer{}
	by, s = at.open(t), at.open(t)
	if err := by.Append(t.Context(), "session-1", 0, one); err != nil {
		t.Fatal(err)
	}
	holds(t, s, "session-1", one)
	if err := s.Append(t.Context(), "session-1", 0, other); !errors.Is(err, events.ErrConflict) {
		t.Errorf("Append of other data than was read = %v, want a Conflict", err)
	}
}

// An append whose result is unknown is repeated beyond the retry timeout.
func TestUncertainAppendOutlastsTheRetryTimeout(t *testing.T) {
	t.Parallel()
	at := &idServer{}
	s := at.open(t) // with a retry timeout of a tenth of a second
	at.before = func(n int) error {
		if n < 7 {
			return status.Error(codes.Internal, "nobody knows")
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Append(ctx, "session-1", 0, record(newMint(), "Kind", 1)); err != nil {
		t.Errorf("Append = %v", err)
	}
}

// A response with another revision or without a position is not trusted.
func TestResponseWithAnotherRevisionIsNotTrusted(t *testing.T) {
	t.Parallel()
	placeless := success(0, 1)
	placeless.GetSuccess().PositionOption = &streams.AppendResp_Success_NoPosition{}
	for name, result := range map[string]*streams.AppendResp{"another revision": success(7, 1000), "no position": placeless, "nothing": {}} {
		at := &stubServer{onRead: respondWith(), onAppend: func(from streams.Streams_AppendServer) error {
			for {
				if _, err := from.Recv(); errors.Is(err, io.EOF) {
					return from.SendAndClose(result)
				} else if err != nil {
					return err
				}
			}
		}}
		if err := at.open(t).Append(t.Context(), "session-1", 0, record(newMint(), "Kind", 1)); !errors.Is(err, events.ErrConflict) {
			t.Errorf("%s: Append = %v, want a Conflict, as the stream is empty", name, err)
		}
	}
}
