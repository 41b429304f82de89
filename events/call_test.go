package events_test

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
)

// fromLog records a settlement, reads it back and returns the settlement that was
// read.
func fromLog(t *testing.T, s domain.Settlement) domain.Settlement {
	t.Helper()
	l := newLedger(eventstest.NewSlice())
	stream := events.SessionStream(l.Mint().Session())
	draft := l.Draft(events.Settled(l.Mint().Turn(), l.Mint().Message(), domain.Call{ID: "call_1", Name: "show"}, s), domain.EventID{})
	if _, err := l.Append(t.Context(), stream, 0, draft); err != nil {
		t.Fatal(err)
	}
	var settled domain.Settlement
	for v, err := range l.Read(t.Context(), stream, 0) {
		if err != nil {
			t.Fatal(err)
		}
		settled = v.Event.(events.CallSettled).Settlement(v.ID)
	}
	if settled.ID != draft.ID {
		t.Errorf("the settlement is %s, want the event %s", settled.ID, draft.ID)
	}
	return settled
}

// anyJSON is the codec of any JSON, byte for byte.
type anyJSON struct{}

func (anyJSON) Schema() json.RawMessage                                  { return json.RawMessage(`{}`) }
func (anyJSON) Decode(data json.RawMessage) (json.RawMessage, error)     { return data, nil }
func (anyJSON) Encode(document json.RawMessage) (json.RawMessage, error) { return document, nil }

func TestPresentationReadsTheSameFromTheLog(t *testing.T) {
	t.Parallel()
	text := func(texts ...string) (contents []domain.Content) {
		for _, s := range texts {
			contents = append(contents, domain.Text(s))
		}
		return contents
	}
	for name, row := range map[string]struct {
		encoded string
		present []domain.Content
	}{
		"structured":             {`{"a":[1,2.50,9007199254740993,1e999],"b":"<&>\u2028"}`, nil},
		"structured with space":  {"\n{ \"a\" : 1 }\n", nil},
		"null":                   {`null`, nil},
		"a string":               {` "<a> & \u2028 \ud83d\ude00"`, nil},
		"an empty string":        {`""`, nil},
		"text":                   {`{}`, text("one <b> & \u2028 \x00")},
		"texts":                  {`{}`, text("a", "", "b")},
		"text that is not UTF-8": {`{}`, text("a\xff\xfeb")},
		"texts that are not":     {`{}`, text("a\xff", "\xc3")},
		"media":                  {`{}`, []domain.Content{domain.Media{MIME: "image/png", Name: "\xff.png", Data: []byte{0, 0xff}}}},
		"text and media":         {`{}`, append(text("chart"), domain.Media{MIME: "text/plain; charset=utf-8", Data: []byte{}})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tool, err := domain.Make(domain.Spec[json.RawMessage, json.RawMessage]{
				Description: "shows", Input: anyJSON{}, Output: anyJSON{},
				Execute: func(context.Context, json.RawMessage, domain.Invocation) (json.RawMessage, error) {
					return json.RawMessage(row.encoded), nil
				},
				Present: presentation(row.present),
			})
			if err != nil {
				t.Fatal(err)
			}
			bound, err := tool.Bind(nil)
			if err != nil {
				t.Fatal(err)
			}
			output, err := bound.Run(t.Context(), domain.Invocation{})
			if err != nil {
				t.Fatal(err)
			}
			live := domain.Settlement{Outcome: domain.Succeeded, Began: true, Structured: output.Structured(), Content: output.Content()}
			if got, want := fromLog(t, live).ToolResult(), live.ToolResult(); !reflect.DeepEqual(got, want) {
				t.Errorf("from the log it reads\n%+q, live it read\n%+q", got, want)
			}
		})
	}
}

func presentation(contents []domain.Content) func(json.RawMessage, domain.Encoded[json.RawMessage]) []domain.Content {
	if contents == nil {
		return nil
	}
	return func(json.RawMessage, domain.Encoded[json.RawMessage]) []domain.Content { return contents }
}

func TestEveryOutcomeReadsTheSameFromTheLog(t *testing.T) {
	t.Parallel()
	for _, o := range domain.Outcomes() {
		live := domain.Settlement{Outcome: o, Text: "it was \xff <so>", Structured: json.RawMessage(`1`)}
		if got, want := fromLog(t, live).ToolResult(), live.ToolResult(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: from the log it reads %+q, live it read %+q", o, got, want)
		}
	}
}

func TestSettlementOnRecordIsTheOneThatWasSettled(t *testing.T) {
	t.Parallel()
	m := newLedger(nil).Mint()
	offered := domain.Offered{Name: "show", Registration: domain.RegistrationOf(m.Event()), Layer: m.Layer(), Fingerprint: domain.Fingerprint{1}}
	effective := offered
	effective.Registration = domain.RegistrationOf(m.Event())
	want := domain.Settlement{
		Outcome: domain.Interrupted, Began: true, Interruption: domain.ByDeadline, Text: "text", Detail: "detail",
		Rule:  domain.Rule{Action: "a", Resource: "b", Effect: domain.Deny},
		Input: json.RawMessage(`{"a":1}`), Structured: json.RawMessage(`[1]`), Content: domain.Contents{domain.Text("a"), domain.Media{MIME: "a/b", Data: []byte("x")}},
		Lost: 7, Retained: []domain.Retained{{Ref: domain.NewRef(m.Event(), domain.TextChannel), Bytes: 1, Lines: 2, MIME: "text/plain", SHA256: "ab"}},
		Progress: &domain.Progress{Structured: json.RawMessage(`7`)},
		Offered:  offered, Effective: effective, ChangedBy: m.Event(),
		Files: []domain.FileAccess{{Path: "/a", Access: domain.FileRead, Version: "sha256:00"}}, Ran: 1500 * time.Millisecond,
	}
	for f, field := range reflect.ValueOf(want).Fields() {
		if field.IsZero() && f.Name != "ID" {
			t.Errorf("this test leaves %s unset", f.Name)
		}
	}
	got := fromLog(t, want)
	want.ID = got.ID
	if !reflect.DeepEqual(got, want) {
		t.Errorf("on record\n%+v, settled\n%+v", got, want)
	}
	turn, message := m.Turn(), m.Message()
	event := events.Settled(turn, message, domain.Call{ID: "call_1", Name: "show"}, want)
	if !event.Agrees || event.Turn != turn || event.Message != message || event.Call != "call_1" || event.Tool != "show" {
		t.Errorf("the event is %+v, want it to name the call and that the definitions agree", event)
	}
}

func TestMaterializationOnRecordIsTheOffer(t *testing.T) {
	t.Parallel()
	m := newLedger(nil).Mint()
	e := events.TurnMaterialized{Turn: m.Turn(), Tools: []domain.Offered{{Name: "show"}}}
	if got, want := e.Offer(), (domain.Offer{Turn: e.Turn, Tools: e.Tools}); !reflect.DeepEqual(got, want) {
		t.Errorf("Offer() = %+v, want %+v", got, want)
	}
}
