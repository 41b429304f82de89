package groups

import (
	"context"
	"slices"

	"github.com/settlement-ledger/ledger/events"
)

// replayableLocked returns the parked entries that are not being replayed, the
// longest parked first.
func (g *Group) replayableLocked() []ParkedEntry {
	var idle []ParkedEntry
	for _, p := range g.mu.groupState.parked {
		if !g.mu.replaying[entryKey{p.Stream, p.Revision}] {
			idle = append(idle, p)
		}
	}
	return idle
}

// An entryKey identifies an entry by its place in its stream.
type entryKey struct {
	stream   events.Stream
	revision events.Revision
}

// replayNext reads the parked entries that Replay queued, as many as the buffer
// has room for. It puts them behind the replayed entries that already wait, and
// before the waiting entries that were never parked. It skips a parked entry
// that its stream no longer has. An error of the store ends the group. Only the
// persister calls replayNext, without mu.
func (g *Group) replayNext() {
	g.mu.Lock()
	room := max(0, g.mu.def.Settings.Buffer-len(g.mu.waiting))
	next := slices.Clone(g.mu.toReplay[:min(room, len(g.mu.toReplay))])
	g.mu.toReplay = slices.Delete(g.mu.toReplay, 0, len(next))
	g.mu.Unlock()
	var read []*message
	for _, p := range next {
		for e, err := range g.groups.store.Read(context.Background(), p.Stream, p.Revision-1) {
			if err != nil {
				g.fail(err)
				return
			}
			read = append(read, &message{entry: e, replayed: true, reason: p.Reason})
			break
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	behind := 0
	for i, m := range g.mu.waiting {
		if m.replayed {
			behind = i + 1
		}
	}
	g.mu.waiting = slices.Insert(g.mu.waiting, behind, read...)
	g.dispatchLocked()
}
