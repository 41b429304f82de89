package agents_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/builtins/frontmatter"
	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner/agents"
)

// folders returns empty folders of a user and of a project.
func folders(t testing.TB) agents.LoadConfig {
	return agents.LoadConfig{ConfigFolder: t.TempDir(), ProjectFolder: t.TempDir()}
}

// write writes an agent file and creates its folder. It returns the path.
func write(t testing.TB, folder, name, text string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// ofUser and ofProject return the folders of agent files.
func ofUser(c agents.LoadConfig) string { return filepath.Join(c.ConfigFolder, "agents") }
func ofProject(c agents.LoadConfig) string {
	return filepath.Join(c.ProjectFolder, ".ledger", "agents")
}

// agent returns an agent of a Set.
func agent(t testing.TB, s *agents.Set, name domain.AgentID) agents.Agent {
	t.Helper()
	a, err := s.Agent(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// names returns the names of agents.
func names(all []agents.Agent) (found []domain.AgentID) {
	for _, a := range all {
		found = append(found, a.Name)
	}
	return found
}

// effect returns the effect of an agent's rules on an action.
func effect(a agents.Agent, action, resource string) domain.Effect {
	rule, _ := a.RuleSets().Evaluate(action, resource)
	return rule.Effect
}

// reviewer is an agent file with every key.
const reviewer = `---
description: Reviews a change.
model: small-1
mode: subagent
rules:
  - deny edit *
  - deny bash *
  # an exception
  - allow bash git diff *
tools: [read, "grep*", "!bash"]
steps: 20
---

You review.
`

func TestAgentFileGivesEveryField(t *testing.T) {
	t.Parallel()
	c := folders(t)
	path := write(t, ofProject(c), "reviewer.md", reviewer)
	s := agents.Load(c)
	got := agent(t, s, "reviewer")
	want := agents.Agent{
		Name: "reviewer", Description: "Reviews a change.", Model: "small-1", Prompt: "You review.", Mode: agents.SubagentMode,
		Rules: domain.Rules{
			{Action: "*", Resource: "*", Effect: domain.Allow, Source: "agent reviewer: default"},
			{Action: "edit", Resource: "*", Effect: domain.Deny, Source: path + ":6"},
			{Action: "bash", Resource: "*", Effect: domain.Deny, Source: path + ":7"},
			{Action: "bash", Resource: "git diff *", Effect: domain.Allow, Source: path + ":9"},
		},
		Tools: []string{"read", "grep*", "!bash"}, Steps: 20, Source: path, Digest: got.Digest,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("agent (-want +got):\n%s", diff)
	}
	if len(s.Refused()) > 0 {
		t.Errorf("Refused() = %v", s.Refused())
	}
}

func TestBuiltInAgentsAreValid(t *testing.T) {
	t.Parallel()
	s := agents.Load(agents.LoadConfig{})
	if got := s.Refused(); len(got) > 0 {
		t.Fatalf("Refused() = %v", got)
	}
	for _, c := range []struct {
		list string
		got  []agents.Agent
		want []domain.AgentID
	}{
		{"All", s.All(), []domain.AgentID{"build", "general", "plan"}},
		{"Primary", s.Primary(), []domain.AgentID{"build", "plan"}},
		{"Subagents", s.Subagents(), []domain.AgentID{"general"}},
	} {
		if got := names(c.got); !slices.Equal(got, c.want) {
			t.Errorf("%s() = %v, want %v", c.list, got, c.want)
		}
	}
	for _, a := range s.All() {
		if a.Source != "built in" || a.Prompt == "" || a.Base != nil || a.Tools != nil {
			t.Errorf("%s is %+v", a.Name, a)
		}
	}
	if a := agent(t, s, ""); a.Name != agents.Build {
		t.Errorf("the default agent is %s", a.Name)
	}
}

func TestBuiltInAgentsMayDoWhatTheirRoleNeeds(t *testing.T) {
	t.Parallel()
	s := agents.Load(agents.LoadConfig{})
	for _, c := range []struct {
		agent            domain.AgentID
		action, resource string
		want             domain.Effect
	}{
		{"build", "bash", "make", domain.Allow}, {"build", "edit", "a.go", domain.Allow}, {"build", "any_tool", "*", domain.Allow},
		{"build", "plan_enter", "*", domain.Allow}, {"build", "plan_exit", "*", domain.Deny},
		{"plan", "read", "a.go", domain.Allow}, {"plan", "glob", "**", domain.Allow}, {"plan", "grep", "x", domain.Allow}, {"plan", "lsp", "*", domain.Allow},
		{"plan", "webfetch", "https://x", domain.Allow}, {"plan", "task", "general", domain.Allow}, {"plan", "batch", "*", domain.Allow},
		{"plan", "edit", ".ledger/plans/a.md", domain.Allow}, {"plan", "edit", "a.go", domain.Deny}, {"plan", "edit", "/tmp/x/.ledger/plans/a", domain.Deny},
		{"plan", "edit", ".ledger/plansx", domain.Deny}, {"plan", "bash", "ls", domain.Deny}, {"plan", "server_tool", "*", domain.Deny},
		{"plan", "plan_exit", "*", domain.Allow}, {"plan", "plan_enter", "*", domain.Deny}, {"plan", "external_directory", "/x/*", domain.Allow}, {"plan", "doom_loop", "read", domain.Allow},
		{"general", "bash", "make", domain.Allow}, {"general", "edit", "a.go", domain.Allow}, {"general", "task", "general", domain.Deny},
		{"general", "todowrite", "*", domain.Deny}, {"general", "todoread", "*", domain.Deny}, {"general", "plan_enter", "*", domain.Deny}, {"general", "plan_exit", "*", domain.Deny},
	} {
		if got := effect(agent(t, s, c.agent), c.action, c.resource); got != c.want {
			t.Errorf("%s: %s %s is %v, want %v", c.agent, c.action, c.resource, got, c.want)
		}
	}
	plan := agent(t, s, agents.Plan).RuleSets()
	for action, want := range map[string]bool{"bash": true, "any_tool": true, "edit": false, "read": false} {
		if _, hidden := plan.Hides(action); hidden != want {
			t.Errorf("plan hides %s: %t, want %t", action, hidden, want)
		}
	}
}

func TestBadFileIsRefusedWithReason(t *testing.T) {
	t.Parallel()
	const head = "---\ndescription: x\n"
	for _, c := range []struct{ name, text, want string }{
		{"a.md", "You review.\n", "a.md:1: front matter is not valid: there is no front matter"},
		{"a.md", head, "does not end"},
		{"a.md", head + "colour: red\n---\n", `a.md:3: front matter is not valid: unknown key "colour": the keys are description, model, mode, rules, tools, steps`},
		{"a.md", "---\nmode: all\n---\n", `key "description": there is no description`},
		{"a.md", "---\ndescription: \"  \"\n---\n", `a.md:2: front matter is not valid: key "description": there is no description`},
		{"a.md", "---\ndescription: " + strings.Repeat("x", 1025) + "\n---\n", "longer than 1024 bytes"},
		{"a.md", "---\ndescription: \"\\e[2J\"\n---\n", "control character"},
		{"a.md", "---\ndescription: !!binary gICA\n---\n", "control character"},
		{"a.md", head + "mode: both\n---\n", `a.md:3: front matter is not valid: key "mode": "both" is not primary, subagent or all`},
		{"a.md", head + "mode: \"\"\n---\n", `key "mode"`},
		{"a.md", head + "model: a b\n---\n", `key "model"`},
		{"a.md", head + "steps: 0\n---\n", `key "steps": it is 0: write a number from 1`},
		{"a.md", head + "steps: -1\n---\n", `key "steps": it is -1`},
		{"a.md", head + "steps: many\n---\n", `key "steps": the value is not a whole number`},
		{"a.md", head + "rules: deny bash *\n---\n", `key "rules": the value is not a list`},
		{"a.md", head + "rules:\n  - deny bash *\n  - alow read *\n---\n", `a.md:5:1: not a rule: effect "alow" is not allow, ask or deny`},
		{"a.md", head + "rules:\n  - deny bash\n---\n", "a.md:4:1: not a rule: there is no resource"},
		{"a.md", head + "rules:\n  - \"# deny bash *\"\n---\n", `a.md:4: front matter is not valid: key "rules": an entry has 0 rules`},
		{"a.md", head + "rules:\n  - deny a *\n  -\n---\n", `a.md:5: front matter is not valid: key "rules": an entry of the list is empty`},
		{"a.md", head + "rules:\n  - |\n    deny a *\n    deny b *\n---\n", `an entry has 2 rules`},
		{"a.md", head + "rules:\n  - deny bash git: x\n---\n", `a.md:4: front matter is not valid: key "rules": the value is not a text`},
		{"a.md", head + "tools: []\n---\n", `key "tools": the list is empty`},
		{"a.md", head + "tools:\n  - !bash\n---\n", `key "tools": "" is not a pattern of tool names`},
		{"a.md", head + "tools: [a b]\n---\n", `"a b" is not a pattern`},
		{"a.md", "---\ndescription: \xff\n---\n", "not UTF-8"},
		{"a.md", head + "---\n" + strings.Repeat("x", 1<<20), "the file is too long: more than 1048576 bytes"},
		{"My Agent.md", head + "---\n", `the name "My Agent" is not a lower-case letter`},
		{"README.md", "# Agents\n", `the name "README"`},
	} {
		folder := folders(t)
		write(t, ofProject(folder), "good.md", reviewer)
		path := write(t, ofProject(folder), c.name, c.text)
		s := agents.Load(folder)
		refused := s.Refused()
		if len(refused) != 1 || refused[0].Path != path || !strings.HasPrefix(refused[0].Reason, path) || !strings.Contains(refused[0].Reason, c.want) {
			t.Errorf("%.60q: Refused() = %v, want one with %q", c.text, refused, c.want)
			continue
		}
		if _, err := s.Agent(refused[0].Name); !errors.Is(err, agents.ErrRefusedAgent) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: Agent(%q) = %v, want ErrRefusedAgent with %q", c.text, refused[0].Name, err, c.want)
		}
		agent(t, s, "good") // the others are there
		agent(t, s, agents.Build)
	}
}

func TestEveryBadRuleIsNamed(t *testing.T) {
	t.Parallel()
	_, err := agents.Parse("a", "a.md", []byte("---\ndescription: x\nrules:\n  - alow x *\n  - deny y *\n  - deny\n---\n"))
	if !errors.Is(err, permission.ErrBadRule) || !strings.Contains(err.Error(), "a.md:4") || !strings.Contains(err.Error(), "a.md:6") || strings.Contains(err.Error(), "a.md:5") {
		t.Errorf("Parse = %v, want ErrBadRule for the lines 4 and 6", err)
	}
}

func TestUnknownAgentNamesTheKnownOnes(t *testing.T) {
	t.Parallel()
	_, err := agents.Load(agents.LoadConfig{}).Agent("bild")
	if !errors.Is(err, agents.ErrUnknownAgent) || !strings.Contains(err.Error(), "the agents are build, general, plan") {
		t.Errorf("Agent(bild) = %v", err)
	}
}

func TestProjectReplacesUserReplacesBuiltIn(t *testing.T) {
	t.Parallel()
	c := folders(t)
	text := func(description string) string { return "---\ndescription: " + description + "\n---\n" }
	write(t, ofUser(c), "build.md", text("user"))
	write(t, ofUser(c), "plan.md", text("user"))
	write(t, ofProject(c), "plan.md", text("project"))
	s := agents.Load(c)
	for name, want := range map[domain.AgentID]string{"build": "user", "plan": "project"} {
		if a := agent(t, s, name); a.Description != want {
			t.Errorf("%s has the description %q, want %q", name, a.Description, want)
		}
	}
	if a := agent(t, s, "general"); a.Source != "built in" {
		t.Errorf("general is from %s", a.Source)
	}
}

// A project cannot loosen an agent, and the user can.
func TestProjectFileKeepsTheRulesThatItReplaces(t *testing.T) {
	t.Parallel()
	const permissive = "---\ndescription: x\nrules:\n  - allow * *\n---\n"
	c := folders(t)
	write(t, ofProject(c), "plan.md", permissive)
	plan := agent(t, agents.Load(c), agents.Plan)
	if got := effect(plan, "edit", "main.go"); got != domain.Deny {
		t.Errorf("plan of a project: edit main.go is %v, want deny", got)
	}
	if got := effect(plan, "edit", ".ledger/plans/a.md"); got != domain.Allow {
		t.Errorf("plan of a project: edit of a plan is %v, want allow", got)
	}
	if sets := plan.RuleSets(); len(sets) != 2 {
		t.Errorf("plan of a project has %d rule sets, want 2", len(sets))
	}

	write(t, ofUser(c), "plan.md", permissive)
	write(t, ofUser(c), "reader.md", "---\ndescription: x\nrules:\n  - deny bash *\ntools: [read]\n---\n")
	write(t, ofProject(c), "reader.md", "---\ndescription: y\ntools: [\"*\"]\n---\n")
	s := agents.Load(c)
	if got := effect(agent(t, s, agents.Plan), "edit", "main.go"); got != domain.Allow {
		t.Errorf("plan of the user: edit main.go is %v, want allow", got)
	}
	reader := agent(t, s, "reader")
	if got := effect(reader, "bash", "ls"); got != domain.Deny || !slices.Equal(reader.Tools, []string{"read"}) {
		t.Errorf("reader of the project: bash is %v, tools %v, want deny and [read]", got, reader.Tools)
	}
}

// A project file cannot raise the limit of steps of the agent that it replaces.
func TestProjectFileKeepsTheLowerLimitOfSteps(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		user, project string
		want          int
	}{
		{"steps: 10\n", "", 10}, {"steps: 10\n", "steps: 99\n", 10}, {"steps: 10\n", "steps: 3\n", 3}, {"", "steps: 7\n", 7}, {"", "", 0},
	} {
		c := folders(t)
		write(t, ofUser(c), "reader.md", "---\ndescription: x\n"+row.user+"---\n")
		write(t, ofProject(c), "reader.md", "---\ndescription: y\n"+row.project+"---\n")
		if got := agent(t, agents.Load(c), "reader").Steps; got != row.want {
			t.Errorf("user %q, project %q: %d steps, want %d", row.user, row.project, got, row.want)
		}
	}
}

func TestAgentFileOpensNothingThatTheConfigurationCloses(t *testing.T) {
	t.Parallel()
	configured, err := permission.ParseRules("rules", strings.NewReader("allow * *\nask external_directory *\ndeny bash rm *"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := agents.Parse("free", "free.md", []byte("---\ndescription: x\nrules:\n  - allow bash *\n  - allow external_directory *\n  - deny edit *\n---\n"))
	if err != nil {
		t.Fatal(err)
	}
	sets := append(domain.RuleSets{configured}, a.RuleSets()...)
	for _, c := range []struct {
		action, resource string
		want             domain.Effect
	}{{"bash", "rm -rf x", domain.Deny}, {"external_directory", "/etc/*", domain.Ask}, {"bash", "ls", domain.Allow}, {"edit", "a", domain.Deny}, {"read", "a", domain.Allow}} {
		if rule, _ := sets.Evaluate(c.action, c.resource); rule.Effect != c.want {
			t.Errorf("%s %s is %v, want %v", c.action, c.resource, rule.Effect, c.want)
		}
	}
}

// A restriction that cannot be read does not become no restriction.
func TestNameOfRefusedFileIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	const good, bad = "---\ndescription: x\n---\n", "---\ndescription: x\nrules:\n  - dney bash *\n---\n"
	for _, texts := range [][2]string{{bad, ""}, {bad, good}, {good, bad}} {
		c := folders(t)
		write(t, ofUser(c), "plan.md", texts[0])
		if texts[1] != "" {
			write(t, ofProject(c), "plan.md", texts[1])
		}
		s := agents.Load(c)
		if a, err := s.Agent(agents.Plan); !errors.Is(err, agents.ErrRefusedAgent) {
			t.Errorf("user %q, project %q: Agent(plan) = %+v, %v, want ErrRefusedAgent", texts[0], texts[1], a, err)
		}
		if got := names(s.Primary()); !slices.Equal(got, []domain.AgentID{"build"}) {
			t.Errorf("Primary() = %v, want build alone", got)
		}
	}
}

func TestLinkOutOfTheProjectIsRefused(t *testing.T) {
	t.Parallel()
	c := folders(t)
	outside := t.TempDir()
	path := write(t, outside, "spy.md", reviewer)
	write(t, ofProject(c), "good.md", reviewer)
	write(t, ofUser(c), "good.md", reviewer)
	for _, folder := range []string{ofProject(c), ofUser(c)} {
		if err := os.Symlink(path, filepath.Join(folder, "spy"+filepath.Base(filepath.Dir(folder))[:1]+".md")); err != nil {
			t.Fatal(err)
		}
	}
	s := agents.Load(c)
	if got := s.Refused(); len(got) != 1 || !strings.HasPrefix(got[0].Path, c.ProjectFolder) || !strings.Contains(got[0].Reason, frontmatter.ErrOutside.Error()) {
		t.Errorf("Refused() = %v, want the link of the project", got)
	}

	linked := folders(t)
	if err := os.Symlink(outside, filepath.Join(linked.ProjectFolder, ".ledger")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(outside, "agents"), "spy.md", reviewer)
	s = agents.Load(linked)
	if got := s.Refused(); len(got) != 1 || got[0].Name != "" || len(s.All()) != 3 {
		t.Errorf("a linked folder: Refused() = %v, All() = %v", got, names(s.All()))
	}
}

func TestFolderIsReadWithinBounds(t *testing.T) {
	t.Parallel()
	c := folders(t)
	for i := range 18 {
		write(t, ofProject(c), fmt.Sprintf("a%02d.md", i), "---\ndescription: x\n---\n"+strings.Repeat("x", 1<<20-100))
	}
	write(t, ofProject(c), ".hidden.md", "x")
	write(t, ofProject(c), "notes.txt", "x")
	s := agents.Load(c)
	if got := s.Refused(); len(got) != 2 || got[0].Name != "a16" || !strings.Contains(got[0].Reason, "16777216 bytes together") {
		t.Errorf("Refused() = %v, want a16 and a17", got)
	}
}

func TestMissingFoldersHaveNoAgents(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	s := agents.Load(agents.LoadConfig{ConfigFolder: none, ProjectFolder: none})
	if got := s.Refused(); len(got) > 0 || len(s.All()) != 3 {
		t.Errorf("Refused() = %v, All() = %v", got, names(s.All()))
	}
	c := folders(t)
	write(t, filepath.Dir(ofProject(c)), "agents", "a file")
	if got := agents.Load(c).Refused(); len(got) != 1 || got[0].Path != ofProject(c) {
		t.Errorf("a file in place of the folder: Refused() = %v", got)
	}
}

func TestDigestChangesWithTheAgent(t *testing.T) {
	t.Parallel()
	parse := func(name domain.AgentID, path, text string) string {
		a, err := agents.Parse(name, path, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return a.Digest
	}
	first := parse("a", "a.md", reviewer)
	if again := parse("a", "b.md", strings.Replace(reviewer, "# an exception", "#", 1)); again != first {
		t.Error("another path and another comment change the digest")
	}
	seen := map[string]string{first: "the file"}
	for _, c := range [][2]string{{"Reviews", "Checks"}, {"small-1", "small-2"}, {"subagent", "all"}, {"deny edit", "ask edit"}, {"grep*", "grep"}, {"20", "21"}, {"You review", "You check"}} {
		digest := parse("a", "a.md", strings.Replace(reviewer, c[0], c[1], 1))
		if other, ok := seen[digest]; ok {
			t.Errorf("%s in place of %s has the digest of %s", c[1], c[0], other)
		}
		seen[digest] = c[1]
	}
	c := folders(t)
	write(t, ofProject(c), "plan.md", reviewer)
	if kept := agent(t, agents.Load(c), agents.Plan).Digest; kept == parse("plan", "plan.md", reviewer) {
		t.Error("the kept rules are not in the digest")
	}
}

func TestModesReadBackAsWritten(t *testing.T) {
	t.Parallel()
	for mode := agents.PrimaryMode; mode <= agents.AllModes; mode++ {
		var back agents.AgentMode
		if err := back.UnmarshalText([]byte(mode.String())); err != nil || back != mode {
			t.Errorf("mode %v reads back as %v, %v", mode, back, err)
		}
	}
	var mode agents.AgentMode
	if err := mode.UnmarshalText(nil); !errors.Is(err, domain.ErrBadWord) || mode.String() != "?0" {
		t.Errorf("UnmarshalText(\"\") = %v, mode %v", err, mode)
	}
}

// FuzzParse checks the invariants of an agent that Parse accepts.
func FuzzParse(f *testing.F) {
	f.Add([]byte(reviewer))
	for _, text := range []string{
		"---\ndescription: x\n---\n", "---\ndescription: x\nrules: [\"deny a *\", ask b c]\n---\n", "---\ndescription: &d x\nmodel: *d\n---\n",
		"---\ndescription: x\nrules:\n  - >-\n    deny\n    bash *\n---\n", "---\ndescription: x\ntools: [\"!a\", b]\nmode: all\nsteps: 0x10\n---\ny", "---\ndescription: x\nrules:\n  - allow ~ ~/x\n---\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := agents.Parse("a", "f", data)
		if err != nil {
			if !errors.Is(err, frontmatter.ErrInvalid) && !errors.Is(err, permission.ErrBadRule) || !strings.Contains(err.Error(), "f") {
				t.Fatalf("Parse = %v", err)
			}
			return
		}
		if a.Name != "a" || a.Description == "" || a.Source != "f" || a.Steps < 0 || len(a.Digest) != 64 {
			t.Fatalf("Parse = %+v", a)
		}
		if a.Mode < agents.PrimaryMode || a.Mode > agents.AllModes {
			t.Fatalf("mode %v", a.Mode)
		}
		if first := a.Rules[0]; first.Action != "*" || first.Resource != "*" || first.Effect != domain.Allow {
			t.Fatalf("the first rule is %+v", first)
		}
		for _, rule := range a.Rules[1:] {
			var line int
			if n, _ := fmt.Sscanf(rule.Source, "f:%d", &line); n != 1 || line < 2 || rule.Action == "" || rule.Resource == "" || rule.Effect < domain.Allow || rule.Effect > domain.Deny {
				t.Fatalf("rule %+v", rule)
			}
		}
		for _, p := range a.Tools {
			if p == "" || strings.ContainsAny(p, " \n") {
				t.Fatalf("tool pattern %q", p)
			}
		}
	})
}
