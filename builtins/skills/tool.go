package skills

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed skill.md
var description string

// ErrNoPermission says that a Config has no Permission.
var ErrNoPermission = errors.New("tool skill has no permission to ask")

// action is the permission action of the tool.
const action = "skill"

// maxList is the maximum length of the list of skills in the description of the tool, in
// bytes.
const maxList = 16 << 10

// A Config configures the tool. Permission is required.
type Config struct {
	Folders    Folders
	Permission permission.Evaluator
}

// skillArgs is the input of the tool.
type skillArgs struct {
	Name string `json:"name" jsonschema:"the name of the skill, from the list in the description of this tool"`
}

// skillResult is the output of the tool.
type skillResult struct {
	Name      string   `json:"name"`
	Directory string   `json:"directory"` // absolute
	Content   string   `json:"content"`   // the instructions
	Files     []string `json:"files,omitempty"`
	More      bool     `json:"more,omitempty"` // there are or may be files that Files does not name

	read domain.FileAccess // the SKILL.md
}

// Tool returns the tool skill. It returns an ErrNoPermission if Permission is not set.
func Tool(c Config) (domain.Tool, error) {
	if c.Permission == nil {
		return domain.Tool{}, fmt.Errorf("make tool skill: %w", ErrNoPermission)
	}
	return domain.Make(domain.Spec[skillArgs, skillResult]{
		Description:  description,
		DescribeTurn: c.describeTurn,
		Input:        domain.Constrained[skillArgs](`{"properties":{"name":{"minLength":1,"maxLength":256}}}`),
		Execute:      c.load,
		Present:      present,
		Title:        func(in skillArgs) string { return in.Name },
		Files:        func(_ skillArgs, out skillResult) []domain.FileAccess { return []domain.FileAccess{out.read} },
		AsksFirst:    true,
		Idempotent:   true,
	})
}

// describeTurn returns the description of the tool with the list of the skills that the
// rules of the turn do not deny. It reads the folders again. A list over maxList is cut
// and ends with the number of further skills.
func (c Config) describeTurn(facts domain.TurnFacts) string {
	var list strings.Builder
	cut := 0
	for _, s := range Load(c.Folders).Skills() {
		if rule, _ := facts.Rules.EvaluateSpelled(action, s.Name, nil); rule.Effect == domain.Deny {
			continue
		}
		line := "- " + s.Name + ": " + s.Description + "\n"
		if cut > 0 || list.Len()+len(line) > maxList {
			cut++
			continue
		}
		list.WriteString(line)
	}
	if cut > 0 {
		fmt.Fprintf(&list, "(%d further skills)\n", cut)
	}
	if list.Len() == 0 {
		return description + "\nThere are no skills now."
	}
	return description + "\nThe skills:\n" + strings.TrimSuffix(list.String(), "\n")
}

// load executes one call. If a rule denies the request, it reads nothing. Otherwise it
// reads the skill before it asks, so that a person sees the instructions that the call
// returns, and is not asked about a skill that does not exist.
func (c Config) load(ctx context.Context, in skillArgs, inv domain.Invocation) (skillResult, error) {
	ask := permission.Ask{Action: action, Resources: []string{in.Name}, Save: []string{in.Name}}
	if c.Permission.Check(inv, ask).Effect == domain.Deny {
		ask.Save = nil
		if err := c.Permission.Assert(ctx, inv, ask); err != nil {
			return skillResult{}, err
		}
	}
	text, sample, more, err := c.Folders.find(ctx, in.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return skillResult{}, domain.Fail("Unable to load skill %s", in.Name)
	}
	if err != nil {
		return skillResult{}, domain.Fail("Unable to load skill %s: %s", in.Name, err)
	}
	ask.Preview = permission.TextPreview(domain.PreviewContent, text.body)
	if err := c.Permission.Assert(ctx, inv, ask); err != nil {
		return skillResult{}, err
	}
	directory, err := filepath.Abs(text.Directory)
	if err != nil {
		return skillResult{}, err
	}
	return skillResult{
		Name: text.Name, Directory: directory, Content: text.body, Files: sample, More: more,
		read: domain.FileAccess{Path: canonicalPath(filepath.Join(directory, skillFile)), Access: domain.FileRead, Version: text.version},
	}, nil
}

// canonicalPath returns an absolute path without symbolic links, or the path itself if
// the file is gone.
func canonicalPath(path string) string {
	if canonical, err := filepath.EvalSymlinks(path); err == nil {
		return canonical
	}
	return path
}

// present renders the output for the model: the instructions, the base directory and the
// sample of files. A file name with control characters is quoted.
func present(_ skillArgs, out domain.Encoded[skillResult]) []domain.Content {
	s, err := out.Value()
	if err != nil {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<skill_content name=%q>\n%s\n\nBase directory of this skill: %s\n", s.Name, s.Content, s.Directory)
	if len(s.Files) > 0 {
		b.WriteString("Files in it:\n")
	}
	for _, name := range s.Files {
		if strings.ContainsFunc(name, unicode.IsControl) {
			name = strconv.Quote(name)
		}
		b.WriteString("- " + name + "\n")
	}
	if s.More {
		b.WriteString("(and further files)\n")
	}
	b.WriteString("</skill_content>")
	return []domain.Content{domain.Text(b.String())}
}
