package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/patch"
	"github.com/settlement-ledger/ledger/builtins/process"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// toolsPath is the document of the built-in tools.
var toolsPath = filepath.Join("..", "..", "docs", "tools.md")

// toolsHead is the beginning of the document, in which the values are limits.
const toolsHead = `# Built-in tools

This document is made from the events that ` + "`ledger run`" + ` records when it registers its tools: ` +
	"`go test ./cmd/ledger -run DocumentOfTheTools -update`" + ` writes it.
` + "`ledger turn show`" + ` shows the tools of one turn, and for each hidden tool the reason.

[agents.md](agents.md) describes the agents, whose rules and lists hide tools, [skills.md](skills.md) the folders of ` + "`skill`" + `, and
[tools-from-files.md](tools-from-files.md) the tools that a user or a project adds.

A trajectory that calls every tool in a small project is in ` + "`cmd/ledger/testdata/everytool`" + `. This command runs it as the agents
` + "`build` and `plan`" + `, verifies both logs and prints their calls:

    go test ./cmd/ledger -run 'UsesEveryTool|ChangesOnlyItsPlan' -v

These limits hold for every tool:

- What the model reads of a result is at most %d lines and %d bytes, and media of at most %d bytes in base64. A larger text is kept
  whole, and the model reads its beginning, its end and a reference.
- %d calls of one reply run at the same time.
- Tasks start subsessions %d deep, or as deep as ` + "`--task-depth`" + ` says.

A star marks a required property. *Asks first* promises that the tool asks for permission before its first effect, so that an open
question survives a restart. *Idempotent* promises that a second run of the same call has no further effect. The rules of
permission name the *action*; several tools can share one. A tool that is not available everywhere is offered where one of its
alternatives holds; of several patterns the last that matches decides, and a pattern that begins with ! excludes.

`

// otherLimits are the limits of tools that no schema has. Those that are constants of a tool
// alone are in its description.
var otherLimits = map[domain.Name]string{
	"apply_patch": fmt.Sprintf("%d bytes of patch, %d files", patch.MaxPatch, patch.MaxChanges),
	"bash":        fmt.Sprintf("%d bytes of captured output", process.DefaultLimit),
}

// A toolSchema is the part of a JSON Schema that the table of tools shows.
type toolSchema struct {
	Type       any                    `json:"type"`
	Required   []string               `json:"required"`
	Properties map[string]*toolSchema `json:"properties"`
	Items      *toolSchema            `json:"items"`
	Enum       []string               `json:"enum"`
	Minimum    *json.Number           `json:"minimum"`
	Above      *json.Number           `json:"exclusiveMinimum"`
	Maximum    *json.Number           `json:"maximum"`
	MinItems   *json.Number           `json:"minItems"`
	MaxItems   *json.Number           `json:"maxItems"`
	MinLength  *json.Number           `json:"minLength"`
	MaxLength  *json.Number           `json:"maxLength"`
}

// typeName returns the type of the values of a schema.
func (s *toolSchema) typeName() string {
	switch {
	case len(s.Enum) > 0:
		return strings.Join(s.Enum, " or ")
	case s.Type == "array" && s.Items != nil:
		return "list of " + s.Items.typeName()
	case s.Type == "object" && len(s.Properties) > 0:
		return "{" + s.properties() + "}"
	}
	return fmt.Sprint(s.Type)
}

// properties returns the properties of an object with their types, the required ones first.
func (s *toolSchema) properties() string {
	var shown []string
	for _, name := range s.Required {
		shown = append(shown, fmt.Sprintf("`%s`* %s", name, s.Properties[name].typeName()))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(s.Required, name) {
			shown = append(shown, fmt.Sprintf("`%s` %s", name, s.Properties[name].typeName()))
		}
	}
	return strings.Join(shown, ", ")
}

// limits returns the numbers that bound a schema and its properties, each with its path.
func (s *toolSchema) limits(path string) []string {
	var found []string
	bound := func(low, high *json.Number, unit string) {
		switch {
		case high == nil && low != nil && *low == "1" && unit != "": // every schema of a text or list says so
		case high != nil && low != nil:
			found = append(found, fmt.Sprintf("`%s` %s to %s%s", path, *low, *high, unit))
		case high != nil:
			found = append(found, fmt.Sprintf("`%s` at most %s%s", path, *high, unit))
		case low != nil:
			found = append(found, fmt.Sprintf("`%s` from %s%s", path, *low, unit))
		}
	}
	bound(s.Minimum, s.Maximum, "")
	if s.Above != nil {
		found = append(found, fmt.Sprintf("`%s` above %s", path, *s.Above))
	}
	bound(s.MinItems, s.MaxItems, " entries")
	bound(s.MinLength, s.MaxLength, " characters")
	if s.Items != nil {
		found = append(found, s.Items.limits(path)...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		found = append(found, s.Properties[name].limits(strings.TrimPrefix(path+"."+name, "."))...)
	}
	return found
}

// availabilityText returns a rule of availability for a person.
func availabilityText(a domain.Availability) string {
	alternatives := make([]string, len(a))
	for i, where := range a {
		var conditions []string
		for _, c := range []struct {
			kind     string
			patterns []string
		}{{"agent", where.Agents}, {"model", where.Models}, {"provider", where.Providers}, {"client", where.Clients}, {"flag", where.Flags}, {"machine has", where.Needs}} {
			if len(c.patterns) > 0 {
				conditions = append(conditions, c.kind+" `"+strings.Join(c.patterns, "`, `")+"`")
			}
		}
		alternatives[i] = strings.Join(conditions, " and ")
	}
	if len(a) == 0 {
		return "everywhere"
	}
	return strings.ReplaceAll(strings.Join(alternatives, "; or "), "|", `\|`)
}

// purpose returns the first sentence of a description as Markdown.
func purpose(description string) string {
	sentence, _, more := strings.Cut(firstLine(description), ". ")
	if more {
		sentence += "."
	}
	return strings.ReplaceAll(sentence, "*", `\*`)
}

// yesOrNo returns yes or no.
func yesOrNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// indentedSchema returns a schema as indented JSON.
func indentedSchema(schema json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, schema, "", "  "); err != nil {
		return err.Error()
	}
	return b.String()
}

// toolsDocument returns the document of the given tools.
func toolsDocument(t *testing.T, tools []events.RegisteredTool) string {
	t.Helper()
	var b strings.Builder
	most := registry.DefaultLimits
	fmt.Fprintf(&b, toolsHead, most.Lines, most.Bytes, most.Media, runner.DefaultParallel, engine.DefaultTaskDepth)
	b.WriteString("| tool | action | what it does | input | limits | asks first | idempotent | available |\n|---|---|---|---|---|---|---|---|\n")
	for _, tool := range tools {
		schema := decodeJSON[toolSchema](t, tool.Input)
		limits := schema.limits("")
		if other, ok := otherLimits[tool.Name]; ok {
			limits = append(limits, other)
		}
		fmt.Fprintf(&b, "| [`%s`](#%s) | `%s` | %s | %s | %s | %s | %s | %s |\n", tool.Name, tool.Name, tool.Action, purpose(tool.Description),
			schema.properties(), strings.Join(limits, ", "), yesOrNo(tool.AsksFirst), yesOrNo(tool.Idempotent), availabilityText(tool.Available))
	}
	for _, tool := range tools {
		fmt.Fprintf(&b, "\n## %s\n\n````text\n%s\n````\n\nInput:\n\n```json\n%s\n```\n\nOutput:\n\n```json\n%s\n```\n",
			tool.Name, strings.TrimSpace(tool.Description), indentedSchema(tool.Input), indentedSchema(tool.Output))
	}
	return b.String()
}

// greeting is a trajectory without a call.
const greeting = `{"schema_version":"ATIF-v1.7","agent":{"name":"build"},"steps":[{"source":"user","message":"hi"},{"source":"agent","message":"hello"}]}`

// registrations runs a session without calls in a workspace and returns the ToolsRegistered
// events of the run.
func registrations(t *testing.T, workspace string) []events.ToolsRegistered {
	t.Helper()
	work := t.TempDir()
	trajectory := filepath.Join(work, "greeting.json")
	if err := os.WriteFile(trajectory, []byte(greeting), 0o600); err != nil {
		t.Fatal(err)
	}
	r := everyToolRun{T: t, store: filepath.Join(work, "store"), env: append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Join(work, "config"))}
	r.ledger("run", "--script", trajectory, "--workspace", workspace)
	var all []events.ToolsRegistered
	for line := range bytes.Lines(r.ledger("event", "ls", "--kind", "ToolsRegistered", "-o", "jsonl")) {
		all = append(all, decodeJSON[struct{ Data events.ToolsRegistered }](t, line).Data)
	}
	return all
}

// docs/tools.md has every built-in tool, as the command registers it. With -update the test
// writes the document.
func TestTheDocumentOfTheToolsIsTheRegistry(t *testing.T) {
	t.Parallel()
	made := toolsDocument(t, registrations(t, t.TempDir())[0].Tools)
	if *update {
		if err := os.WriteFile(toolsPath, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	written, err := os.ReadFile(toolsPath)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != made {
		t.Errorf("docs/tools.md differs from the registry (go test ./cmd/ledger -run DocumentOfTheTools -update). It should be:\n%s", made)
	}
}

// The folder of a project cannot give the name of a built-in tool to a tool, so that a cloned
// project replaces none.
func TestNoToolOfAProjectReplacesABuiltInOne(t *testing.T) {
	t.Parallel()
	builtIn := registrations(t, t.TempDir())[0].Tools
	project := t.TempDir()
	tools := filepath.Join(project, ".ledger", "tools")
	if err := os.MkdirAll(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tool := range builtIn {
		manifest := `{"description": "Replaces a tool.", "input": {"type": "object"}, "command": ["true"]}`
		if err := os.WriteFile(filepath.Join(tools, string(tool.Name)+".json"), []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused := map[string]string{}
	for _, e := range registrations(t, project) {
		for _, r := range e.Refused {
			refused[r.Name] = r.Reason
		}
	}
	for _, tool := range builtIn {
		if refused[string(tool.Name)] == "" {
			t.Errorf("the project replaced %s", tool.Name)
		}
	}
}
