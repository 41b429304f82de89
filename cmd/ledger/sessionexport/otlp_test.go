package sessionexport

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// spans parses an export with the types of OpenTelemetry.
func spans(t *testing.T, text string) []*tracepb.Span {
	t.Helper()
	var d tracepb.TracesData
	if err := protojson.Unmarshal([]byte(text), &d); err != nil { // it refuses unknown names and wrong types
		t.Fatalf("not OTLP: %v\n%.300s", err, text)
	}
	return d.ResourceSpans[0].ScopeSpans[0].Spans
}

// attribute returns a text attribute of a span.
func attribute(s *tracepb.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func init() {
	callsIn[OTLP] = func(t *testing.T, text string) (found []string) {
		all := spans(t, text)
		ids := map[string]bool{}
		for _, s := range all {
			if ids[string(s.SpanId)] {
				t.Fatalf("two spans have the ID of %s", s.Name)
			}
			ids[string(s.SpanId)] = true
		}
		roots := 0
		for _, s := range all {
			// The IDs are hexadecimal in the JSON of OTLP: 32 digits of a trace, 16 of a span.
			if len(s.TraceId) != 32*3/4 || len(s.SpanId) != 16*3/4 || string(s.TraceId) != string(all[0].TraceId) {
				t.Fatalf("the span %s has the IDs %x and %x", s.Name, s.TraceId, s.SpanId)
			}
			if s.EndTimeUnixNano == 0 || s.StartTimeUnixNano == 0 {
				t.Fatalf("the span %s lasts from %d to %d", s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano)
			}
			if len(s.ParentSpanId) == 0 {
				roots++
			} else if !ids[string(s.ParentSpanId)] {
				t.Fatalf("the parent of the span %s is not in the trace", s.Name)
			}
			tool, ok := strings.CutPrefix(s.Name, "execute_tool ")
			if !ok {
				continue
			}
			outcome := attribute(s, "ledger.call.outcome")
			failed := outcome != domain.Succeeded.String()
			if (attribute(s, "error.type") == outcome) != failed || (s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR) != failed {
				t.Fatalf("the call %s is %s, with the status %v", s.Name, outcome, s.Status)
			}
			found = append(found, tool+" "+attribute(s, "gen_ai.tool.call.id")+" "+outcome)
		}
		if roots != 1 {
			t.Fatalf("the trace has %d roots", roots)
		}
		return found
	}
}

// Each turn has a span, with its reply, its refusal or the lack of one.
func TestEachTurnHasASpan(t *testing.T) {
	t.Parallel()
	turns := 0
	for seed := range uint64(5) {
		history := projectionstest.History(seed, 300)
		from, sessions := source(t, history)
		for _, s := range sessions {
			want := 0
			for _, v := range history {
				if _, ok := v.Event.(events.TurnMaterialized); ok && v.Correlation == s.ID {
					want++
				}
			}
			got := 0
			for _, span := range spans(t, export1(t, from, s, Options{Format: OTLP})) {
				if attribute(span, "gen_ai.operation.name") == "chat" {
					got++
				}
			}
			if turns += got; got != want {
				t.Errorf("seed %d, session %s has %d spans of %d turns", seed, s.ID, got, want)
			}
		}
	}
	if turns == 0 {
		t.Error("the histories have no turns")
	}
}

// A turn without a usable reply has a span that failed, with the failed requests.
func TestTurnsWithoutAReplyAreFailedSpans(t *testing.T) {
	t.Parallel()
	l := projectionstest.NewLog(1)
	id, refused, silent := l.Mint.Session(), l.Mint.Turn(), l.Mint.Turn()
	s := events.SessionStream(id)
	l.Add(s, events.SessionOpened{Session: id, Agent: "a", Origin: events.Origin{Kind: events.RunHere}})
	l.Add(s, events.TurnMaterialized{Turn: refused, Message: l.Mint.Message(), Agent: "a"})
	l.Add(s, events.ReplyRefused{Turn: refused, Reason: "no JSON"})
	l.Add(s, events.TurnMaterialized{Turn: silent, Message: l.Mint.Message(), Agent: "a"})
	last := l.Add(s, events.ProviderFailed{Turn: silent, Detail: "busy", Status: 529})
	from, sessions := source(t, l.Envelopes())
	all := spans(t, export1(t, from, sessions[0], Options{Format: OTLP}))
	if len(all) != 3 || attribute(all[0], "error.type") != "reply_refused" || all[0].Status.Message != "no JSON" || attribute(all[1], "error.type") != "no_reply" ||
		len(all[1].Events) != 1 || all[1].EndTimeUnixNano != uint64(last.Time.UnixNano()) {
		t.Errorf("the spans are %v", all)
	}
}

// A permission is two events of the span of its call, and a subsession links to the call
// that started it.
func TestSpansHaveDecisionsAndLinks(t *testing.T) {
	t.Parallel()
	from, sessions := source(t, secretSession())
	all := spans(t, export1(t, from, sessions[0], Options{Format: OTLP, Full: true}))
	at := slices.IndexFunc(all, func(s *tracepb.Span) bool { return attribute(s, "gen_ai.tool.call.id") == "call_1" })
	var names []string
	for _, e := range all[at].Events {
		names = append(names, e.Name)
	}
	if want := []string{"ledger.permission.requested", "ledger.permission.decided", "ledger.question.asked", "ledger.question.answered", "ledger.late_result"}; !slices.Equal(names, want) {
		t.Errorf("the call has the events %q, want %q", names, want)
	}
	if attribute(all[at], "gen_ai.tool.call.arguments") == "" || attribute(all[at], "gen_ai.tool.call.result") == "" {
		t.Error("the full export has no arguments or no result")
	}
	l := projectionstest.NewLog(1)
	parent, child, m := l.Mint.Session(), l.Mint.Session(), l.Mint.Message()
	l.Add(events.SessionStream(parent), events.SessionOpened{Session: parent, Agent: "a", Origin: events.Origin{Kind: events.RunHere}})
	l.Add(events.SessionStream(parent), events.ReplyReceived{Message: m, Calls: []domain.Call{{ID: "c", Name: "task", Input: json.RawMessage("{}")}}})
	l.Add(events.SessionStream(child), events.SessionOpened{Session: child, Agent: "b", Parent: parent, ParentMessage: m, ParentCall: "c", Origin: events.Origin{Kind: events.RunHere}})
	from, sessions = source(t, l.Envelopes())
	above, below := spans(t, export1(t, from, sessions[0], Options{Format: OTLP})), spans(t, export1(t, from, sessions[1], Options{Format: OTLP}))
	if link := below[0].Links; len(link) != 1 || string(link[0].SpanId) != string(above[0].SpanId) || string(link[0].TraceId) != string(above[0].TraceId) {
		t.Errorf("the subsession has the links %v", link)
	}
}
