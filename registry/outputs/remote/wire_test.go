package remote

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// Errors keep their text and their identity through their encoding.
func TestErrorsAreTheSameOnTheWire(t *testing.T) {
	t.Parallel()
	all := []error{
		outputs.ErrNotKept, outputs.ErrExists, outputs.ErrNotFound, outputs.ErrPruned, outputs.ErrDamaged, outputs.ErrBroken, outputs.ErrClosed,
		domain.ErrBadRef, ErrTooLarge, ErrChecksum, ErrDenied, syscall.ENOSPC,
	}
	if len(all) != len(errorCodes) {
		t.Errorf("the wire has %d words, want one for each of %d errors", len(errorCodes), len(all))
	}
	for i, a := range all {
		b := all[(i+1)%len(all)]
		sent := fmt.Errorf("do a thing: %w: %w", a, b)
		text, status := encodeError(sent)
		got := decodeError(text)
		if got.Error() != sent.Error() || status < 400 {
			t.Errorf("%q is %q with status %d on the other side", sent, got, status)
		}
		for _, e := range all {
			if errors.Is(got, e) != errors.Is(sent, e) {
				t.Errorf("%q is %v: %t, want %t", got, e, errors.Is(got, e), errors.Is(sent, e))
			}
		}
	}
	text, status := encodeError(errors.New(strings.Repeat("é", maxText)))
	if got := decodeError(text); status != 500 || len(got.Error()) > maxText+3 || strings.ContainsRune(got.Error(), '\uFFFD') {
		t.Errorf("a long text arrives as %d bytes with status %d, want it cut between letters", len(got.Error()), status)
	}
}

// Metadata keep every field through their encoding.
func TestRetainedIsTheSameOnTheWire(t *testing.T) {
	t.Parallel()
	for i, content := range []string{"", "x", "a\nb\n"} {
		want := retainedOf(refs(byte(i))(), []byte(content))
		want.MIME += "\xff" // which no JSON could hold
		if got, err := decodeRetained(encodeRetained(want)); err != nil || got != want {
			t.Errorf("it arrives as %+v, %v, want %+v", got, err, want)
		}
	}
}

// FuzzRetained checks that a decoded value is possible metadata of a blob, and
// encodes to the same value.
func FuzzRetained(f *testing.F) {
	f.Add(encodeRetained(retainedOf(refs(1)(), []byte("a\nb"))))
	f.Add("ref=output%3A%2F%2Fevt_01J00000000000000000000007%2Ftext&bytes=-1&lines=0&mime=&sha256=")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := decodeRetained(text)
		if err != nil {
			if r != (domain.Retained{}) {
				t.Errorf("decode %q = %+v with %v, want nothing", text, r, err)
			}
			return
		}
		if r.Ref.IsZero() || r.Bytes < 0 || r.Lines < 1 || r.Lines > r.Bytes+1 || len(r.SHA256) != 64 {
			t.Errorf("decode %q = %+v, which no output can be", text, r)
		}
		if again, err := decodeRetained(encodeRetained(r)); err != nil || again != r {
			t.Errorf("encode and decode %+v = %+v, %v", r, again, err)
		}
	})
}

// FuzzError checks that any header decodes to an error, and that the error of a
// pruned blob survives a round trip.
func FuzzError(f *testing.F) {
	pruned := &outputs.PrunedError{Retained: retainedOf(refs(1)(), []byte("x")), Policy: "p", At: time.Unix(1, 2).UTC()}
	for _, err := range []error{outputs.ErrNotFound, pruned, errors.New("another")} {
		text, _ := encodeError(err)
		f.Add(text)
	}
	f.Add("is=pruned&text=x&retained=&at=")
	f.Fuzz(func(t *testing.T, text string) {
		err := decodeError(text)
		if err == nil {
			t.Fatalf("decode %q = nil, want an error", text)
		}
		p, ok := errors.AsType[*outputs.PrunedError](err)
		if !ok {
			return
		}
		text, _ = encodeError(err)
		if again, ok := errors.AsType[*outputs.PrunedError](decodeError(text)); !ok || *again != *p {
			t.Errorf("encode and decode %+v = %+v", p, again)
		}
	})
}
