package skills_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/builtins/frontmatter"
	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/skills"
	"github.com/settlement-ledger/ledger/domain"
)

// recorder accepts every event of a Gate without a question.
type recorder struct{ permission.Recorder }

func (recorder) Requested(context.Context, permission.Request) error { return nil }
func (recorder) Decided(context.Context, permission.Decision) error  { return nil }
func (recorder) Saved(context.Context, permission.Approval) (domain.EventID, error) {
	return domain.EventID{}, nil
}

// person is an Approver that gives one answer and keeps the requests.
type person struct {
	choice permission.Choice
	asked  []permission.Request
}

func (p *person) Decide(_ context.Context, r permission.Request) (permission.Answer, error) {
	p.asked = append(p.asked, r)
	return permission.Answer{Choice: p.choice, By: permission.ByUser}, nil
}

// rules parses rules.
func rules(t testing.TB, text string) domain.RuleSets {
	t.Helper()
	parsed, err := permission.ParseRules("rules", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return domain.RuleSets{parsed}
}

// toolWith returns the tool over folders with rules and a person.
func toolWith(t testing.TB, f skills.Folders, sets domain.RuleSets, p *person) domain.Tool {
	t.Helper()
	gate, err := permission.NewGate(permission.Config{
		Rules: func(domain.Invocation) domain.RuleSets { return sets }, Approver: p, Recorder: recorder{}, Mint: domain.NewMint(time.Now, rand.Reader), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	tool, err := skills.Tool(skills.Config{Folders: f, Permission: gate})
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// call runs the tool once.
func call(t testing.TB, tool domain.Tool, name string) (domain.Output, error) {
	t.Helper()
	input, err := json.Marshal(map[string]string{"name": name})
	if err != nil {
		t.Fatal(err)
	}
	bound, err := tool.Bind(input)
	if err != nil {
		t.Fatal(err)
	}
	return bound.Run(t.Context(), domain.Invocation{Agent: "build"})
}

// folders returns empty folders of a user and of a project.
func folders(t testing.TB) skills.Folders {
	return skills.Folders{Config: t.TempDir(), Project: t.TempDir()}
}

// ofUser and ofProject return the folder of a skill.
func ofUser(f skills.Folders, name string) string { return filepath.Join(f.Config, "skills", name) }
func ofProject(f skills.Folders, name string) string {
	return filepath.Join(f.Project, ".ledger", "skills", name)
}

// write writes a file and creates its folder.
func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// skill writes a valid SKILL.md into a folder.
func skill(t testing.TB, folder, description string) {
	t.Helper()
	write(t, filepath.Join(folder, "SKILL.md"), "---\nname: "+filepath.Base(folder)+"\ndescription: "+description+"\n---\n# Steps\n\nDo it.\n")
}

// fill makes n further files in the folder of a skill. They are links to its SKILL.md,
// which are made faster than files.
func fill(t testing.TB, folder, prefix string, n int) {
	t.Helper()
	for i := range n {
		if err := os.Link(filepath.Join(folder, "SKILL.md"), filepath.Join(folder, fmt.Sprintf("%s%05d", prefix, i))); err != nil {
			t.Fatal(err)
		}
	}
}

// names returns the names of the skills of a Catalog.
func names(c *skills.Catalog) (found []string) {
	for _, s := range c.Skills() {
		found = append(found, s.Name)
	}
	return found
}

// describe returns the description of the tool in a turn.
func describe(t testing.TB, tool domain.Tool, sets domain.RuleSets) string {
	t.Helper()
	text, err := tool.DescribeTurn(domain.TurnFacts{Rules: sets})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Scenario 157.
func TestSkillReturnsInstructionsAndSampleOfFiles(t *testing.T) {
	t.Parallel()
	f := folders(t)
	folder := ofProject(f, "release")
	skill(t, folder, "Makes a release.")
	for i := range 12 {
		write(t, filepath.Join(folder, "scripts", fmt.Sprintf("%02d.sh", i)), "")
	}
	write(t, filepath.Join(folder, "notes\n.md"), "")
	write(t, filepath.Join(folder, ".git", "config"), "")
	if err := os.Symlink("/etc/passwd", filepath.Join(folder, "a-link")); err != nil {
		t.Fatal(err)
	}
	out, err := call(t, toolWith(t, f, rules(t, "allow * *"), &person{}), "release")
	if err != nil {
		t.Fatal(err)
	}
	want := "<skill_content name=\"release\">\n# Steps\n\nDo it.\n\nBase directory of this skill: " + folder + "\nFiles in it:\n- \"notes\\n.md\"\n"
	for i := range 9 {
		want += fmt.Sprintf("- scripts/%02d.sh\n", i)
	}
	want += "(and further files)\n</skill_content>"
	if got := out.Content().Text(); got != want {
		t.Errorf("content = %s\nwant %s", got, want)
	}
	file, err := filepath.EvalSymlinks(filepath.Join(folder, "SKILL.md"))
	if err != nil {
		t.Fatal(err)
	}
	if got := out.Files(); len(got) != 1 || got[0].Path != file || got[0].Access != domain.FileRead || !strings.HasPrefix(got[0].Version, "sha256:") {
		t.Errorf("Files() = %+v", got)
	}
}

// A denied skill answers as a denied name without a skill, and is not read.
// Scenario 157.
func TestUnknownAndDeniedSkillDoNotDiffer(t *testing.T) {
	t.Parallel()
	f := folders(t)
	skill(t, ofProject(f, "secret"), "Is denied.")
	asked := &person{choice: permission.Once}
	tool := toolWith(t, f, rules(t, "allow * *\ndeny skill s*"), asked)
	for _, name := range []string{"secret", "some"} {
		_, err := call(t, tool, name)
		denied, ok := errors.AsType[*domain.Denied](err)
		if !ok || denied.Error() != "Permission denied: skill "+name {
			t.Errorf("call(%s) = %v, want a denial", name, err)
		}
	}
	for _, name := range []string{"unknown", "../secret", "*", "Secret", "a/b"} {
		_, err := call(t, tool, name)
		if _, failed := errors.AsType[*domain.Failure](err); !failed || err.Error() != "Unable to load skill "+name {
			t.Errorf("call(%s) = %v, want a failure", name, err)
		}
	}
	if len(asked.asked) > 0 {
		t.Errorf("a person was asked: %v", asked.asked)
	}
}

func TestPersonSeesTheInstructionsThatTheCallReturns(t *testing.T) {
	t.Parallel()
	f := folders(t)
	skill(t, ofUser(f, "release"), "Makes a release.")
	asked := &person{choice: permission.Always}
	tool := toolWith(t, f, rules(t, "ask skill *"), asked)
	for range 2 {
		if _, err := call(t, tool, "release"); err != nil {
			t.Fatal(err)
		}
	}
	if len(asked.asked) != 1 {
		t.Fatalf("a person was asked %d times, want once", len(asked.asked))
	}
	r := asked.asked[0]
	if r.Action != "skill" || !slices.Equal(r.Resources, []string{"release"}) || !slices.Equal(r.Save, []string{"release"}) || !strings.Contains(r.Shown.Text, "Do it.") {
		t.Errorf("the request is %+v", r)
	}
	_, err := call(t, toolWith(t, f, rules(t, "ask skill *"), &person{choice: permission.Reject}), "release")
	if !errors.Is(err, domain.ErrDeclined) {
		t.Errorf("call = %v, want ErrDeclined", err)
	}
	if _, err := call(t, tool, "none"); err == nil || len(asked.asked) != 1 {
		t.Errorf("a person was asked about a skill that does not exist: %v", err)
	}
}

func TestDescriptionListsTheSkillsThatTheRulesDoNotDeny(t *testing.T) {
	t.Parallel()
	f := folders(t)
	all := rules(t, "allow * *")
	tool := toolWith(t, f, all, &person{})
	if got := describe(t, tool, all); !strings.HasSuffix(got, "\nThere are no skills now.") {
		t.Errorf("without skills the description is %q", got)
	}
	skill(t, ofProject(f, "b"), "Second.")
	skill(t, ofUser(f, "a"), "\"First\\n of all.\"")
	skill(t, ofUser(f, "c"), "Third.")
	if got := describe(t, tool, all); !strings.HasSuffix(got, "\nThe skills:\n- a: First of all.\n- b: Second.\n- c: Third.") {
		t.Errorf("the description is %q", got)
	}
	two := append(rules(t, "allow * *"), rules(t, "allow * *\ndeny skill *\nallow skill c")...)
	if got := describe(t, tool, two); !strings.HasSuffix(got, "\nThe skills:\n- c: Third.") {
		t.Errorf("with a denial the description is %q", got)
	}
	skill(t, ofUser(f, "c"), "Changed")
	if got := describe(t, tool, two); !strings.HasSuffix(got, "\n- c: Changed") {
		t.Errorf("after a change of the same length the description is %q", got)
	}
}

func TestProjectSkillReplacesUserSkill(t *testing.T) {
	t.Parallel()
	f := folders(t)
	skill(t, ofUser(f, "a"), "Of the user.")
	skill(t, ofProject(f, "a"), "Of the project.")
	c := skills.Load(f)
	if got := c.Skills(); len(got) != 1 || got[0].Description != "Of the project." || got[0].Directory != ofProject(f, "a") {
		t.Errorf("Skills() = %+v", got)
	}
	out, err := call(t, toolWith(t, f, rules(t, "allow * *"), &person{}), "a")
	if err != nil || !strings.Contains(out.Content().Text(), ofProject(f, "a")) {
		t.Errorf("call = %s, %v", out.Content().Text(), err)
	}
	write(t, filepath.Join(ofProject(f, "a"), "SKILL.md"), "broken")
	if got := skills.Load(f).Skills(); len(got) != 1 || got[0].Description != "Of the user." {
		t.Errorf("with a broken skill of the project, Skills() = %+v", got)
	}
}

func TestBadSkillIsLeftOutWithReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ folder, text, want string }{
		{"a", "# A\n", "SKILL.md:1: front matter is not valid: there is no front matter"},
		{"a", "---\nname: b\ndescription: x\n---\n", `SKILL.md:2: front matter is not valid: key "name": it is "b" and the folder is "a"`},
		{"a", "---\ndescription: x\n---\n", `key "name": it is "" and the folder is "a"`},
		{"a", "---\nname: a\n---\n", `key "description": there is no description`},
		{"a", "---\nname: a\ndescription: x\nlicense: MIT\n---\n", `SKILL.md:4: front matter is not valid: unknown key "license": the keys are name, description`},
		{"a", "---\nname: a\ndescription: " + strings.Repeat("x", 1025) + "\n---\n", "longer than 1024 bytes"},
		{"a", "---\nname: a\ndescription: \"\\e[31m\"\n---\n", "control character"},
		{"a", "---\nname: a\ndescription: \xff\n---\n", "not UTF-8"},
		{"a", "---\nname: a\ndescription: x\n---\n" + strings.Repeat("x", 1<<20), "the file is too long"},
		{"A b", "---\nname: A b\ndescription: x\n---\n", `the name "A b" is not a lower-case letter`},
	} {
		f := folders(t)
		skill(t, ofProject(f, "good"), "x")
		write(t, filepath.Join(ofProject(f, c.folder), "SKILL.md"), c.text)
		catalog := skills.Load(f)
		if got := catalog.Refused(); len(got) != 1 || got[0].Path != filepath.Join(ofProject(f, c.folder), "SKILL.md") || !strings.HasPrefix(got[0].Reason, got[0].Path) || !strings.Contains(got[0].Reason, c.want) {
			t.Errorf("%.60q: Refused() = %v, want %q", c.text, got, c.want)
		}
		if got := names(catalog); !slices.Equal(got, []string{"good"}) {
			t.Errorf("%.60q: Skills() = %v, want good", c.text, got)
		}
		if c.folder != "a" {
			continue
		}
		_, err := call(t, toolWith(t, f, rules(t, "allow * *"), &person{}), "a")
		if _, failed := errors.AsType[*domain.Failure](err); !failed || !strings.HasPrefix(err.Error(), "Unable to load skill a: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: call = %v, want the reason", c.text, err)
		}
	}
}

// A file beside the folders is no skill, and a folder without SKILL.md is refused.
// Scenario 157.
func TestOnlyFoldersWithSkillFileAreSkills(t *testing.T) {
	t.Parallel()
	f := folders(t)
	write(t, ofProject(f, "flat.md"), "---\nname: flat\ndescription: x\n---\n")
	write(t, filepath.Join(ofProject(f, ".hidden"), "SKILL.md"), "x")
	write(t, filepath.Join(ofProject(f, "empty"), "notes.md"), "x")
	c := skills.Load(f)
	if got := c.Refused(); len(c.Skills()) != 0 || len(got) != 1 || !strings.Contains(got[0].Reason, "the folder has no SKILL.md: add it") {
		t.Errorf("Skills() = %v, Refused() = %v", c.Skills(), got)
	}
	_, err := call(t, toolWith(t, f, rules(t, "allow * *"), &person{}), "flat")
	if err == nil || err.Error() != "Unable to load skill flat" {
		t.Errorf("call = %v", err)
	}
}

func TestLinkOutOfTheProjectIsNoSkill(t *testing.T) {
	t.Parallel()
	f := folders(t)
	outside := filepath.Join(t.TempDir(), "spy")
	skill(t, outside, "x")
	for _, path := range []string{ofProject(f, "spy"), ofUser(f, "spy")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, path); err != nil {
			t.Fatal(err)
		}
	}
	c := skills.Load(f)
	if got := c.Refused(); len(got) != 1 || !strings.HasPrefix(got[0].Path, f.Project) || !strings.Contains(got[0].Reason, frontmatter.ErrOutside.Error()) {
		t.Errorf("Refused() = %v", got)
	}
	if got := c.Skills(); len(got) != 1 || !strings.HasPrefix(got[0].Directory, f.Config) {
		t.Errorf("Skills() = %v, want the link of the user", got)
	}
}

func TestManyFilesAndManySkillsAreBounded(t *testing.T) {
	t.Parallel()
	f := folders(t)
	skill(t, ofProject(f, "large"), "Has many files.")
	fill(t, ofProject(f, "large"), "", 10_000)
	for i := range 510 {
		skill(t, ofUser(f, fmt.Sprintf("s%03d", i)), strings.Repeat("x", 900))
	}
	skill(t, ofProject(f, "hidden"), "Has many hidden files.")
	fill(t, ofProject(f, "hidden"), ".", 2100)
	c := skills.Load(f)
	if got := c.Refused(); len(c.Skills()) != 502 || len(got) != 1 || !strings.Contains(got[0].Reason, "more than 500 skills, and those from s500 on are left out") {
		t.Errorf("%d skills, Refused() = %v", len(c.Skills()), got)
	}
	all := rules(t, "allow * *")
	tool := toolWith(t, f, all, &person{})
	if got := describe(t, tool, all); len(got) > 20_000 || !strings.HasSuffix(got, "further skills)") {
		t.Errorf("the description has %d bytes and ends with %q", len(got), got[len(got)-40:])
	}
	out, err := call(t, tool, "hidden")
	if err != nil || strings.Contains(out.Content().Text(), "\n- ") || !strings.Contains(out.Content().Text(), "(and further files)") {
		t.Errorf("call = %s, %v", out.Content().Text(), err)
	}
	out, err = call(t, tool, "large")
	if err != nil || strings.Count(out.Content().Text(), "\n- ") != 10 || !strings.Contains(out.Content().Text(), "(and further files)") {
		t.Errorf("call = %s, %v", out.Content().Text(), err)
	}
}

func TestInterruptedCallReturnsItsCause(t *testing.T) {
	t.Parallel()
	f := folders(t)
	skill(t, ofProject(f, "a"), "x")
	bound, err := toolWith(t, f, rules(t, "allow * *"), &person{}).Bind(json.RawMessage(`{"name":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(domain.ByUser)
	if _, err := bound.Run(ctx, domain.Invocation{}); !errors.Is(err, domain.ErrInterrupted) {
		t.Errorf("Run = %v, want ErrInterrupted", err)
	}
}

func TestToolNeedsPermission(t *testing.T) {
	t.Parallel()
	if _, err := skills.Tool(skills.Config{}); !errors.Is(err, skills.ErrNoPermission) {
		t.Errorf("Tool = %v, want ErrNoPermission", err)
	}
	tool := toolWith(t, folders(t), rules(t, "allow * *"), &person{})
	if !tool.AsksFirst() || !tool.Idempotent() || tool.Action("skill") != "skill" {
		t.Error("the tool does not ask first, is not idempotent, or has another action")
	}
	if _, err := tool.Bind(json.RawMessage(`{"name":""}`)); !errors.Is(err, domain.ErrInvalidInput) {
		t.Errorf("Bind of an empty name = %v", err)
	}
}

// FuzzSkill checks that a SKILL.md becomes a skill of its folder with a description of
// one line, or a refusal.
func FuzzSkill(f *testing.F) {
	for _, text := range []string{
		"---\nname: a\ndescription: x\n---\nbody", "---\nname: a\ndescription: >-\n  two\n  lines\n---\n", "---\nname: b\ndescription: x\n---\n", "---\nname: a\n---\n", "# a", "---\n{name: a, description: \"\\u0085\"}\n---\n",
	} {
		f.Add(text)
	}
	project := f.TempDir()
	path := filepath.Join(project, ".ledger", "skills", "a", "SKILL.md")
	f.Fuzz(func(t *testing.T, text string) {
		write(t, path, text)
		c := skills.Load(skills.Folders{Project: project})
		if len(c.Skills())+len(c.Refused()) != 1 {
			t.Fatalf("%q: %v, %v", text, c.Skills(), c.Refused())
		}
		for _, s := range c.Skills() {
			if s.Name != "a" || s.Description == "" || strings.ContainsAny(s.Description, "\n\r\x1b") || len(s.Description) > 1024 {
				t.Fatalf("%q: %+v", text, s)
			}
		}
		for _, r := range c.Refused() {
			if r.Path != path || r.Reason == "" {
				t.Fatalf("%q: %+v", text, r)
			}
		}
	})
}
