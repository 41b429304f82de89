package domain_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// Parsing the text of a reference returns the reference.
func TestRefReadsBack(t *testing.T) {
	t.Parallel()
	id := newMint().Event()
	for _, c := range []domain.Channel{domain.TextChannel, domain.StructuredChannel} {
		want := domain.NewRef(id, c)
		if text := want.String(); text != "output://"+id.String()+"/"+c.String() || !domain.IsRef(text) {
			t.Errorf("the reference prints as %s", text)
		}
		got, err := domain.ParseRef(want.String())
		if err != nil || got != want || got.Settlement() != id || got.Channel() != c {
			t.Errorf("ParseRef(%s) = %s, %v", want, got, err)
		}
		var again domain.Ref
		if err := again.UnmarshalText([]byte(want.String())); err != nil || again != want {
			t.Errorf("UnmarshalText(%s) = %s, %v", want, again, err)
		}
	}
}

// ParseRef returns ErrBadRef for every other text.
func TestBadRefsAreRefused(t *testing.T) {
	t.Parallel()
	good := domain.NewRef(newMint().Event(), domain.TextChannel)
	id := good.Settlement().String()
	for _, text := range []string{
		"", "output", "output://", "output:///", "output:///text", "output://" + id, "output://" + id + "/", "output://" + id + "/media",
		"output://" + id + "/TEXT", "output://" + id + "/text/", good.String() + "/..", good.String() + "\n", "OUTPUT://" + id + "/text",
		id + "/text", "output://ses" + id[3:] + "/text", "output://../" + id + "/text", "/output://" + id + "/text",
	} {
		got, err := domain.ParseRef(text)
		if !errors.Is(err, domain.ErrBadRef) || !got.IsZero() {
			t.Errorf("ParseRef(%q) = %s, %v, want ErrBadRef", text, got, err)
		}
		kept := good
		if err := kept.UnmarshalText([]byte(text)); text != "" && (err == nil || kept != good) {
			t.Errorf("UnmarshalText(%q) = %v and leaves %s", text, err, kept)
		}
	}
	if err := good.UnmarshalText(nil); err != nil || !good.IsZero() || good.String() != "" {
		t.Errorf("UnmarshalText of nothing = %v and leaves %s, want the zero Ref", err, good)
	}
}

// FuzzParseRef checks that a text that parses is the text of its reference,
// without regard to case.
func FuzzParseRef(f *testing.F) {
	f.Add(domain.NewRef(newMint().Event(), domain.StructuredChannel).String())
	f.Add("output://evt_/text")
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := domain.ParseRef(text)
		if err != nil {
			if !errors.Is(err, domain.ErrBadRef) || !ref.IsZero() {
				t.Fatalf("ParseRef(%q) = %s, %v", text, ref, err)
			}
			return
		}
		if again, err := domain.ParseRef(ref.String()); err != nil || again != ref || !strings.EqualFold(ref.String(), text) || !domain.IsRef(text) {
			t.Fatalf("ParseRef(%q) prints as %s and reads back as %s, %v", text, ref, again, err)
		}
	})
}
