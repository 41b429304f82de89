package publish

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// at returns the position of record n.
func at(n uint64) events.Position { return events.NewPosition(n, n) }

// All records that are skipped behind an unfinished one take one slot, and the
// watermark includes them once that one is finished.
func TestSkippedRecordsTakeNoSpaceInTheAckWindow(t *testing.T) {
	t.Parallel()
	var all ackWindow
	first := all.begin(at(1))
	for n := range uint64(1000) {
		all.pass(at(n + 2))
	}
	second := all.begin(at(1002))
	all.pass(at(1003))
	if len(all.open) != 4 || !all.watermark.IsZero() {
		t.Errorf("%d places are open behind %s, want 4 behind none", len(all.open), all.watermark)
	}
	all.end(first)
	if all.watermark != at(1001) {
		t.Errorf("mark = %s, want 1001", all.watermark)
	}
	all.end(second)
	if all.watermark != at(1003) || len(all.open) != 0 {
		t.Errorf("mark = %s with %d open, want 1003 and none", all.watermark, len(all.open))
	}
}

// An agentCache holds at most maxCachedAgents sessions, and still finds an agent when
// it is full.
func TestAgentCacheIsBounded(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.Context(), "store", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	mint := domain.NewMint(func() time.Time { return time.Unix(1, 0) }, rand.NewChaCha8([32]byte{1}))
	session := mint.Session()
	opened := events.Record{ID: mint.Event(), Kind: "SessionOpened", Version: 1, Time: time.Unix(1, 0).UTC(), Data: []byte(`{"agent":"build"}`)}
	if err := store.Append(t.Context(), events.SessionStream(session), 0, opened); err != nil {
		t.Fatal(err)
	}
	known := agentCache{store: store, agents: map[string]string{}}
	for n := range maxCachedAgents {
		known.agents[fmt.Sprint(n)] = "other"
	}
	if agent, err := known.agentOf(t.Context(), session.String()); agent != "build" || err != nil || len(known.agents) > maxCachedAgents {
		t.Errorf("agent = %q, %v, with %d remembered; want build and at most %d", agent, err, len(known.agents), maxCachedAgents)
	}
}
