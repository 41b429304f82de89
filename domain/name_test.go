package domain_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// Names at the limits of the grammar are valid, and beyond them invalid.
// Scenario 17.
func TestNamesAtTheLimits(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a", "Z", "a9", "a_", "a-", "web_fetch", "Read-2", strings.Repeat("a", 64)} {
		if got, err := domain.ParseName(text); err != nil || string(got) != text {
			t.Errorf("ParseName(%q) = %q, %v, want it accepted", text, got, err)
		}
	}
	for _, text := range []string{
		"", "9a", "_a", "-a", ".a", "a.b", "a b", " a", "a ", "a\n", "a/b", "a\x00", "é", "aé", "日本", "a\xff", strings.Repeat("a", 65),
	} {
		got, err := domain.ParseName(text)
		if !errors.Is(err, domain.ErrBadName) || got != "" {
			t.Errorf("ParseName(%q) = %q, %v, want ErrBadName", text, got, err)
		}
	}
}

// The error for an invalid name quotes the name.
func TestBadNameIsQuoted(t *testing.T) {
	t.Parallel()
	if _, err := domain.ParseName("my tool"); !strings.HasPrefix(err.Error(), `Invalid tool name: "my tool"`) {
		t.Errorf("ParseName = %v, want the name quoted", err)
	}
}

// FuzzParseName compares ParseName with a regular expression.
func FuzzParseName(f *testing.F) {
	grammar := regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)
	for _, text := range []string{"read", "a\n", "9", strings.Repeat("x", 65)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want := grammar.MatchString(text)
		if got, err := domain.ParseName(text); (err == nil) != want || want && string(got) != text {
			t.Fatalf("ParseName(%q) = %q, %v, want accepted: %t", text, got, err, want)
		}
	})
}
