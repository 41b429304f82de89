package transcripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/transcripts"
)

// The records of session S: a prompt, the call t1 that starts the sub-agent a1, and
// the result of t1.
const (
	asks   = `{"type":"user","uuid":"p1","sessionId":"S","timestamp":"2026-03-01T10:00:00Z","message":{"content":"count the beans"}}` + "\n"
	spawns = `{"type":"assistant","uuid":"p2","sessionId":"S","timestamp":"2026-03-01T10:00:01Z","message":{"id":"m1","model":"big","content":[{"type":"tool_use","id":"t1","name":"Agent","input":{"prompt":"go"}}]}}` + "\n"
	ends   = `{"type":"user","uuid":"p3","sessionId":"S","timestamp":"2026-03-01T10:00:09Z","toolUseResult":{"status":"completed","agentId":"a1"},"message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"7"}]}}` + "\n"
)

// inner has the records of the sub-agent without the members that name its session.
// They occur in the progress of the call and in the file of the sub-agent.
var inner = []string{
	`"type":"user","uuid":"i1","timestamp":"2026-03-01T10:00:02Z","message":{"role":"user","content":%s}`,
	`"type":"assistant","uuid":"i2","timestamp":"2026-03-01T10:00:03Z","message":{"id":"m2","model":"small","content":[{"type":"tool_use","id":"t2","name":"Grep","input":{"pattern":"bean"}}]}`,
	`"type":"user","uuid":"i3","timestamp":"2026-03-01T10:00:04Z","message":{"content":[{"type":"tool_result","tool_use_id":"t2","content":"7 lines"}]}`,
	`"type":"assistant","uuid":"i4","timestamp":"2026-03-01T10:00:05Z","message":{"id":"m3","model":"small","content":[{"type":"tool_use","id":"t3","name":"Read","input":{"file":"x"}}]}`,
}

// progressOf returns the records of a sub-agent as the progress of its call contains
// them.
func progressOf(agent string) string {
	var all strings.Builder
	for i, record := range inner {
		if i == 0 {
			record = fmt.Sprintf(record, `[{"type":"text","text":"go"}]`)
		}
		fmt.Fprintf(&all, `{"type":"progress","uuid":"o%d","sessionId":"S","timestamp":"2026-03-01T10:00:06Z","parentToolUseID":"t1","toolUseID":"agent_m1","data":{"type":"agent_progress","agentId":"%s","message":{%s}}}`+"\n", i, agent, record)
	}
	return all.String()
}

// fileOf returns the records of a sub-agent as its own file contains them. Only the
// file has the text and the thinking of its last reply.
func fileOf(agent string) string {
	var all strings.Builder
	for i, record := range inner {
		if i == 0 {
			record = fmt.Sprintf(record, `"go"`)
		}
		if i == 3 {
			fmt.Fprintf(&all, `{"isSidechain":true,"agentId":"%s","sessionId":"S","type":"assistant","uuid":"i35","timestamp":"2026-03-01T10:00:04.5Z","message":{"id":"m3","model":"small","content":[{"type":"thinking","thinking":"where?"},{"type":"text","text":"I look."}]}}`+"\n", agent)
		}
		fmt.Fprintf(&all, `{"isSidechain":true,"agentId":"%s","sessionId":"S",%s}`+"\n", agent, record)
	}
	return all.String()
}

// subAgent returns the opening of the one session of a ledger with the source S/a1.
func subAgent(t *testing.T, f facts) events.SessionOpened {
	t.Helper()
	var found []events.SessionOpened
	for _, s := range f.Sessions {
		if s.Origin.Source == "S/a1" {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d sessions are of S/a1, want 1: %v", len(found), f.Sessions)
	}
	return found[0]
}

// mainOf returns the session with the source S.
func mainOf(f facts) domain.SessionID {
	for _, s := range f.Sessions {
		if s.Origin.Source == "S" {
			return s.Session
		}
	}
	return domain.SessionID{}
}

// spawnsOf returns, for each session, the last event that records the call which
// started it.
func spawnsOf(t *testing.T, l *events.Ledger) map[domain.SessionID]events.SessionSpawned {
	t.Helper()
	all := map[domain.SessionID]events.SessionSpawned{}
	for v, err := range l.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := v.Event.(events.SessionSpawned); ok {
			id, _ := v.Stream.Session()
			all[id] = e
		}
	}
	return all
}

// A sub-agent whose records are in its own file, in the progress of its call or in
// both is one session with the parent and the call that started it, in any order of
// imports.
func TestASubAgentIsOneSessionWithItsCallInEveryOrder(t *testing.T) {
	t.Parallel()
	bare, through, own := asks+spawns+ends, asks+spawns+progressOf("a1")+ends, fileOf("a1")
	for name, files := range map[string][]string{
		"progress alone":               {through},
		"parent, then agent":           {bare, own},
		"agent, then parent":           {own, bare},
		"progress, then agent":         {through, own},
		"agent, then progress":         {own, through},
		"both in one file":             {asks + spawns + progressOf("a1") + own + ends},
		"agent, half parent, all":      {own, asks, asks + spawns + progressOf("a1"), through},
		"half agent, progress, all":    {own[:len(own)/2], through, own, bare},
		"progress, torn agent, parent": {asks + spawns + progressOf("a1")[:700], own[:900], own, bare},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger()
			for _, data := range files {
				importAll(t, l, []byte(data))
			}
			once := spawnsOf(t, l)
			for _, data := range files {
				importAll(t, l, []byte(data))
			}
			for i, data := range files {
				if added := importAll(t, l, []byte(data)); added != 0 {
					t.Errorf("importing file %d again adds %d events, want 0", i, added)
				}
			}
			f := factsOf(t, l)
			child := subAgent(t, f)
			if len(f.Sessions) != 2 || len(f.Asked) != 3 || len(f.Settled) != 2 || len(f.Prompts) != 2 || f.Late != 0 {
				t.Errorf("%d sessions, %d calls, %d settled, prompts %q, %d late, want 2, 3, 2, two prompts and none",
					len(f.Sessions), len(f.Asked), len(f.Settled), f.Prompts, f.Late)
			}
			by := spawnsOf(t, l)[child.Session]
			if once[child.Session] != by {
				t.Errorf("the sub-agent was spawned by %+v after one import of each file, want %+v", once[child.Session], by)
			}
			if child.Parent != mainOf(f) || by.Parent != mainOf(f) || by.Call != "t1" || f.Replies[by.Message].Model != "big" {
				t.Errorf("the sub-agent has parent %v and was spawned by %+v, want %v and t1 of the reply of m1", child.Parent, by, mainOf(f))
			}
			if _, started := f.Started[key(events.SessionStream(mainOf(f)), by.Message, "t1")]; !started {
				t.Error("the call that spawned the sub-agent is not on record as begun")
			}
			if child.Model != "small" {
				t.Errorf("the sub-agent is of model %q, want small", child.Model)
			}
			for _, r := range f.Replies {
				if len(r.Calls) == 1 && r.Calls[0].ID == "t3" && len(files) > 1 && files[1] == own && (r.Text != "I look." || r.Thinking != "where?") {
					t.Errorf("the last reply says %q and thinks %q, want what its file has", r.Text, r.Thinking)
				}
			}
		})
	}
}

// The report counts the calls of a sub-agent in progress records, and repeated
// records once.
func TestCallsInProgressAreCounted(t *testing.T) {
	t.Parallel()
	r := readFile(t, []byte(asks+spawns+progressOf("a1")+progressOf("a1")+ends)).Report
	if got, want := [4]int{r.Calls, r.Results, r.Open, r.Records}, [4]int{3, 2, 1, 11}; got != want {
		t.Errorf("calls, results, open, records = %v, want %v", got, want)
	}
	if len(r.RefusedLines) > 0 || r.Ignored["repeated record"] != 4 {
		t.Errorf("refused %v, ignored %v, want the four repeated records counted", r.RefusedLines, r.Ignored)
	}
}

// The parent of a nested sub-agent is the sub-agent that started it, in any order of
// imports.
func TestASubAgentOfASubAgentHasItAsItsParent(t *testing.T) {
	t.Parallel()
	nested := `{"isSidechain":true,"agentId":"a1","sessionId":"S","type":"user","uuid":"n1","toolUseResult":{"agentId":"a2"},"message":{"content":[{"type":"tool_result","tool_use_id":"t3","content":"x"}]}}` + "\n"
	deep := `{"isSidechain":true,"agentId":"a2","sessionId":"S","type":"user","uuid":"d1","timestamp":"2026-03-01T10:00:06Z","message":{"content":"deeper"}}` + "\n"
	for _, files := range [][]string{
		{asks + spawns + ends, fileOf("a1") + nested, deep}, {deep, fileOf("a1") + nested, asks + spawns + ends}, {deep, asks + spawns + ends, fileOf("a1") + nested},
	} {
		l := newLedger()
		for _, data := range files {
			importAll(t, l, []byte(data))
		}
		f := factsOf(t, l)
		child := subAgent(t, f)
		for _, s := range f.Sessions {
			if s.Origin.Source == "S/a2" && s.Parent != child.Session {
				t.Errorf("S/a2 has parent %v, want that of S/a1, %v", s.Parent, child.Session)
			}
		}
		for _, data := range files {
			if added := importAll(t, l, []byte(data)); added != 0 {
				t.Errorf("importing again adds %d events, want 0", added)
			}
		}
	}
}

// Files in which sub-agents start each other in a ring are imported without a cycle
// of parents.
func TestNoSubAgentComesOfItself(t *testing.T) {
	t.Parallel()
	spawn := func(agent, call, child string) string {
		return fmt.Sprintf(`{"isSidechain":true,"agentId":"%[1]s","sessionId":"S","type":"assistant","uuid":"c%[1]s%[2]s","message":{"id":"m%[1]s%[2]s","content":[{"type":"tool_use","id":"%[2]s","name":"Agent"}]}}
{"isSidechain":true,"agentId":"%[1]s","sessionId":"S","type":"user","uuid":"r%[1]s%[2]s","toolUseResult":{"agentId":"%[3]s"},"message":{"content":[{"type":"tool_result","tool_use_id":"%[2]s","content":"x"}]}}
`, agent, call, child)
	}
	for name, files := range map[string][]string{
		"of itself":            {spawn("a", "1", "a")},
		"of each other":        {spawn("a", "1", "b") + spawn("b", "2", "a")},
		"of each other, apart": {spawn("a", "1", "b"), spawn("b", "2", "a")},
		"in a ring":            {spawn("c", "3", "a"), spawn("b", "2", "c"), spawn("a", "1", "b")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger()
			for range 2 {
				for _, data := range files {
					importAll(t, l, []byte(data))
				}
			}
			f := factsOf(t, l)
			for id := range f.Sessions {
				at := id
				for range len(f.Sessions) + 1 {
					at = f.Sessions[at].Parent
				}
				if !at.IsZero() {
					t.Errorf("session %v comes of itself", f.Sessions[id].Origin.Source)
				}
			}
		})
	}
}

// One Importer links the sub-agents of several files to the session that is imported
// last.
func TestAnImporterOfManyFilesLinksThemAll(t *testing.T) {
	t.Parallel()
	l := newLedger()
	i, err := transcripts.NewImporter(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{fileOf("a1"), fileOf("a2"), asks + spawns + ends} {
		if _, err := i.Import(t.Context(), readFile(t, []byte(data))); err != nil {
			t.Fatal(err)
		}
	}
	f := factsOf(t, l)
	for _, s := range f.Sessions {
		if strings.HasPrefix(s.Origin.Source, "S/") && s.Parent != mainOf(f) {
			t.Errorf("%s has parent %v, want %v", s.Origin.Source, s.Parent, mainOf(f))
		}
	}
	if by := spawnsOf(t, l); len(by) != 2 || by[subAgent(t, f).Session].Call != "t1" {
		t.Errorf("spawned are %v, want a1 by t1, and a2 by a call that is not known", by)
	}
}
