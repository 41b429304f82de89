package projectionstest

import (
	"encoding/json"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// A tally is the state of a minimal projection, which counts events by kind. The fields from
// Looks on serve the saboteurs.
type tally struct {
	Kinds map[string]int `json:"kinds"` // number of events of each kind
	Last  string         `json:"last"`  // the kind of the last event
	Looks int            `json:"looks"` // a counter that depends on more than the history

	hidden int        // state that the JSON omits
	looked func() int // returns a new value of Looks at each encoding; nil: Looks stays
	lossy  bool       // decoding clears Last
}

// plain is a tally without its methods, for encoding/json.
type plain tally

// MarshalJSON encodes the exported fields. If looked is set, it first sets Looks to
// the result of looked, so that encoding changes the state.
func (t *tally) MarshalJSON() ([]byte, error) {
	if t.looked != nil {
		t.Looks = t.looked()
	}
	return json.Marshal((*plain)(t))
}

// UnmarshalJSON decodes the exported fields. It then clears Last if lossy is set.
func (t *tally) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*plain)(t)); err != nil {
		return err
	}
	if t.lossy {
		t.Last = ""
	}
	return nil
}

// newTally returns the initial state of an honest tally.
func newTally() *tally { return &tally{Kinds: map[string]int{}} }

// count is the Apply of an honest tally.
func count(t *tally, v events.Envelope) *tally {
	t.Kinds[v.Event.Kind()]++
	t.Last = v.Event.Kind()
	return t
}

// honest returns the projection tally, which keeps every law.
func honest() projections.Projection[*tally] {
	return projections.Projection[*tally]{Name: "tally", Version: 1, Init: newTally, Apply: count}
}

// saboteurs maps the name of each law to a function that returns a projection that
// breaks the law.
func saboteurs() map[string]func() projections.Projection[*tally] {
	return map[string]func() projections.Projection[*tally]{
		"one go is two":         countsLooks,
		"from a checkpoint":     keepsHidden,
		"rebuilt from zero":     remembersFolds,
		"a checkpoint is whole": decodesLess,
		"answers are apart":     sharesAnswer,
		"the history stays":     amendsTools,
		"passes over":           countsUnread,
	}
}

// countsLooks changes its state whenever it is encoded.
func countsLooks() projections.Projection[*tally] {
	p := honest()
	p.Init = func() *tally {
		t := newTally()
		t.looked = func() int { return t.Looks + 1 }
		return t
	}
	return p
}

// keepsHidden has a counter that its checkpoints omit, and copies it to an encoded field.
func keepsHidden() projections.Projection[*tally] {
	p := honest()
	p.Apply = func(t *tally, v events.Envelope) *tally {
		t = count(t, v)
		t.hidden++
		t.Looks = t.hidden
		return t
	}
	return p
}

// remembersFolds puts the number of its folds so far into its initial state.
func remembersFolds() projections.Projection[*tally] {
	p, folds := honest(), 0
	p.Init = func() *tally {
		folds++
		t := newTally()
		t.Looks = folds
		return t
	}
	return p
}

// decodesLess loses the field Last when it is decoded. The next event sets it again.
func decodesLess() projections.Projection[*tally] {
	p := honest()
	p.Init = func() *tally {
		t := newTally()
		t.lossy = true
		return t
	}
	return p
}

// sharesAnswer uses one map for the counts of all its states.
func sharesAnswer() projections.Projection[*tally] {
	p, shared := honest(), map[string]int{}
	p.Init = func() *tally {
		t := newTally()
		t.Kinds = shared
		return t
	}
	return p
}

// amendsTools changes a tool in the envelope that it folds.
func amendsTools() projections.Projection[*tally] {
	p := honest()
	p.Apply = func(t *tally, v events.Envelope) *tally {
		if e, ok := v.Event.(events.ToolsRegistered); ok {
			e.Tools[0].Description += "!"
		}
		return count(t, v)
	}
	return p
}

// countsUnread declares that it reads only replies, and counts every event that it gets.
func countsUnread() projections.Projection[*tally] {
	p := honest()
	p.Reads = events.Filter{Kinds: []string{"ReplyReceived"}}
	return p
}
