package projectionstest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/settlement-ledger/ledger/domain/lawtest"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// A Subject is a projection to check, with the history to fold.
type Subject[S any] struct {
	Projection projections.Projection[S]
	History    []events.Envelope
}

// A Law is a promise of a projection whose state is of type S. Two states are
// equal if their checkpoints are.
type Law[S any] = lawtest.Law[Subject[S]]

// Laws returns every law of a projection. The fields Correct and Saboteur of the laws
// are nil, because they depend on the type of the state.
func Laws[S any]() []Law[S] {
	law := func(name, sentence string, check func(projections.Projection[S], []events.Envelope) error) Law[S] {
		return Law[S]{Name: name, Sentence: sentence, Verify: func(_ context.Context, s Subject[S]) error {
			if err := check(s.Projection, s.History); err != nil {
				return fmt.Errorf("projection %s: %w", s.Projection.Name, err)
			}
			return nil
		}}
	}
	return []Law[S]{
		law("one go is two", "Folding a history in two goes, and looking at the answer between them, gives what folding it in one go gives.", oneGoIsTwo[S]),
		law("from a checkpoint", "Folding the rest of a history from a decoded checkpoint gives what folding all of it gives.", fromCheckpoint[S]),
		law("rebuilt from zero", "Folding a history a second time gives the same answer.", rebuiltFromZero[S]),
		law("a checkpoint is whole", "An answer that was encoded and decoded encodes to the same bytes.", checkpointIsWhole[S]),
		law("answers are apart", "Folding on from one answer changes no other answer.", answersAreApart[S]),
		law("the history stays", "Folding changes nothing that the envelopes hold.", historyStays[S]),
		law("passes over", "What a projection does not read changes no answer.", passesOver[S]),
	}
}

// Test checks every law of a projection over a history, one after the other.
func Test[S any](t *testing.T, p projections.Projection[S], history []events.Envelope) {
	t.Helper()
	for _, law := range Laws[S]() {
		if err := law.Check(t.Context(), Subject[S]{p, history}); err != nil {
			t.Error(err)
		}
	}
}

// Report writes one line for each law and its saboteur, as [lawtest.Report]
// does.
func Report(ctx context.Context, w io.Writer) error { return lawtest.Report(ctx, w, suite()) }

// suite returns the laws of the projection tally, each with its saboteur.
func suite() []Law[*tally] {
	history, laws := History(1, 300), Laws[*tally]()
	subject := func(open func() projections.Projection[*tally]) func(context.Context) (Subject[*tally], error) {
		return func(context.Context) (Subject[*tally], error) { return Subject[*tally]{open(), history}, nil }
	}
	for i := range laws {
		laws[i].Correct, laws[i].Saboteur = subject(honest), subject(saboteurs()[laws[i].Name])
	}
	return laws
}

// cuts returns up to 25 indexes at which a check cuts a history of n events,
// including 0 and n. For at most 24 events it returns every index.
func cuts(n int) []int {
	const many = 24
	var at []int
	for i := range many + 1 {
		at = append(at, n*i/many)
	}
	return slices.Compact(at)
}

// fold applies p to envelopes, starting from the state s, which it may change.
func fold[S any](p projections.Projection[S], s S, envelopes []events.Envelope) (S, error) {
	return projections.Fold(p, s, func(yield func(events.Envelope, error) bool) {
		for _, v := range envelopes {
			if !yield(v, nil) {
				return
			}
		}
	})
}

// encoded folds envelopes from s and returns the encoding of the final state in a
// checkpoint.
func encoded[S any](p projections.Projection[S], s S, envelopes []events.Envelope) ([]byte, error) {
	s, err := fold(p, s, envelopes)
	if err != nil {
		return nil, err
	}
	return projections.Pack(s)
}

// everywhere calls try with each index at which cuts splits the history. It returns
// an error if the encoded state that try returns differs from the state after one
// fold of the whole history.
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

// differ returns an error with the first byte at which got and want differ, and up to 60
// bytes before and after it.
func differ(got, want []byte) error {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	part := func(b []byte) []byte { return b[max(0, at-60):min(len(b), at+60)] }
	return fmt.Errorf("byte %d: got …%q…, want …%q…", at, part(got), part(want))
}

// oneGoIsTwo folds up to a cut, encodes the state for a checkpoint, and folds the rest
// from the same state. The final state must equal that of one fold of the whole history,
// so encoding must not change a state.
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

// fromCheckpoint folds up to a cut, encodes and decodes the state, and folds the rest
// from the decoded state. The final state must equal that of one fold of the whole
// history.
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

// rebuiltFromZero folds the whole history twice, each time from a new initial state. The
// final states must be equal.
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

// checkpointIsWhole encodes the state at each cut, decodes it and encodes it again.
// Both encodings must be equal.
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

// answersAreApart folds up to a cut, and then folds the whole history from another
// initial state. The second fold must not change the first state.
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

// historyStays encodes the envelopes of the history before and after a fold. The fold
// must not change them.
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

// passesOver folds only the events of the kinds that p reads, and then applies p to every
// event. The final states must be equal.
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
