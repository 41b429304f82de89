package groups

import (
	"encoding/json"
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// The kinds of records in a group's stream. All have version 1.
const (
	kindCreated      = "GroupCreated"      // a Definition
	kindUpdated      = "GroupUpdated"      // Settings
	kindDeleted      = "GroupDeleted"      // {}
	kindCheckpointed = "GroupCheckpointed" // a Cursor; it is read, and a mark is kept instead
	kindParked       = "EntryParked"       // a Parked
	kindReleased     = "EntryReleased"     // a Parked without reason
)

// A Parked is an entry that is set aside.
type ParkedEntry struct {
	ID       domain.EventID  `json:"id"`
	Stream   events.Stream   `json:"stream"`
	Revision events.Revision `json:"revision"`
	Reason   string          `json:"reason,omitempty"`
}

// groupState is what the records of a group say.
type groupState struct {
	def       Definition
	exists    bool
	created   domain.EventID  // the event that did
	length    events.Revision // of its stream
	done      Cursor          // everything up to there is settled
	parked    []ParkedEntry
	parkedSet map[events.Stream]map[events.Revision]bool // parked
}

// apply takes in a record. Each is read as it was written.
func (k *groupState) apply(e events.Entry) error {
	k.length = e.Revision
	var err error
	switch e.Kind {
	case kindCreated:
		def := Definition{}
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
		err = fmt.Errorf("it is of the kind %s", e.Kind)
	}
	if err != nil {
		return fmt.Errorf("read revision %d of %s: %w: it says nothing of a group: %w", e.Revision, e.Stream, events.ErrDamaged, err)
	}
	return nil
}

// park adds an entry to those that are parked, once, or takes it out.
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

func (k *groupState) isParked(s events.Stream, r events.Revision) bool { return k.parkedSet[s][r] }

// record returns a record of a group's stream.
func (g *Groups) record(kind string, data any) (events.Record, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return events.Record{}, fmt.Errorf("encode %s: %w", kind, err)
	}
	now := g.cfg.Now().UTC()
	return events.Record{ID: g.mint.Event(), Kind: kind, Version: 1, Time: now.Truncate(1000), Data: text}, nil
}
