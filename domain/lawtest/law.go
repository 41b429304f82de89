package lawtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// ErrNotApplicable is returned by a check whose subject cannot show the law.
var ErrNotApplicable = errors.New("the subject cannot show the law")

// A Law is a promise about subjects of type S. Name and Sentence identify it in
// failures and in docs/laws.md.
type Law[S any] struct {
	Name     string // a few words, unique in its suite
	Sentence string // the promise: one sentence with its full stop
	// Verify returns nil if the subject keeps the law. The subject is fresh and
	// is not used again.
	Verify func(context.Context, S) error
	// Correct opens a subject that keeps the law. Saboteur opens a subject that breaks
	// the law and keeps every other law of the suite.
	Correct, Saboteur func(context.Context) (S, error)
}

// Check returns nil if the subject keeps the law, and otherwise an error that
// quotes the sentence and wraps the error of Verify.
func (l Law[S]) Check(ctx context.Context, subject S) error {
	if err := l.Verify(ctx, subject); err != nil {
		return fmt.Errorf("law %q: %s: %w", l.Name, l.Sentence, err)
	}
	return nil
}

// Test checks every law, each against a fresh subject that open returns. It
// skips a law that is not applicable.
func Test[S any](t *testing.T, laws []Law[S], open func(*testing.T, Law[S]) S) {
	t.Helper()
	for _, law := range laws {
		t.Run(law.Name, func(t *testing.T) {
			t.Parallel()
			switch err := law.Check(t.Context(), open(t, law)); {
			case errors.Is(err, ErrNotApplicable):
				t.Skipf("not applicable: %v", err)
			case err != nil:
				t.Error(err)
			}
		})
	}
}

// TestSuite tests the suite itself: names are unique, sentences end with a full
// stop, and each law accepts its correct subject and rejects its saboteur with
// an error that quotes the sentence.
func TestSuite[S any](t *testing.T, laws []Law[S]) {
	t.Helper()
	names := map[string]bool{}
	for _, law := range laws {
		if names[law.Name] || law.Name == "" || !strings.HasSuffix(law.Sentence, ".") {
			t.Errorf("law %q: %q: want a unique name and a sentence with its full stop", law.Name, law.Sentence)
		}
		names[law.Name] = true
		t.Run(law.Name, func(t *testing.T) {
			t.Parallel()
			if err := law.trial(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Report writes one line for each law: its name, its sentence, and whether its
// saboteur was caught. It returns an error if a law rejects its correct subject
// or accepts its saboteur, or if w fails.
func Report[S any](ctx context.Context, w io.Writer, laws []Law[S]) error {
	var errs []error
	for _, law := range laws {
		verdict := "saboteur caught"
		if err := law.trial(ctx); err != nil {
			verdict = err.Error()
			errs = append(errs, err)
		}
		if _, err := fmt.Fprintf(w, "law %s: %s — %s\n", law.Name, law.Sentence, verdict); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	return errors.Join(errs...)
}

// trial returns nil if the law accepts its correct subject and rejects its
// saboteur.
func (l Law[S]) trial(ctx context.Context) error {
	if l.Correct == nil || l.Saboteur == nil {
		return fmt.Errorf("law %q has no correct subject or no saboteur", l.Name)
	}
	correct, err := l.Correct(ctx)
	if err != nil {
		return fmt.Errorf("law %q: open the correct subject: %w", l.Name, err)
	}
	if err := l.Check(ctx, correct); err != nil {
		return fmt.Errorf("the correct subject is rejected: %w", err)
	}
	saboteur, err := l.Saboteur(ctx)
	if err != nil {
		return fmt.Errorf("law %q: open the saboteur: %w", l.Name, err)
	}
	switch err := l.Check(ctx, saboteur); {
	case err == nil:
		return fmt.Errorf("law %q: saboteur not caught", l.Name)
	case !strings.Contains(err.Error(), l.Sentence):
		return fmt.Errorf("law %q: the error %q does not quote the sentence", l.Name, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("law %q: saboteur caught only by a timeout: %w", l.Name, err)
	}
	return nil
}
