package events

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

var update = flag.Bool("update", false, "write the golden files of the versions that are written now")

// whole returns an event of every kind with every field set.
func sampleEvents() []Event {
	now := func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC) }
	m := domain.NewMint(now, rand.NewChaCha8([32]byte{7}))
	offered := domain.Offered{Name: "read", Registration: domain.RegistrationOf(m.Event()), Layer: m.Layer(), Fingerprint: domain.Fingerprint{1, 2}}
	effective := domain.Offered{Name: "read", Registration: domain.RegistrationOf(m.Event()), Layer: m.Layer(), Fingerprint: domain.Fingerprint{3, 4}}
	rule := domain.Rule{Action: "bash", Resource: "rm *", Effect: domain.Deny, Source: "rules.toml:3"}
	retained := domain.Retained{Ref: domain.NewRef(m.Event(), domain.TextChannel), Bytes: 70000, Lines: 12, MIME: "text/plain", SHA256: strings.Repeat("ab", 32)}
	content := domain.Contents{domain.Text("a < b & c"), domain.Media{MIME: "image/png", Name: "c.png", Data: []byte("png")}}
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	later := domain.NewMint(now, rand.NewChaCha8([32]byte{9}))   // for fields that were added later, so that the IDs of the others stay
	newest := domain.NewMint(now, rand.NewChaCha8([32]byte{10})) // for the fields of requests, as later
	last := domain.NewMint(now, rand.NewChaCha8([32]byte{11}))   // for the fields of summaries, as later
	forks := domain.NewMint(now, rand.NewChaCha8([32]byte{12}))  // for the kinds of forks, as later
	return []Event{
		ProcessStarted{Process: m.Process(), Host: "build-7", PID: 4711, Program: "ledger", Version: "v1.2.3", Until: now().Add(time.Minute), Address: "https://build-7:2114", InStore: true},
		ProcessStopped{Process: m.Process(), Reason: ProcessLost},
		LayerOpened{Layer: m.Layer(), Placement: domain.PerSession, Location: "/home/u/project", Session: m.Session(), Process: m.Process(), Observed: true},
		ToolsRegistered{
			Scope: m.Scope(),
			Tools: []RegisteredTool{{
				Name: "read", Description: "Reads <files> & folders.", Input: raw(`{"type":"object"}`), Output: raw(`{"type":"string"}`),
				Action: "read", Fingerprint: domain.Fingerprint{1, 2}, Idempotent: true, AsksFirst: true,
				Available: domain.Availability{{
					Agents: []string{"build"}, Models: []string{"gpt-*", "!gpt-4*"}, Providers: []string{"openai"}, Clients: []string{"ledger"},
					Flags: []string{"patch"}, Needs: []string{"program:gopls|clangd"},
				}},
			}},
			Refused: []RefusedTool{{Name: "my tool", Reason: "Invalid tool name"}},
		},
		RegistrationClosed{Registration: domain.RegistrationOf(m.Event()), Reason: ScopeClosed},
		LayerClosed{Layer: m.Layer(), Reason: ProcessEnded},
		SessionOpened{
			Session: m.Session(), Agent: "build", Location: "/home/u/project", Model: "some-model", Parent: m.Session(),
			Origin: Origin{Kind: Imported, Format: "claude-code", Source: "0b7d"}, ParentMessage: later.Message(), ParentCall: "call_7", Ancestors: []domain.AgentID{"plan"},
			VersionControl: VersionControl{System: "git", Commit: strings.Repeat("1a", 20), Branch: "fix/<it>", State: DirtyCopy},
		},
		PromptAdmitted{Message: m.Message(), Text: "mend the test", Media: content[1:]},
		TurnMaterialized{
			Turn: m.Turn(), Message: m.Message(), Agent: "build", Model: "some-model", Tools: []domain.Offered{offered},
			Hidden:   []HiddenTool{{Offered: effective, Rule: rule, Unmet: []domain.UnmetCondition{{Kind: "model", Wanted: "gpt-*", Found: "some-model"}}}},
			Disabled: true, Observed: true, Rules: strings.Repeat("ef", 32),
			Provider: "script", Client: "ledger", Flags: []string{"patch"}, System: strings.Repeat("0a", 32),
			Described:  []DescribedTool{{Name: "skill", Text: strings.Repeat("0b", 32)}},
			Parameters: strings.Repeat("0c", 32), Schemas: strings.Repeat("0d", 32), Instruction: strings.Repeat("0e", 32), Compacted: newest.Event(),
			Summarizes: last.Message(), RulesText: strings.Repeat("0f", 32),
		},
		ReplyReceived{
			Turn: m.Turn(), Message: m.Message(), Text: "I read it.", Calls: []domain.Call{{ID: "call_1", Name: "read", Input: raw(`{"path":"a.go"}`)}},
			Model: "some-model-1", Tokens: Tokens{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4}, Finish: "tool_use",
			Thinking: "Where is it <called>?", Items: []ProviderItem{{Provider: "acme", Model: "some-model", Data: raw(`{"signed":"<x>"}`)}},
		},
		CallStarted{
			Turn: m.Turn(), Message: m.Message(), Call: "call_1", Tool: "read", Offered: offered, Effective: effective,
			Input: raw(`{"path":"b.go"}`), Idempotent: true, AsksFirst: true, Title: "b.go", Process: m.Process(),
		},
		CallSettled{
			Turn: m.Turn(), Message: m.Message(), Call: "call_1", Tool: "read", Outcome: domain.Interrupted, Began: true, Interruption: domain.ByUser,
			Text: "stopped", Detail: "signal", Rule: rule, Input: raw(`{"path":"b.go"}`), Structured: raw(`{"n":1}`), Content: content,
			Retained: []domain.Retained{retained}, Lost: 5_800_000, Progress: &domain.Progress{Structured: raw(`7`), Content: content},
			Offered: offered, Effective: effective, Agrees: true, ChangedBy: m.Event(), Allowed: []domain.Rule{rule},
			RanMS: 1234, Files: []domain.FileAccess{{Path: "/home/u/project/b.go", Access: domain.FileChanged, Version: "sha256:" + strings.Repeat("0c", 32)}},
		},
		LateResultObserved{
			Message: m.Message(), Call: "call_1", Tool: "read", Settlement: m.Event(), Outcome: domain.Succeeded, Text: "late", Structured: raw(`"late"`),
		},
		PermissionRequested{
			Permission: m.Permission(), Message: m.Message(), Call: "call_1", Agent: "build", Action: "bash", Resources: []string{"git push"},
			Save: []string{"git *"}, Metadata: raw(`{"cwd":"/"}`),
			Shown: domain.Preview{Kind: domain.PreviewCommand, Text: "git push", Bytes: 9, Cut: 1, SHA256: strings.Repeat("cd", 32)},
		},
		PermissionDecided{
			Permission: m.Permission(), Effect: domain.Deny, By: ByPerson, Rule: rule, Scope: "reject", Feedback: "use a branch", WaitedMS: 1500, Person: "ada",
			Approvals: []UsedApproval{{Event: last.Event(), Resource: "git <*>"}},
		},
		ApprovalSaved{Permission: m.Permission(), Agent: "build", Location: "/home/u/project", Action: "bash", Resource: "git *", Expires: now().Add(time.Hour), Person: "ada"},
		ApprovalRevoked{Agent: "build", Location: "/home/u/project", Action: "bash", Resource: "git *", Reason: "no longer wanted", Person: "ada"},
		LoopDetected{Message: m.Message(), Call: "call_9", Tool: "read", Period: 2, Rounds: 3},
		OutputPruned{Retained: retained, Policy: "older than 30 days", Pruned: now()},
		SessionInterrupted{Reason: domain.ByShutdown, Detail: "SIGTERM"},
		SessionClosed{Reason: "done"},
		LeaseRenewed{Process: m.Process(), Until: now().Add(time.Minute)},
		ReplyRefused{
			Turn: m.Turn(), Message: m.Message(), Reason: "two calls have one ID", Text: "I read it.",
			Calls: []domain.Call{{ID: "call_1", Name: "read", Input: raw(`{"path":"a.go"}`)}},
			Model: "some-model-1", Tokens: Tokens{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4}, Finish: "tool_use",
			Thinking: "Where is it <called>?",
		},
		SettingChanged{Setting: SettingPermissionMode, Value: "bypassPermissions"},
		SessionSpawned{Parent: m.Session(), Message: m.Message(), Call: "call_1"},
		ContextAdded{Source: ContextSummary, Text: "We <read> & wrote", Bytes: 70000, SHA256: strings.Repeat("ab", 32)},
		ContextCompacted{
			Trigger: "auto", Before: 160000, After: 9000, Window: 200000, Reserved: 32000, Through: newest.Message(), Prompts: 2, Replies: 40, Calls: 90,
			Shortened: []ShortenedResult{{Message: newest.Message(), Call: "call_1", Bytes: 50000}}, Summary: "We <read> & wrote", Model: "some-model",
			Tokens: Tokens{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4}, Detail: "overloaded",
		},
		CommandRan{By: ByHook, Name: "PreToolUse:read", Command: "check <file>", Call: "call_1", Outcome: "blocked", Output: "no & no"},
		ProviderFailed{
			Detail: "Overloaded", Status: 529, Attempt: 2, Turn: newest.Turn(), Provider: "acme", Model: "some-model", Failure: "overloaded", Request: "req_1",
		},
		CallsAdded{Message: later.Message(), Parent: "call_1", Calls: []domain.Call{{ID: "call_1/1", Name: "read", Input: raw(`{"path":"a.go"}`)}}},
		QuestionAsked{
			Question: later.Permission(), Message: later.Message(), Call: "call_1", Agent: "build",
			Questions: []domain.Question{{Question: "Which <port>?", Header: "Port", Options: []domain.QuestionOption{{Label: "80", Description: "plain & open"}}, Multiple: true}},
		},
		QuestionAnswered{
			Question: later.Permission(), Answers: []AnsweredQuestion{{Chosen: []string{"80"}}}, Dismissed: true, Feedback: "none of them", By: ByPerson, WaitedMS: 1500, Person: "ada",
		},
		TextRecorded{Digest: strings.Repeat("0a", 32), Text: "You are <an> agent & write code."},
		AgentSwitched{Agent: "build", Previous: "plan", Message: later.Message(), Call: "call_1"},
		SessionForked{Parent: forks.Session(), Revision: 23, Event: forks.Event(), Turn: forks.Turn(), Call: "call_1"},
		TodosReplaced{Message: later.Message(), Call: "call_1", Todos: []domain.Todo{{Content: "fix <it>", Status: "pending", Priority: "high"}}},
	}
}

// sameEvents returns the events of the samples that can leave out fields which repeat
// others, with such fields.
func sameEvents() (all []Event) {
	for _, e := range sampleEvents() {
		switch e := e.(type) {
		case CallStarted:
			e.Effective = e.Offered
			all = append(all, e)
		case CallSettled:
			e.Effective = e.Offered
			all = append(all, e)
		}
	}
	return all
}

// additions counts, by kind, how often optional keys were added to the last
// version. Each addition has its own golden file, and the files of the
// forms before it stay as they were.
var additions = map[string]int{
	"TurnMaterialized": 5, "ReplyRefused": 1, "ContextCompacted": 2, "ProviderFailed": 1, "PermissionRequested": 1, "PermissionDecided": 2, "ApprovalSaved": 2, "ApprovalRevoked": 2,
	"PromptAdmitted": 1, "ReplyReceived": 2, "ProcessStarted": 1, "ToolsRegistered": 1, "SessionOpened": 2,
}

// earlierAdditions counts the additions to the first version of a kind that has a later
// one.
var earlierAdditions = map[string]int{"CallStarted": 1, "CallSettled": 3}

// A goldenVariant is a form of a kind that some program wrote: a version, and how
// many additions to that version the program knew.
type goldenVariant struct {
	version, additions int
}

// goldenVariants returns all forms of a kind, oldest first.
func goldenVariants(kind string) (forms []goldenVariant) {
	last := kinds[kind].version
	for version := 1; version < last; version++ {
		forms = append(forms, goldenVariant{version, 0})
		for n := range earlierAdditions[kind] {
			forms = append(forms, goldenVariant{version, n + 1})
		}
	}
	for n := range additions[kind] + 1 {
		forms = append(forms, goldenVariant{last, n})
	}
	return forms
}

// as returns an event without the fields that a form of it has no keys for.
func as(form goldenVariant, e Event) Event {
	switch e := e.(type) {
	case ProcessStarted:
		if form.version == 1 {
			e.Until, e.Address = time.Time{}, ""
		}
		if form.additions < 1 {
			e.InStore = false
		}
		return e
	case PromptAdmitted:
		if form.additions < 1 {
			e.Media = nil
		}
		return e
	case ReplyReceived:
		if form.additions < 1 {
			e.Thinking = ""
		}
		if form.additions < 2 {
			e.Items = nil
		}
		return e
	case ReplyRefused:
		if form.additions < 1 {
			e.Thinking = ""
		}
		return e
	case ContextCompacted:
		if form.additions < 1 {
			e = ContextCompacted{Trigger: e.Trigger, Before: e.Before, After: e.After}
		}
		if form.additions < 2 {
			e.Reserved = 0
		}
		return e
	case ProviderFailed:
		if form.additions < 1 {
			e = ProviderFailed{Detail: e.Detail, Status: e.Status, Attempt: e.Attempt}
		}
		return e
	case TurnMaterialized:
		if form.additions < 1 {
			e.Rules = ""
		}
		if form.additions < 2 {
			e.Provider, e.Client, e.Flags, e.System, e.Described = "", "", nil, "", nil
			e.Hidden = slices.Clone(e.Hidden)
			for i := range e.Hidden {
				e.Hidden[i].Unmet = nil
			}
		}
		if form.additions < 3 {
			e.Parameters, e.Schemas, e.Instruction, e.Compacted = "", "", "", domain.EventID{}
		}
		if form.additions < 4 {
			e.Summarizes = domain.MessageID{}
		}
		if form.additions < 5 {
			e.RulesText = ""
		}
		return e
	case ToolsRegistered:
		if form.additions < 1 {
			e.Tools = slices.Clone(e.Tools)
			for i := range e.Tools {
				e.Tools[i].AsksFirst, e.Tools[i].Available = false, nil
			}
		}
		return e
	case SessionOpened:
		if form.additions < 1 {
			e.ParentMessage, e.ParentCall, e.Ancestors = domain.MessageID{}, "", nil
		}
		if form.additions < 2 {
			e.VersionControl = VersionControl{}
		}
		return e
	case CallStarted:
		if form.version > 1 {
			return e
		}
		if form.additions < 1 {
			e.AsksFirst, e.Title = false, ""
		}
		return e
	case CallSettled:
		if form.version > 1 {
			return e
		}
		if form.additions < 1 {
			e.Allowed = nil
		}
		if form.additions < 2 {
			e.Lost = 0
		}
		if form.additions < 3 {
			e.RanMS, e.Files = 0, nil
		}
		return e
	case PermissionRequested:
		if form.additions < 1 {
			e.Shown = domain.Preview{}
		}
		return e
	case PermissionDecided:
		if form.additions < 1 {
			e.Person = ""
		}
		if form.additions < 2 {
			e.Approvals = nil
		}
		return e
	case ApprovalSaved:
		if form.additions < 1 {
			e.Person = ""
		}
		if form.additions < 2 {
			e.Agent = ""
		}
		return e
	case ApprovalRevoked:
		if form.additions < 1 {
			e.Person = ""
		}
		if form.additions < 2 {
			e.Agent = ""
		}
		return e
	}
	return e
}

// draftOf returns a draft of an event with everything else fixed.
func draftOf(e Event) Draft {
	now := func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }
	m := domain.NewMint(now, rand.NewChaCha8([32]byte{8}))
	return Draft{ID: m.Event(), Time: now(), Correlation: m.Session(), Causation: m.Event(), Event: e}
}

// A golden file holds data and metadata of a record, byte for byte, as the two
// fields of an object.
type golden struct {
	Data     json.RawMessage `json:"data"`
	Metadata json.RawMessage `json:"metadata"`
}

func goldenName(kind string, form goldenVariant) string {
	name := fmt.Sprintf("%s.v%d.json", kind, form.version)
	if form.additions > 0 {
		name = fmt.Sprintf("%s.v%d.%d.json", kind, form.version, form.additions)
	}
	return filepath.Join("testdata", "golden", name)
}

// sameName returns the name of the golden file of an event of sameEvents.
func sameName(kind string) string {
	return filepath.Join("testdata", "golden", fmt.Sprintf("%s.v%d.same.json", kind, kinds[kind].version))
}

func goldenBytes(r Record) []byte {
	return fmt.Appendf(nil, "{\n\"data\": %s,\n\"metadata\": %s\n}\n", r.Data, r.Metadata)
}

// decodeAlone decodes a record as the first one of a stream.
func decodeAlone(r Record) (Envelope, error) {
	return Decode(Entry{Record: r, Stream: "session-x", Revision: 1, Position: NewPosition(1, 1)})
}

func TestEveryKindIsWrittenAsItsGoldenFile(t *testing.T) {
	t.Parallel()
	for _, e := range sampleEvents() {
		checkGolden(t, e, goldenName(e.Kind(), goldenVariant{kinds[e.Kind()].version, additions[e.Kind()]}))
	}
	for _, e := range sameEvents() {
		checkGolden(t, e, sameName(e.Kind()))
	}
}

// checkGolden reports an event that is not written as its golden file.
func checkGolden(t *testing.T, e Event, name string) {
	t.Helper()
	r, err := Encode(draftOf(e))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(name, goldenBytes(r), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Errorf("%s has no golden file: %v", r.Kind, err)
	} else if got := goldenBytes(r); string(got) != string(want) {
		t.Errorf("%s is written\n%s\nand was, in its golden file,\n%s\nA form that was ever written needs a new version to change.", r.Kind, got, want)
	}
}

func TestEveryVersionEverWrittenReadsAsTheEvent(t *testing.T) {
	t.Parallel()
	for _, e := range sampleEvents() {
		for _, form := range goldenVariants(e.Kind()) {
			checkReads(t, goldenName(e.Kind(), form), form.version, as(form, e))
		}
	}
	for _, e := range sameEvents() {
		checkReads(t, sameName(e.Kind()), kinds[e.Kind()].version, e)
	}
}

// checkReads reports a golden file that does not read as an event.
func checkReads(t *testing.T, name string, version int, e Event) {
	t.Helper()
	data, err := os.ReadFile(name)
	var g golden
	if err == nil {
		err = json.Unmarshal(data, &g)
	}
	if err != nil {
		t.Errorf("golden file %s: %v", name, err)
		return
	}
	d := draftOf(e)
	got, err := decodeAlone(Record{ID: d.ID, Kind: e.Kind(), Version: version, Time: d.Time, Data: g.Data, Metadata: g.Metadata})
	want := Envelope{
		ID: d.ID, Stream: "session-x", Revision: 1, Position: NewPosition(1, 1), Time: d.Time,
		Correlation: d.Correlation, Causation: d.Causation, Event: e,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("golden file %s reads as\n%+v, %v, want\n%+v", name, got, err, want)
	}
}

func TestEveryKindIsTestedInEveryField(t *testing.T) {
	t.Parallel()
	var tested, files []string
	for _, e := range sampleEvents() {
		tested = append(tested, e.Kind())
		if name := reflect.TypeOf(e).Name(); name != e.Kind() {
			t.Errorf("%s is kept under the name %s", name, e.Kind())
		}
		unset(t, e.Kind(), reflect.ValueOf(e))
	}
	slices.Sort(tested)
	declared := eventTypes(t)
	if known := slices.Sorted(maps.Keys(kinds)); !slices.Equal(known, tested) || !slices.Equal(known, declared) {
		t.Errorf("kinds in the table:  %q\nevents declared:     %q\nevents tested here:  %q", known, declared, tested)
	}
	found, err := filepath.Glob(filepath.Join("testdata", "golden", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for kind := range kinds {
		for _, form := range goldenVariants(kind) {
			files = append(files, goldenName(kind, form))
		}
	}
	for _, e := range sameEvents() {
		files = append(files, sameName(e.Kind()))
	}
	slices.Sort(files)
	if slices.Sort(found); !slices.Equal(found, files) {
		t.Errorf("golden files %q, want %q", found, files)
	}
}

// unset reports fields that are zero, as their names are not in a golden file.
func unset(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	switch {
	case v.IsZero():
		t.Errorf("%s is not set", path)
	case v.Kind() == reflect.Pointer:
		unset(t, path, v.Elem())
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		for i := range v.Len() {
			unset(t, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case v.Kind() == reflect.Struct:
		for f, field := range v.Fields() {
			if f.IsExported() {
				unset(t, path+"."+f.Name, field)
			}
		}
	}
}

// eventTypes returns the types in the sources that are events, but for Unknown.
func eventTypes(t *testing.T) (names []string) {
	t.Helper()
	for _, decl := range declarations(t, ".") {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv == nil || f.Name.Name != "event" {
			continue
		}
		if name := f.Recv.List[0].Type.(*ast.Ident).Name; name != "Unknown" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// declarations returns the declarations of the Go sources in a folder, without tests.
func declarations(t *testing.T, folder string) (all []ast.Decl) {
	t.Helper()
	names, err := fs.Glob(os.DirFS(folder), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file.Decls...)
	}
	return all
}

func TestNoTwoSentinelsShareAText(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	for _, folder := range []string{".", "../domain"} {
		for _, decl := range declarations(t, folder) {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.VAR {
				continue
			}
			for _, spec := range d.Specs {
				for name, text := range sentinels(spec.(*ast.ValueSpec)) {
					if other, ok := texts[text]; ok {
						t.Errorf("%s and %s are both %s", name, other, text)
					}
					texts[text] = name
				}
			}
		}
	}
	if len(texts) < 20 {
		t.Errorf("found only the sentinels %v", texts)
	}
}

// sentinels returns the texts, quoted, of the variables made by errors.New.
func sentinels(spec *ast.ValueSpec) map[string]string {
	texts := map[string]string{}
	for i, value := range spec.Values {
		call, ok := value.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			continue
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		text, isText := call.Args[0].(*ast.BasicLit)
		if ok && isText && fmt.Sprint(f.X, f.Sel) == "errors New" {
			texts[spec.Names[i].Name] = text.Value
		}
	}
	return texts
}

// moved is a made-up event in its third version.
type moved struct {
	From string `json:"from"`
	To   string `json:"to"`
	Far  bool   `json:"far"`
}

func (moved) Kind() string { return "moved" }
func (moved) event()       {}

func TestUpcastsLeadFromEachVersionToTheLast(t *testing.T) {
	t.Parallel()
	errFar := errors.New("how far is not known")
	k := of[moved](
		func(data json.RawMessage) (json.RawMessage, error) { // version 1 had only "place"
			var v1 struct{ Place string }
			err := json.Unmarshal(data, &v1)
			return json.RawMessage(fmt.Sprintf(`{"from":"","to":%q}`, v1.Place)), err
		},
		func(data json.RawMessage) (json.RawMessage, error) { // version 2 handled not say how far
			var v2 map[string]any
			if err := json.Unmarshal(data, &v2); err != nil {
				return nil, err
			}
			if v2["to"] == "nowhere" {
				return nil, errFar
			}
			v2["far"] = v2["from"] != v2["to"]
			return json.Marshal(v2)
		},
	)
	if k.version != 3 {
		t.Errorf("the version written is %d, want 3", k.version)
	}
	for version, row := range map[int]struct {
		data string
		want moved
	}{
		1: {`{"place":"b"}`, moved{"", "b", true}},
		2: {`{"from":"a","to":"a"}`, moved{"a", "a", false}},
		3: {`{"from":"a","to":"a","far":true}`, moved{"a", "a", true}},
	} {
		if got, err := k.read(version, json.RawMessage(row.data)); err != nil || got != row.want {
			t.Errorf("version %d reads as %+v, %v, want %+v", version, got, err, row.want)
		}
	}
	for version, data := range map[int]string{1: `{"place":"nowhere"}`, 2: `{"to":"nowhere"}`} {
		if got, err := k.read(version, json.RawMessage(data)); !errors.Is(err, errFar) || got != nil || !strings.Contains(err.Error(), "version 2") {
			t.Errorf("version %d reads as %v, %v, want the error of the upcast from version 2", version, got, err)
		}
	}
	if got, err := k.read(3, json.RawMessage(`{`)); err == nil {
		t.Errorf("data that are not JSON read as %v", got)
	}
}
