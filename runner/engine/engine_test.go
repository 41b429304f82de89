package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// patience is how long a test waits for an event that must come.
const patience = 10 * time.Second

func ledgerOver(s events.Store) *events.Ledger {
	seed := [32]byte{}
	return events.NewLedger(s, domain.NewMint(time.Now, rand.NewChaCha8(seed)), time.Now)
}

func start(t *testing.T, config engine.ProcessConfig) *engine.Process {
	t.Helper()
	config.Program = "test"
	p, err := engine.Start(t.Context(), config)
	if err != nil {
		t.Fatalf("Start = %v", err)
	}
	return p
}

// acting returns tools of which "act" asks for permission and then calls do.
func acting(do func()) func(*engine.Workspace) (registry.Tools, error) {
	return func(w *engine.Workspace) (registry.Tools, error) {
		gate := w.Gate
		act, err := domain.Make(domain.Spec[struct{ Name string }, string]{
			Description: "Acts.",
			Execute: func(ctx context.Context, in struct{ Name string }, call domain.Invocation) (string, error) {
				if err := gate.Assert(ctx, call, permission.Ask{Action: "act", Resources: []string{in.Name}, Save: []string{in.Name}}); err != nil {
					return "", err
				}
				do()
				return "done", nil
			},
		})
		return registry.Tools{"greet": act}, err
	}
}

func rules(text string) domain.Rules {
	parsed, err := permission.ParseRules("test", strings.NewReader(text))
	if err != nil {
		panic(err)
	}
	return parsed
}

func open(t *testing.T, p *engine.Process, location string, config engine.WorkspaceConfig) *engine.Workspace {
	t.Helper()
	config.Location, config.Runner.Provider = location, model{}
	w, err := p.Open(t.Context(), config)
	if err != nil {
		t.Fatalf("Open(%q) = %v", location, err)
	}
	return w
}

// prompted opens a session in w and prompts it.
func prompted(t *testing.T, l *events.Ledger, w *engine.Workspace) domain.SessionID {
	t.Helper()
	session, err := w.Runner.Open(t.Context(), events.SessionOpened{Agent: "build", Location: "/w"})
	if err == nil {
		err = w.Runner.Admit(t.Context(), session, l.Mint().Message(), "act")
	}
	if err != nil {
		t.Fatalf("open a session and prompt it: %v", err)
	}
	return session
}

func exceptions(t *testing.T, l *events.Ledger) []calls.Exception {
	t.Helper()
	s, err := projections.Current(t.Context(), calls.Projection(), l, nil)
	if err != nil {
		t.Fatalf("fold calls: %v", err)
	}
	return append(s.Exceptions(), s.Unfinished()...)
}

func outcome(t *testing.T, w *engine.Workspace, session domain.SessionID) domain.Outcome {
	t.Helper()
	s, err := w.Conversation(t.Context(), session)
	if err != nil {
		t.Fatalf("Conversation = %v", err)
	}
	end := s.Messages[1].Reply.Calls[0].Settlement
	if end == nil {
		t.Fatal("the call has no settlement")
	}
	return end.Outcome
}

// A process that dies in the middle of a call leaves a call, a layer and itself
// open. The next process that holds the store ends them before it does anything.
func TestStartEndsWhatADeadProcessLeft(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	before, err := embedded.Open(t.Context(), "store", embedded.Config{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	l := ledgerOver(before)
	p := start(t, engine.ProcessConfig{Ledger: l})
	var left *vfs.MemFS
	w := open(t, p, "/w", engine.WorkspaceConfig{
		Rules: rules("allow * *"),
		Tools: acting(func() { left = disk.CrashClone(vfs.CrashCloneCfg{}) }),
	})
	session := prompted(t, l, w)
	if err := w.Run(t.Context(), session); err != nil {
		t.Fatalf("Run = %v", err)
	}

	after, err := embedded.Open(t.Context(), "store", embedded.Config{FS: left})
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	l = ledgerOver(after)
	p = start(t, engine.ProcessConfig{Ledger: l})
	ended := p.Recovered()
	if len(ended.Processes) != 1 || len(ended.Layers) != 1 || len(ended.Sessions) != 1 {
		t.Errorf("Recovered = %+v, want one process, one layer and one session", ended)
	}
	w = open(t, p, "/w", engine.WorkspaceConfig{Rules: rules("allow * *"), Tools: acting(func() { t.Error("a lost call ran again") })})
	if got := outcome(t, w, session); got != domain.Lost {
		t.Errorf("the call ended %v, want %v", got, domain.Lost)
	}
	if err := w.Run(t.Context(), session); err != nil {
		t.Errorf("Run of the recovered session = %v", err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
	if broken := exceptions(t, l); len(broken) != 0 {
		t.Errorf("the log breaks laws: %v", broken)
	}
}

// In a shared store a process with a lease counts as alive: recovery leaves its
// open call to it.
func TestRecoveryLeavesALivingProcessAlone(t *testing.T) {
	t.Parallel()
	l := ledgerOver(eventstest.NewSlice())
	one := start(t, engine.ProcessConfig{Ledger: l, Lease: time.Hour})
	running, release := make(chan struct{}), make(chan struct{})
	w := open(t, one, "/w", engine.WorkspaceConfig{Rules: rules("allow * *"), Tools: acting(func() { close(running); <-release })})
	session := prompted(t, l, w)
	ran := make(chan error, 1)
	go func() { ran <- w.Run(t.Context(), session) }()
	<-running

	two := start(t, engine.ProcessConfig{Ledger: l, Lease: time.Hour, Recover: true})
	ended := two.Recovered()
	if len(ended.Living) != 1 || ended.Living[0].Process != one.ID() || len(ended.Processes)+len(ended.Layers)+len(ended.Sessions) != 0 {
		t.Errorf("Recovered = %+v, want process %s living and nothing ended", ended, one.ID())
	}
	close(release)
	if err := <-ran; err != nil {
		t.Errorf("Run beside another process = %v", err)
	}
	if err := errors.Join(two.Close(t.Context()), one.Close(t.Context())); err != nil {
		t.Errorf("Close = %v", err)
	}
	if got := outcome(t, w, session); got != domain.Succeeded {
		t.Errorf("the call ended %v, want %v", got, domain.Succeeded)
	}
	if broken := exceptions(t, l); len(broken) != 0 {
		t.Errorf("the log breaks laws: %v", broken)
	}
}

// Judge may declare a process dead that has no lease, and can stop the start.
func TestJudgeDecidesWhoIsDead(t *testing.T) {
	t.Parallel()
	l := ledgerOver(eventstest.NewSlice())
	start(t, engine.ProcessConfig{Ledger: l}) // without a lease, and never closed
	refused := errors.New("refused")
	_, err := engine.Start(t.Context(), engine.ProcessConfig{
		Ledger: l, Program: "test", Lease: time.Hour, Recover: true, AdjustLiveness: func(*runner.Liveness) error { return refused },
	})
	if !errors.Is(err, refused) {
		t.Fatalf("Start = %v, want the error of Judge", err)
	}
	p := start(t, engine.ProcessConfig{Ledger: l, Lease: time.Hour, Recover: true, AdjustLiveness: func(j *runner.Liveness) error {
		j.Dead, j.Unknown = append(j.Dead, j.Unknown...), nil
		return nil
	}})
	if ended := p.Recovered(); len(ended.Processes) != 1 || len(ended.Living)+len(ended.Unknown) != 0 {
		t.Errorf("Recovered = %+v, want the one process without a lease ended, and the refused start on record as stopped", ended)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
}

// Outputs are swept only when no other process may be alive, and only after the
// log was folded to its end.
func TestSweepWaitsForTheLastProcess(t *testing.T) {
	t.Parallel()
	l := ledgerOver(eventstest.NewSlice())
	var swept atomic.Int32
	sweep := func(context.Context, func(context.Context, domain.EventID) (bool, error)) error {
		swept.Add(1)
		return nil
	}
	one := start(t, engine.ProcessConfig{Ledger: l, Lease: time.Hour})
	two := start(t, engine.ProcessConfig{Ledger: l, Lease: time.Hour, Recover: true, SweepOutputs: sweep})
	if n := swept.Load(); n != 0 {
		t.Errorf("outputs were swept %d times beside a living process, want 0", n)
	}
	if err := errors.Join(two.Close(t.Context()), one.Close(t.Context())); err != nil {
		t.Fatalf("Close = %v", err)
	}
	three := start(t, engine.ProcessConfig{Ledger: l, SweepOutputs: sweep})
	if n := swept.Load(); n != 1 {
		t.Errorf("outputs were swept %d times by the only process, want 1", n)
	}
	if err := three.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
}

// A process that another one ended may not go on: its sessions end with
// ErrLeaseLost.
func TestRunEndsWhenTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	l := ledgerOver(eventstest.NewSlice())
	p := start(t, engine.ProcessConfig{Ledger: l, Lease: 300 * time.Millisecond})
	running := make(chan struct{})
	blocked := func(*engine.Workspace) (registry.Tools, error) {
		wait, err := domain.Make(domain.Spec[struct{ Name string }, string]{
			Description: "Acts.",
			Execute: func(ctx context.Context, _ struct{ Name string }, _ domain.Invocation) (string, error) {
				close(running)
				<-ctx.Done()
				return "", context.Cause(ctx)
			},
		})
		return registry.Tools{"greet": wait}, err
	}
	w := open(t, p, "/w", engine.WorkspaceConfig{Rules: rules("allow * *"), Tools: blocked})
	session := prompted(t, l, w)
	ran := make(chan error, 1)
	go func() { ran <- w.Run(t.Context(), session) }()
	<-running
	endProcess(t, l, p.ID())
	select {
	case err := <-ran:
		if !errors.Is(err, runner.ErrLeaseLost) {
			t.Errorf("Run = %v, want ErrLeaseLost", err)
		}
	case <-time.After(patience):
		t.Fatal("Run goes on without a lease")
	}
}

// endProcess records, as another process would, that a process was lost. It
// tries again where a renewal of the lease came between.
func endProcess(t *testing.T, l *events.Ledger, id domain.ProcessID) {
	t.Helper()
	for {
		var length events.Revision
		for v, err := range l.Read(t.Context(), events.ProcessStream(id), 0) {
			if err != nil {
				t.Fatal(err)
			}
			length = v.Revision
		}
		_, err := l.Append(t.Context(), events.ProcessStream(id), length,
			l.Draft(events.ProcessStopped{Process: id, Reason: events.ProcessLost}, domain.EventID{}))
		if err == nil {
			return
		}
		if !errors.Is(err, events.ErrConflict) {
			t.Fatal(err)
		}
	}
}

// An approver that always answers always, and counts the questions.
type always struct{ asked atomic.Int32 }

func (a *always) Decide(context.Context, permission.Request) (permission.Answer, error) {
	a.asked.Add(1)
	return permission.Answer{Choice: permission.Always, By: permission.ByUser}, nil
}

func TestASavedApprovalCountsInItsLocation(t *testing.T) {
	t.Parallel()
	l := ledgerOver(eventstest.NewSlice())
	person := &always{}
	ask := func(p *engine.Process, location string) {
		t.Helper()
		w := open(t, p, location, engine.WorkspaceConfig{Approver: person, Rules: rules("ask * *"), Tools: acting(func() {})})
		session := prompted(t, l, w)
		if err := w.Run(t.Context(), session); err != nil {
			t.Fatalf("Run = %v", err)
		}
		if got := outcome(t, w, session); got != domain.Succeeded {
			t.Errorf("the call in %s ended %v, want %v", location, got, domain.Succeeded)
		}
	}
	one := start(t, engine.ProcessConfig{Ledger: l})
	ask(one, "/a")
	ask(one, "/b")
	if n := person.asked.Load(); n != 2 {
		t.Errorf("two locations asked %d times, want 2", n)
	}
	if err := one.Close(t.Context()); err != nil {
		t.Fatalf("Close = %v", err)
	}
	two := start(t, engine.ProcessConfig{Ledger: l})
	ask(two, "/a")
	if n := person.asked.Load(); n != 2 {
		t.Errorf("after an approval of /a, /a asked again: %d questions, want 2", n)
	}
	var saved, used []domain.EventID
	for v, err := range l.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := v.Event.(type) {
		case events.ApprovalSaved:
			saved = append(saved, v.ID)
		case events.PermissionDecided:
			for _, approval := range e.Approvals {
				used = append(used, approval.Event)
			}
		}
	}
	if len(saved) != 2 || !slices.Equal(used, saved[:1]) {
		t.Errorf("the decisions name the approvals %v, want the first of %v", used, saved)
	}
	if err := two.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
}

// The log says who decided, and under which rules.
func TestLogNamesThePersonAndTheRulesThatDecided(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		rules   string
		person  string // who decided
		allowed string // the source of the rule that allowed
	}{{"ask * *", "ada", ""}, {"allow act *", "", "test:1"}} {
		l := ledgerOver(eventstest.NewSlice())
		p := start(t, engine.ProcessConfig{Ledger: l})
		configured := rules(row.rules)
		w := open(t, p, "/w", engine.WorkspaceConfig{
			Approver: &always{}, Person: "ada", ApprovalLife: time.Hour, Rules: configured, Tools: acting(func() {}),
		})
		session := prompted(t, l, w)
		if err := w.Run(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		var decided, saved, allowed []string
		texts := map[string]string{}
		for v, err := range l.Read(t.Context(), events.SessionStream(session), 0) {
			if err != nil {
				t.Fatal(err)
			}
			switch e := v.Event.(type) {
			case events.TextRecorded:
				texts[e.Digest] = e.Text
			case events.TurnMaterialized:
				if want := configured.Digest(); e.Rules != want {
					t.Errorf("the turn names the rules %q, want %q", e.Rules, want)
				}
				var recorded domain.RuleSets
				if err := json.Unmarshal([]byte(texts[e.RulesText]), &recorded); err != nil || len(recorded) != 1 || !slices.Equal(recorded[0], configured) {
					t.Errorf("the text of the rules is %q (%v), want that of %+v", texts[e.RulesText], err, configured)
				}
			case events.PermissionDecided:
				decided = append(decided, e.Person)
			case events.ApprovalSaved:
				saved = append(saved, e.Person)
				if got := e.Expires.Sub(v.Time).Round(time.Minute); got != time.Hour {
					t.Errorf("the approval expires after %v, want an hour", got)
				}
			case events.CallSettled:
				for _, rule := range e.Allowed {
					allowed = append(allowed, rule.Source)
				}
			}
		}
		if got := strings.Join(decided, ","); got != row.person || strings.Join(saved, ",") != row.person {
			t.Errorf("%s: %q decided, %q saved, want %q", row.rules, decided, saved, row.person)
		}
		if got := strings.Join(allowed, ","); got != row.allowed {
			t.Errorf("%s: allowed by %q, want %q", row.rules, allowed, row.allowed)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Without an approver, asking is a denial.
func TestNobodyIsAskedWithoutAnApprover(t *testing.T) {
	t.Parallel()
	l := ledgerOver(eventstest.NewSlice())
	p := start(t, engine.ProcessConfig{Ledger: l})
	w := open(t, p, "/w", engine.WorkspaceConfig{Rules: rules("ask * *"), Tools: acting(func() { t.Error("the tool acted") })})
	session := prompted(t, l, w)
	if err := w.Run(t.Context(), session); err != nil {
		t.Fatalf("Run = %v", err)
	}
	if got := outcome(t, w, session); got != domain.DeclinedByUser && got != domain.DeniedByRule {
		t.Errorf("the call ended %v, want a denial", got)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
}

func TestAConfigWithoutARequiredFieldIsRefused(t *testing.T) {
	t.Parallel()
	l := ledgerOver(eventstest.NewSlice())
	for name, config := range map[string]engine.ProcessConfig{"Ledger": {Program: "test"}, "Program": {Ledger: l}} {
		if _, err := engine.Start(t.Context(), config); !errors.Is(err, engine.ErrBadConfig) || !strings.Contains(err.Error(), name) {
			t.Errorf("Start without %s = %v, want an ErrBadConfig that names it", name, err)
		}
	}
	p := start(t, engine.ProcessConfig{Ledger: l})
	if _, err := p.Open(t.Context(), engine.WorkspaceConfig{}); !errors.Is(err, engine.ErrBadConfig) || !strings.Contains(err.Error(), "Location") {
		t.Errorf("Open without Location = %v, want an ErrBadConfig that names it", err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
}

// A folder that another process has open is refused and left as it is.
func TestAFolderInUseIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := engine.WorkspaceConfig{Location: dir, Rules: rules("allow * *"), Tools: acting(func() {}), Runner: runner.Config{Provider: model{}}}
	one, err := engine.OpenFolder(t.Context(), dir, "test", config)
	if err != nil {
		t.Fatalf("OpenFolder = %v", err)
	}
	if _, err := engine.OpenFolder(t.Context(), dir, "test", config); !errors.Is(err, events.ErrInUse) {
		t.Errorf("OpenFolder of a folder in use = %v, want ErrInUse", err)
	}
	session := prompted(t, one.Ledger, one.Workspace)
	if err := one.Run(t.Context(), session); err != nil {
		t.Errorf("Run = %v", err)
	}
	if broken := exceptions(t, one.Ledger); len(broken) != 0 {
		t.Errorf("the log breaks laws: %v", broken)
	}
	if err := one.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
	two, err := engine.OpenFolder(t.Context(), dir, "test", config)
	if err != nil {
		t.Fatalf("OpenFolder after Close = %v", err)
	}
	if ended := two.Process.Recovered(); len(ended.Processes) != 0 {
		t.Errorf("Recovered after an orderly end = %+v, want nothing", ended)
	}
	if err := two.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
}

// A workspace whose tools cannot be made leaves nothing open.
func TestAFailedOpenClosesTheFolder(t *testing.T) {
	t.Parallel()
	dir, broken := t.TempDir(), errors.New("no tools")
	config := engine.WorkspaceConfig{Location: dir, Tools: func(*engine.Workspace) (registry.Tools, error) { return nil, broken }}
	if _, err := engine.OpenFolder(t.Context(), dir, "test", config); !errors.Is(err, broken) {
		t.Fatalf("OpenFolder = %v, want the error of Tools", err)
	}
	config.Tools = nil
	again, err := engine.OpenFolder(t.Context(), dir, "test", config)
	if err != nil {
		t.Fatalf("OpenFolder after a failed one = %v", err)
	}
	if ended := again.Process.Recovered(); len(ended.Processes)+len(ended.Layers) != 0 {
		t.Errorf("Recovered = %+v, want nothing: the failed open ended its process", ended)
	}
	if err := again.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
}

// docs/embedding.md shows the program of the example, so that what it shows runs.
func TestTheDocumentShowsTheExample(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "embedding.md"))
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(doc, append([]byte("```go\n"), append(example, "```\n"...)...)) {
		t.Error("docs/embedding.md does not hold example_test.go as it is")
	}
	if n := bytes.Count(example, []byte("\n")); n > 60 {
		t.Errorf("the example has %d lines, want at most 60", n)
	}
}

// An unansweredStore adds its first append and does not acknowledge it, as the
// context of the caller ended meanwhile.
type unansweredStore struct {
	events.Store
	interrupt func()
	appends   atomic.Int32
}

func (u *unansweredStore) Append(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) error {
	if u.appends.Add(1) > 1 {
		return u.Store.Append(ctx, s, after, records...)
	}
	u.interrupt()
	return errors.Join(u.Store.Append(context.WithoutCancel(ctx), s, after, records...), context.Cause(ctx))
}

func TestInterruptedStartIsOnRecordAsStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	store := &unansweredStore{Store: eventstest.NewSlice(), interrupt: func() { cancel(domain.ByUser) }}
	l := ledgerOver(store)
	if _, err := engine.Start(ctx, engine.ProcessConfig{Ledger: l, Program: "test"}); !errors.Is(err, domain.ByUser) {
		t.Fatalf("Start = %v, want the interruption", err)
	}
	processes := runner.Processes()
	s, err := projections.Fold(processes, processes.Init(), l.ReadAll(t.Context(), events.Position{}))
	if err != nil || len(s.Processes) != 0 || store.appends.Load() < 2 {
		t.Fatalf("processes that run = %+v, %v; want none", s.Processes, err)
	}
}

// Outputs are part of a store: a folder that lost them is refused, and is not
// given new ones.
func TestAFolderThatLostItsOutputsIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	large := func(*engine.Workspace) (registry.Tools, error) {
		tool, err := domain.Make(domain.Spec[struct{ Name string }, string]{
			Description: "Returns a large text.",
			Execute: func(context.Context, struct{ Name string }, domain.Invocation) (string, error) {
				return strings.Repeat("a line\n", 10_000), nil
			},
		})
		return registry.Tools{"greet": tool}, err
	}
	config := engine.WorkspaceConfig{Location: dir, Rules: rules("allow * *"), Tools: large, Runner: runner.Config{Provider: model{}}}
	f, err := engine.OpenFolder(t.Context(), dir, "test", config)
	if err != nil {
		t.Fatalf("OpenFolder = %v", err)
	}
	session := prompted(t, f.Ledger, f.Workspace)
	if err := errors.Join(f.Run(t.Context(), session), f.Close(t.Context())); err != nil {
		t.Fatalf("Run and Close = %v", err)
	}
	lost := filepath.Join(dir, engine.OutputsFolder)
	if err := os.RemoveAll(lost); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.OpenFolder(t.Context(), dir, "test", config); !errors.Is(err, storedir.ErrIncomplete) {
		t.Errorf("OpenFolder without its outputs = %v, want ErrIncomplete", err)
	}
	if _, err := os.Stat(lost); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Stat(%s) = %v: the folder was made anew", lost, err)
	}
}
