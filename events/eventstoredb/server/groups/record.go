package groups

import (
	"encoding/json"
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// The kinds of records in a group's stream. All have version 1.
const (
	// kindCreated has a GroupConfig as its data. It begins a new group.
	kindCreated = "GroupCreated"
	// kindUpdated has Settings as its data.
	kindUpdated = "GroupUpdated"
	// kindDeleted has an empty object as its data.
	kindDeleted = "GroupDeleted"
	// kindCheckpointed has a Cursor as its data. Earlier releases wrote it; this
	// one only reads it.
	kindCheckpointed = "GroupCheckpointed"
	// kindParked has a ParkedEntry as its data.
	kindParked = "EntryParked"
	// kindReleased has a ParkedEntry without a reason as its data.
	kindReleased = "EntryReleased"
)

// A ParkedEntry is a dead letter: the identity of a parked entry, and the reason
// why it was parked. The entry itself stays in its stream.
type ParkedEntry struct {
	ID       domain.EventID  `json:"id"`
	Stream   events.Stream   `json:"stream"`
	Revision events.Revision `json:"revision"`
	Reason   string          `json:"reason,omitempty"`
}

// A groupState is the state of a group: a fold of the records in the group's
// stream. Only done comes from the checkpoint, which can be ahead of these
// records.
type groupState struct {
	def    GroupConfig
	exists bool
	// created is the ID of the event that created the group.
	created domain.EventID
	// length is the length of the group's stream.
	length events.Revision
	// done is the cursor up to which every entry is settled.
	done Cursor
	// parked has the parked entries, the longest parked first.
	parked []ParkedEntry
	// parkedSet has the entries of parked, by stream and revision.
	parkedSet map[events.Stream]map[events.Revision]bool
}

// apply applies a record to the state. ErrDamaged reports an unknown kind or data
// that do not parse. The state is then unusable.
func (k *groupState) apply(e events.Entry) error {
	k.length = e.Revision
	var err error
	switch e.Kind {
	case kindCreated:
		def := GroupConfig{}
		if err = json.Unmarshal(e.Data, &def); err == nil {
			*k = groupState{def: def, exists: true, created: e.ID, length: e.Revision, done: def.Start}
		}
	case kindUpdated:
		err = json.Unmarshal(e.Data, &k.def.Settings)
	case kindDeleted:
		*k = groupState{def: k.def, length: e.Revision}
	case kindCheckpointed:
		err = json.Unmarshal(e.Data, &k.done)
	case kindParked, kindReleased:
		p := ParkedEntry{}
		if err = json.Unmarshal(e.Data, &p); err == nil {
			k.park(p, e.Kind == kindParked)
		}
	default:
		err = fmt.Errorf("unknown kind %s", e.Kind)
	}
	if err != nil {
		return fmt.Errorf("read revision %d of %s: %w: not a record of a group: %w", e.Revision, e.Stream, events.ErrDamaged, err)
	}
	return nil
}

// park adds p to the parked entries if in is true, and removes it otherwise. It
// has no effect if p was already added or removed. Removing takes time in
// proportion to the number of parked entries.
func (k *groupState) park(p ParkedEntry, in bool) {
	if k.isParked(p.Stream, p.Revision) == in {
		return
	}
	if in {
		if k.parkedSet == nil {
			k.parkedSet = map[events.Stream]map[events.Revision]bool{}
		}
		if k.parkedSet[p.Stream] == nil {
			k.parkedSet[p.Stream] = map[events.Revision]bool{}
		}
		k.parkedSet[p.Stream][p.Revision] = true
		k.parked = append(k.parked, p)
		return
	}
	delete(k.parkedSet[p.Stream], p.Revision)
	if len(k.parkedSet[p.Stream]) == 0 {
		delete(k.parkedSet, p.Stream)
	}
	for i, q := range k.parked {
		if q.Stream == p.Stream && q.Revision == p.Revision {
			k.parked = append(k.parked[:i:i], k.parked[i+1:]...)
			return
		}
	}
}

// isParked reports whether an entry is parked.
func (k *groupState) isParked(s events.Stream, r events.Revision) bool { return k.parkedSet[s][r] }

// record returns a new record of a group's stream, with a new ID and the current
// time in microseconds.
func (g *Groups) record(kind string, data any) (events.Record, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return events.Record{}, fmt.Errorf("encode %s: %w", kind, err)
	}
	now := g.cfg.Now().UTC()
	return events.Record{ID: g.mint.Event(), Kind: kind, Version: 1, Time: now.Truncate(1000), Data: text}, nil
}
