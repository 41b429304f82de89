package projectionstest

import (
	"encoding/json"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// A tally counts events by kind: the least that is a projection.
type tally struct {
	Kinds map[string]int `json:"kinds"`
	Last  string         `json:"last"`
	Looks int            `json:"looks"` // what a saboteur counts

	hidden int        // what a saboteur leaves out of the JSON
	looked func() int // what a saboteur does when the answer is looked at
	lossy  bool       // decoding forgets
}

// plain is a tally without its methods.
type plain tally

// MarshalJSON writes the counts.
func (t *tally) MarshalJSON() ([]byte, error) {
	if t.looked != nil {
		t.Looks = t.looked()
	}
	return json.Marshal((*plain)(t))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (t *tally) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*plain)(t)); err != nil {
		return err
	}
	if t.lossy {
		t.Last = ""
	}
	return nil
}

func newTally() *tally { return &tally{Kinds: map[string]int{}} }

func count(t *tally, v events.Envelope) *tally {
	t.Kinds[v.Event.Kind()]++
	t.Last = v.Event.Kind()
	return t
}

// honest keeps every law.
func honest() projections.Projection[*tally] {
	return projections.Projection[*tally]{Name: "tally", Version: 1, Init: newTally, Apply: count}
}

// saboteurs returns, by the name of a law, a projection that breaks it.
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

// countsLooks changes its answer when it is looked at.
func countsLooks() projections.Projection[*tally] {
	p := honest()
	p.Init = func() *tally {
		t := newTally()
		t.looked = func() int { return t.Looks + 1 }
		return t
	}
	return p
}

// keepsHidden counts, beside what it encodes, in a field that it does not.
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

// remembersFolds depends on how often it was used before.
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

// decodesLess forgets something when it is decoded, until the next event.
func decodesLess() projections.Projection[*tally] {
	p := honest()
	p.Init = func() *tally {
		t := newTally()
		t.lossy = true
		return t
	}
	return p
}

// sharesAnswer keeps the counts of all answers in one map.
func sharesAnswer() projections.Projection[*tally] {
	p, shared := honest(), map[string]int{}
	p.Init = func() *tally {
		t := newTally()
		t.Kinds = shared
		return t
	}
	return p
}

// amendsTools changes the tools of a registration where they are.
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

// countsUnread says that it does not read prompts, and counts them.
func countsUnread() projections.Projection[*tally] {
	p := honest()
	p.Reads = events.Filter{Kinds: []string{"ReplyReceived"}}
	return p
}
