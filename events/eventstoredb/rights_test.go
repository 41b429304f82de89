package eventstoredb_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Rights names the missing rights without writing, and Open with RequireReadAll fails
// for a user without the rights to read.
func TestRightsThatAUserLacksAreNamed(t *testing.T) {
	t.Parallel()
	denied := status.Error(codes.PermissionDenied, "the test denies it")
	const all, one, write = "read $all", "read the ledger's streams", "append to the ledger's streams"
	for _, lacks := range []string{"", all, one, write} {
		appends := 0
		at := &stubServer{version: "24.10.5", conflicts: true}
		at.onRead = func(q *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
			switch {
			case q.GetAll() != nil && lacks == all, q.GetStream() != nil && lacks == one:
				return denied
			case q.GetStream() != nil:
				return to.Send(notFound)
			}
			return nil
		}
		if lacks == write {
			at.onAppend = func(streams.Streams_AppendServer) error { appends++; return denied }
		}
		url := at.serve(t)
		s, err := eventstoredb.Open(t.Context(), url, eventstoredb.Config{})
		if err != nil {
			t.Fatal(err)
		}
		rights, err := s.Rights(t.Context(), record(newMint(), "Kind", 1))
		if err != nil || len(rights) != 3 {
			t.Fatalf("without the right to %q: Rights = %v, %v, want three", lacks, rights, err)
		}
		for _, r := range rights {
			if (r.Missing != nil) != (r.Name == lacks) || r.Missing != nil && !errors.Is(r.Missing, eventstoredb.ErrRefused) {
				t.Errorf("without the right to %q: that to %q is missing because: %v", lacks, r.Name, r.Missing)
			}
		}
		_ = s.Close()
		s, err = eventstoredb.Open(t.Context(), url, eventstoredb.Config{RequireReadAll: true})
		if forbidden := errors.Is(err, eventstoredb.ErrForbidden) && errors.Is(err, eventstoredb.ErrRefused); forbidden != (lacks == all || lacks == one) {
			t.Errorf("without the right to %q: Open = %v", lacks, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

// Rights stores no record in our own server.
func TestRightsWriteNothing(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s, err := eventstoredb.Open(t.Context(), d.url(), eventstoredb.Config{RequireReadAll: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rights, err := s.Rights(t.Context(), record(newMint(), "Kind", 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rights {
		if r.Missing != nil {
			t.Errorf("the right to %s is missing: %v", r.Name, r.Missing)
		}
	}
	holds(t, s, "rights-probe")
	if head := d.store.Head(); !head.IsZero() {
		t.Errorf("the log ends at %s, want nothing in it", head)
	}
}

// DefaultACL returns valid JSON for every name of a group.
func TestDefaultACLIsJSON(t *testing.T) {
	t.Parallel()
	var acl map[string]map[string]any
	for _, group := range []string{"ledger", "a\"b", "\x01\u2028", "größe"} {
		text := eventstoredb.DefaultACL(group)
		if err := json.Unmarshal([]byte(text), &acl); err != nil || len(acl) != 2 || len(acl["$systemStreamAcl"]) != 5 {
			t.Fatalf("DefaultACL(%q) = %s: %v", group, text, err)
		}
		if readers := acl["$systemStreamAcl"]["$r"].([]any); readers[1] != group {
			t.Errorf("DefaultACL(%q) lets %q read", group, readers)
		}
	}
}
