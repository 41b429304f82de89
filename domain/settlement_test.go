package domain_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// The model reads the text of an unsuccessful settlement.
func TestUnsuccessfulOutcomeReadsAsItsText(t *testing.T) {
	t.Parallel()
	for _, o := range domain.Outcomes() {
		s := domain.Settlement{Outcome: o, Text: "why", Structured: json.RawMessage(`{"a":1}`), Content: parts()}
		got := s.ToolResult()
		if o == domain.Succeeded {
			if got.Error != "" || got.Type() != "content" {
				t.Errorf("%s reads as %s %+v", o, got.Type(), got)
			}
		} else if !reflect.DeepEqual(got, domain.ToolResult{Error: "why"}) || got.Type() != "error" {
			t.Errorf("%s reads as %s %+v, want the text alone", o, got.Type(), got)
		}
	}
}

// The model reads the default text of an outcome if the settlement has no text.
func TestOutcomeWithoutATextReadsAsAnErrorThatSaysIt(t *testing.T) {
	t.Parallel()
	for _, o := range append(domain.Outcomes(), 0, domain.Outcome(200)) {
		for _, text := range []string{"", " \n\t"} {
			got := domain.Settlement{Outcome: o, Text: text}.ToolResult()
			switch {
			case o == domain.Succeeded:
				if got.Type() != "text" || got.Error != "" {
					t.Errorf("a success without an output reads as %s %+v, want an empty text", got.Type(), got)
				}
			case got.Type() != "error" || strings.TrimSpace(got.Error) == "":
				t.Errorf("%d with the text %q reads as %s %+v, want an error that says something", o, text, got.Type(), got)
			}
		}
	}
	var silent *domain.Failure
	if err := domain.Fail(""); !errors.As(err, &silent) || err.Error() == "" {
		t.Errorf("Fail without a text says %q, want that it has none", err)
	}
}

// A ToolResult has at most one field set, and Type names it.
func TestToolResultHasOneFieldNamedByItsType(t *testing.T) {
	t.Parallel()
	structured := json.RawMessage(`{"a":1}`)
	for want, s := range map[string]domain.Settlement{
		"json":    {Structured: structured},
		"text":    {Structured: structured, Content: domain.Contents{domain.Text("a")}},
		"content": {Structured: structured, Content: domain.Contents{domain.Text("a"), domain.Text("b")}},
	} {
		s.Outcome = domain.Succeeded
		got := s.ToolResult()
		set := 0
		for _, field := range []bool{got.Error != "", got.Text != "", got.Content != nil, got.Structured != nil} {
			if field {
				set++
			}
		}
		if got.Type() != want || set != 1 {
			t.Errorf("reads as %s %+v, want %s alone", got.Type(), got, want)
		}
	}
	alone := domain.Settlement{Outcome: domain.Succeeded, Content: domain.Contents{domain.Media{MIME: "a/a"}}}
	if got := alone.ToolResult().Type(); got != "content" {
		t.Errorf("one part of media reads as %s, want content", got)
	}
}

// A tool result with invalid UTF-8 is the same before and after it was stored.
func TestInvalidUTF8ReadsTheSameAfterStorage(t *testing.T) {
	t.Parallel()
	failed := domain.Settlement{Outcome: domain.Failed, Text: "a\xff\xfeb"}
	if got, want := failed.ToolResult().Error, "a\ufffd\ufffdb"; got != want {
		t.Errorf("reads as %q, want %q", got, want)
	}
	content := domain.Contents{domain.Text("\xff"), domain.Media{MIME: "a/\xff", Name: "\xff.png", Data: []byte("\xff")}}
	got := domain.Settlement{Outcome: domain.Succeeded, Content: content}.ToolResult().Content
	want := domain.Contents{domain.Text("\ufffd"), domain.Media{MIME: "a/\ufffd", Name: "\ufffd.png", Data: []byte("\xff")}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("reads as %q, want %q", got, want)
	}
	if content[0] != domain.Text("\xff") {
		t.Errorf("reading changed the settlement: %q", content)
	}
}

// Agrees is false if a definition is unknown.
func TestDefinitionsAgreeOnlyIfTheyAreKnown(t *testing.T) {
	t.Parallel()
	known := domain.Offered{Name: "read", Fingerprint: domain.Fingerprint{1}}
	other := domain.Offered{Name: "read", Fingerprint: domain.Fingerprint{2}}
	unknown := domain.Offered{Name: "read"}
	for _, row := range []struct {
		offered, effective domain.Offered
		want               bool
	}{{known, known, true}, {known, other, false}, {known, unknown, false}, {unknown, unknown, false}, {unknown, known, false}} {
		s := domain.Settlement{Offered: row.offered, Effective: row.effective}
		if got := s.Agrees(); got != row.want {
			t.Errorf("offered %v, effective %v: Agrees() = %t, want %t", row.offered, row.effective, got, row.want)
		}
	}
}

// The settlements of calls that did not run to their end report whether the call
// began.
func TestEndsThatRunNothingSayWhetherTheCallBegan(t *testing.T) {
	t.Parallel()
	offered := domain.Offered{Name: "read", Fingerprint: domain.Fingerprint{1}}
	for name, row := range map[string]struct {
		s     domain.Settlement
		want  domain.Outcome
		began bool
		says  string
	}{
		"interrupted before": {domain.InterruptedBefore(domain.ByUser), domain.Interrupted, false, "(user) before it began"},
		"interrupted while":  {domain.InterruptedWhile(domain.ByDeadline), domain.Interrupted, true, "(deadline): its effects are unknown"},
		"lost":               {domain.LostCall(offered, offered), domain.Lost, true, "outcome is unknown"},
		"disabled":           {domain.DisabledCall(), domain.Disabled, false, "disabled after the maximum number of steps"},
	} {
		interrupted := row.want == domain.Interrupted
		if row.s.Outcome != row.want || row.s.Began != row.began || (row.s.Interruption != 0) != interrupted || !strings.Contains(row.s.ToolResult().Error, row.says) {
			t.Errorf("%s: %+v", name, row.s)
		}
	}
	if lost := domain.LostCall(offered, offered); !lost.Agrees() {
		t.Errorf("a lost call forgot its registrations: %+v", lost)
	}
}

// Find returns the registration of an offered name, and false for another name.
func TestOfferFindsItsTools(t *testing.T) {
	t.Parallel()
	read, write := domain.Offered{Name: "read"}, domain.Offered{Name: "write", Fingerprint: domain.Fingerprint{1}}
	offer := domain.Offer{Tools: []domain.Offered{read, write}}
	if got, ok := offer.Find("write"); !ok || got != write {
		t.Errorf("Find(write) = %v, %t", got, ok)
	}
	for _, name := range []string{"", "Read", "edit"} {
		if got, ok := offer.Find(name); ok || !got.IsZero() {
			t.Errorf("Find(%q) = %v, %t, want none", name, got, ok)
		}
	}
}

// A call without an input stays without one when it is stored.
func TestCallWithoutInputStaysWithout(t *testing.T) {
	t.Parallel()
	for _, want := range []domain.Call{{ID: "c", Name: "pwd"}, {ID: "c", Name: "pwd", Input: json.RawMessage(`null`)}, {ID: "c", Input: json.RawMessage(`{"n":1e999}`)}} {
		data, err := json.Marshal(want)
		var got domain.Call
		if err == nil {
			err = json.Unmarshal(data, &got)
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s reads back as %+v, %v, want %+v", data, got, err, want)
		}
	}
}
