package projectionstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// A Law is a promise of a projection whose answers are of type S.
type Law[S any] struct {
	Name     string // a few words
	Sentence string // what holds
	check    func(projections.Projection[S], []events.Envelope) error
}

// Check returns nil if the projection keeps the law over a history, and else
// an error that quotes the sentence. Answers are told apart by what
// a checkpoint keeps of them.
func (l Law[S]) Check(p projections.Projection[S], history []events.Envelope) error {
	if err := l.check(p, history); err != nil {
		return fmt.Errorf("law %q: %s: projection %s: %w", l.Name, l.Sentence, p.Name, err)
	}
	return nil
}

// Laws returns every law of a projection. A Law is named once.
func Laws[S any]() []Law[S] {
	return []Law[S]{
		{"one go is two", "Folding a history in two goes, and looking at the answer between them, gives what folding it in one go gives.", oneGoIsTwo[S]},
		{"from a checkpoint", "Folding the rest of a history from a decoded checkpoint gives what folding all of it gives.", fromCheckpoint[S]},
		{"rebuilt from zero", "Folding a history a second time gives the same answer.", rebuiltFromZero[S]},
		{"a checkpoint is whole", "An answer that was encoded and decoded encodes to the same bytes.", checkpointIsWhole[S]},
		{"answers are apart", "Folding on from one answer changes no other answer.", answersAreApart[S]},
		{"the history stays", "Folding changes nothing that the envelopes hold.", historyStays[S]},
		{"passes over", "What a projection does not read changes no answer.", passesOver[S]},
	}
}

// Test checks every law of a projection over a history. It is the whole of a
// projection's test of them.
func Test[S any](t *testing.T, p projections.Projection[S], history []events.Envelope) {
	t.Helper()
	for _, law := range Laws[S]() {
		if err := law.Check(p, history); err != nil {
			t.Error(err)
		}
	}
}

// Report checks every law against a projection that keeps it and against its
// saboteur, and writes a line for each law. It returns an error if a law fails
// the first or passes the second.
func Report(w io.Writer) error {
	var faults []error
	history := History(1, 300)
	for _, law := range Laws[*tally]() {
		verdict := "saboteur caught"
		if err := trial(law, history); err != nil {
			verdict = err.Error()
			faults = append(faults, err)
		}
		if _, err := fmt.Fprintf(w, "law %s: %s — %s\n", law.Name, law.Sentence, verdict); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	return errors.Join(faults...)
}

// trial returns nil if law passes the honest projection and fails its
// saboteur.
func trial(law Law[*tally], history []events.Envelope) error {
	if err := law.Check(honest(), history); err != nil {
		return fmt.Errorf("the honest projection is refused: %w", err)
	}
	sabotage, ok := saboteurs()[law.Name]
	if !ok {
		return fmt.Errorf("law %q has no saboteur", law.Name)
	}
	if err := law.Check(sabotage(), history); err == nil {
		return fmt.Errorf("law %q: saboteur not caught", law.Name)
	}
	return nil
}

// cuts returns places in a history of length n, both ends among them: all of
// them where there are few.
func cuts(n int) []int {
	const many = 24
	var at []int
	for i := range many + 1 {
		at = append(at, n*i/many)
	}
	return slices.Compact(at)
}

// fold applies p to envelopes.
func fold[S any](p projections.Projection[S], s S, envelopes []events.Envelope) (S, error) {
	return projections.Fold(p, s, func(yield func(events.Envelope, error) bool) {
		for _, v := range envelopes {
			if !yield(v, nil) {
				return
			}
		}
	})
}

// encoded folds envelopes from s and returns the answer as a checkpoint keeps it.
func encoded[S any](p projections.Projection[S], s S, envelopes []events.Envelope) ([]byte, error) {
	s, err := fold(p, s, envelopes)
	if err != nil {
		return nil, err
	}
	return projections.Pack(s)
}

// everywhere compares what try gives for each cut with folding in one go.
func everywhere[S any](p projections.Projection[S], history []events.Envelope, try func(cut int) ([]byte, error)) error {
	want, err := encoded(p, p.Init(), history)
	if err != nil {
		return err
	}
	for _, cut := range cuts(len(history)) {
		got, err := try(cut)
		if err != nil {
			return fmt.Errorf("cut at %d of %d: %w", cut, len(history), err)
		}
		if string(got) != string(want) {
			return fmt.Errorf("cut at %d of %d: %w", cut, len(history), differ(got, want))
		}
	}
	return nil
}

// differ says where two documents part.
func differ(got, want []byte) error {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	part := func(b []byte) []byte { return b[max(0, at-60):min(len(b), at+60)] }
	return fmt.Errorf("byte %d: got …%q…, want …%q…", at, part(got), part(want))
}

func oneGoIsTwo[S any](p projections.Projection[S], history []events.Envelope) error {
	return everywhere(p, history, func(cut int) ([]byte, error) {
		s, err := fold(p, p.Init(), history[:cut])
		if err != nil {
			return nil, err
		}
		if _, err := projections.Pack(s); err != nil {
			return nil, err
		}
		return encoded(p, s, history[cut:])
	})
}

func fromCheckpoint[S any](p projections.Projection[S], history []events.Envelope) error {
	return everywhere(p, history, func(cut int) ([]byte, error) {
		data, err := encoded(p, p.Init(), history[:cut])
		if err != nil {
			return nil, err
		}
		s := p.Init()
		if err := projections.Unpack(data, &s); err != nil {
			return nil, err
		}
		return encoded(p, s, history[cut:])
	})
}

func rebuiltFromZero[S any](p projections.Projection[S], history []events.Envelope) error {
	want, err := encoded(p, p.Init(), history)
	if err != nil {
		return err
	}
	got, err := encoded(p, p.Init(), history)
	if err == nil && string(got) != string(want) {
		err = differ(got, want)
	}
	return err
}

func checkpointIsWhole[S any](p projections.Projection[S], history []events.Envelope) error {
	for _, cut := range cuts(len(history)) {
		want, err := encoded(p, p.Init(), history[:cut])
		if err != nil {
			return err
		}
		s := p.Init()
		if err := projections.Unpack(want, &s); err != nil {
			return fmt.Errorf("decode after %d events: %w", cut, err)
		}
		got, err := projections.Pack(s)
		if err != nil {
			return err
		}
		if string(got) != string(want) {
			return fmt.Errorf("after %d events: %w", cut, differ(got, want))
		}
	}
	return nil
}

func answersAreApart[S any](p projections.Projection[S], history []events.Envelope) error {
	for _, cut := range cuts(len(history)) {
		kept, err := fold(p, p.Init(), history[:cut])
		if err != nil {
			return err
		}
		want, err := projections.Pack(kept)
		if err != nil {
			return err
		}
		if _, err := encoded(p, p.Init(), history); err != nil {
			return err
		}
		got, err := projections.Pack(kept)
		if err != nil {
			return err
		}
		if string(got) != string(want) {
			return fmt.Errorf("after %d events: %w", cut, differ(got, want))
		}
	}
	return nil
}

func historyStays[S any](p projections.Projection[S], history []events.Envelope) error {
	want, err := json.Marshal(history)
	if err != nil {
		return err
	}
	if _, err := encoded(p, p.Init(), history); err != nil {
		return err
	}
	got, err := json.Marshal(history)
	if err == nil && string(got) != string(want) {
		err = differ(got, want)
	}
	return err
}

func passesOver[S any](p projections.Projection[S], history []events.Envelope) error {
	want, err := encoded(p, p.Init(), history)
	if err != nil {
		return err
	}
	s := p.Init()
	for _, v := range history {
		s = p.Apply(s, v)
	}
	got, err := projections.Pack(s)
	if err == nil && string(got) != string(want) {
		err = differ(got, want)
	}
	return err
}
