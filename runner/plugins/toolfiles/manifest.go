package toolfiles

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/settlement-ledger/ledger/domain"
)

// ErrBadManifest reports a manifest that defines no tool.
var ErrBadManifest = errors.New("manifest defines no tool")

// A toolManifest is the content of NAME.json. docs/tools-from-files.md describes the
// format.
type toolManifest struct {
	Description  string              `json:"description"`
	Input        jsontext.Value      `json:"input"`
	Output       jsontext.Value      `json:"output"`
	Text         string              `json:"text"`
	Action       string              `json:"action"`
	Command      []string            `json:"command"`
	Files        []string            `json:"files"`
	Env          []string            `json:"env"`
	Timeout      string              `json:"timeout"`
	Limits       lineLimits          `json:"limits"`
	AsksFirst    bool                `json:"asks_first"`
	Idempotent   bool                `json:"idempotent"`
	Title        string              `json:"title"`
	InvalidInput string              `json:"invalid_input"`
	Available    domain.Availability `json:"available"`

	// timeout is the parsed Timeout.
	timeout time.Duration
}

// lineLimits bound the standard output of a program.
type lineLimits struct {
	Output   int `json:"output"`   // bytes of all lines
	Line     int `json:"line"`     // bytes of one line
	Progress int `json:"progress"` // number of progress lines
}

// The limits and the default values of a manifest.
const (
	maxManifest    = 64 << 10
	maxWords       = 64
	maxFiles       = 64
	maxAction      = 128
	defaultTimeout = 2 * time.Minute
	maxTimeout     = time.Hour
)

// The default limits of the lines of a program, and the largest that a manifest may set.
var (
	defaultLimits = lineLimits{Output: 4 << 20, Line: 1 << 20, Progress: 1000}
	maxLimits     = lineLimits{Output: 64 << 20, Line: 16 << 20, Progress: 100_000}
)

// parseManifest decodes and checks a manifest, and sets the values that it leaves out. It
// returns an ErrBadManifest that names the key.
func parseManifest(name domain.Name, data []byte) (toolManifest, error) {
	var m toolManifest
	if len(data) > maxManifest {
		return m, fmt.Errorf("%w: it has more than %d bytes", ErrBadManifest, maxManifest)
	}
	if err := json.Unmarshal(data, &m, json.RejectUnknownMembers(true)); err != nil {
		return m, fmt.Errorf("%w: %w", ErrBadManifest, jsonFault(err))
	}
	if m.Action == "" {
		m.Action = string(name)
	}
	if len(m.Output) == 0 {
		m.Output = jsontext.Value("{}")
	}
	for _, check := range []func() error{m.checkText, m.checkSchemas, m.checkCommand, m.checkTimeout, m.checkLimits, m.checkAvailable} {
		if err := check(); err != nil {
			return m, fmt.Errorf("%w: %w", ErrBadManifest, err)
		}
	}
	return m, nil
}

// jsonFault words an error of the JSON decoder for the author of a manifest. It names an
// unknown key, or the key and the kind of a value that the key does not take.
func jsonFault(err error) error {
	fault, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return err
	}
	key := string(fault.JSONPointer)
	switch {
	case errors.Is(err, json.ErrUnknownName):
		return fmt.Errorf("unknown key %q in %q: write it as docs/tools-from-files.md lists it, or remove it", fault.JSONPointer.LastToken(), key)
	case key == "":
		return fmt.Errorf("it is a JSON %s: write one object", kindName(fault.JSONKind))
	}
	return fmt.Errorf("%s: a JSON %s does not fit this key", key, kindName(fault.JSONKind))
}

// kindName returns the name of a kind of JSON value.
func kindName(k jsontext.Kind) string {
	switch k {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case '0':
		return "number"
	}
	return k.String() // null, true and false
}

// checkText checks the keys with text for a person or a model.
func (m *toolManifest) checkText() error {
	switch {
	case strings.TrimSpace(m.Description) == "":
		return errors.New("description: it is missing or blank")
	case m.InvalidInput != "" && strings.TrimSpace(m.InvalidInput) == "":
		return errors.New("invalid_input: it is blank")
	case len(m.Action) > maxAction || strings.ContainsFunc(m.Action, isSpaceOrControl) || strings.ContainsAny(m.Action, "*?"):
		return fmt.Errorf("action: it must have at most %d bytes, and no space, * or ?", maxAction)
	}
	return nil
}

// isSpaceOrControl reports whether a rune cannot be part of an action in a list of rules.
func isSpaceOrControl(r rune) bool { return r <= ' ' || r == 0x7f || r == '\u0085' || r == '\u00a0' }

// checkSchemas checks that the input is an object, and that title and text name fields. The
// schemas themselves are checked when the tool is made.
func (m *toolManifest) checkSchemas() error {
	input, err := fieldsOf(m.Input)
	switch {
	case len(m.Input) == 0:
		return errors.New("input: the schema is missing")
	case err != nil:
		return fmt.Errorf("input: %w", err)
	case input.Type != "object":
		return errors.New(`input: the schema must have "type": "object"`)
	case m.Title != "" && !input.has(m.Title):
		return fmt.Errorf("title: the input has no property %q", m.Title)
	}
	if m.Text == "" {
		return nil
	}
	output, err := fieldsOf(m.Output)
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	if !output.has(m.Text) {
		return fmt.Errorf("text: the output has no property %q", m.Text)
	}
	return nil
}

// schemaFields are the parts of a schema that name the fields of an object.
type schemaFields struct {
	Type       any                       `json:"type"`
	Properties map[string]jsontext.Value `json:"properties"`
}

// has reports whether the schema lists a property.
func (s schemaFields) has(property string) bool {
	_, ok := s.Properties[property]
	return ok
}

// fieldsOf returns the fields of a schema. It returns an error for a schema that is no
// object, and for properties that are no object. An absent schema has no fields.
func fieldsOf(schema jsontext.Value) (f schemaFields, err error) {
	if len(schema) == 0 {
		return f, nil
	}
	if schema.Kind() != '{' {
		return f, errors.New("the schema is no JSON object")
	}
	return f, json.Unmarshal(schema, &f)
}

// variableName is the grammar of the names in env.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkCommand checks command, files and env.
func (m *toolManifest) checkCommand() error {
	switch {
	case len(m.Command) == 0 || m.Command[0] == "":
		return errors.New("command: it names no program")
	case len(m.Command) > maxWords:
		return fmt.Errorf("command: it has more than %d words", maxWords)
	case slices.ContainsFunc(m.Command, func(w string) bool { return strings.ContainsRune(w, 0) }):
		return errors.New("command: a word has a NUL")
	}
	for i, word := range m.Command {
		if inFolder(i, word) {
			if err := checkPath(word); err != nil {
				return fmt.Errorf("command: %w", err)
			}
		}
	}
	for _, file := range m.Files {
		if err := checkPath(file); err != nil {
			return fmt.Errorf("files: %w", err)
		}
	}
	if n := len(m.paths()); n > maxFiles {
		return fmt.Errorf("files: the tool has %d files, and at most %d are allowed", n, maxFiles)
	}
	for _, name := range m.Env {
		if !variableName.MatchString(name) || strings.HasPrefix(name, "LEDGER_") {
			return fmt.Errorf("env: %q is no name of a variable that a tool can get", name)
		}
	}
	return nil
}

// inFolder reports whether a word of a command names a file in the folder of the
// manifest: a program with a relative path, or an argument that begins with "./".
func inFolder(i int, word string) bool {
	return strings.HasPrefix(word, "./") || strings.HasPrefix(word, "../") || i == 0 && strings.Contains(word, "/") && !path.IsAbs(word)
}

// checkPath returns an error for a path that leads out of the folder.
func checkPath(file string) error {
	clean := path.Clean(file)
	if file == "" || path.IsAbs(file) || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsRune(file, 0) {
		return fmt.Errorf("%q is no path of a file in the folder of the manifest", file)
	}
	return nil
}

// paths returns the cleaned paths of the files in the folder that belong to the tool, in
// order.
func (m *toolManifest) paths() []string {
	var all []string
	for i, word := range m.Command {
		if inFolder(i, word) {
			all = append(all, path.Clean(word))
		}
	}
	for _, file := range m.Files {
		all = append(all, path.Clean(file))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkTimeout parses timeout.
func (m *toolManifest) checkTimeout() error {
	m.timeout = defaultTimeout
	if m.Timeout == "" {
		return nil
	}
	var err error
	m.timeout, err = time.ParseDuration(m.Timeout)
	if err != nil || m.timeout < time.Millisecond || m.timeout > maxTimeout {
		return fmt.Errorf("timeout: %q is no duration from 1ms to %v, such as 30s", m.Timeout, maxTimeout)
	}
	return nil
}

// checkLimits checks the limits, and sets the absent ones.
func (m *toolManifest) checkLimits() error {
	for _, limit := range []struct {
		key            string
		value          *int
		standard, most int
	}{
		{"output", &m.Limits.Output, defaultLimits.Output, maxLimits.Output},
		{"line", &m.Limits.Line, defaultLimits.Line, maxLimits.Line},
		{"progress", &m.Limits.Progress, defaultLimits.Progress, maxLimits.Progress},
	} {
		if *limit.value == 0 {
			*limit.value = limit.standard
		}
		if *limit.value < 0 || *limit.value > limit.most {
			return fmt.Errorf("limits.%s: %d is not from 1 to %d", limit.key, *limit.value, limit.most)
		}
	}
	return nil
}

// checkAvailable checks the form of the needs in available.
func (m *toolManifest) checkAvailable() error {
	for i, where := range m.Available {
		for _, need := range where.Needs {
			if kind, name, ok := strings.Cut(need, ":"); !ok || kind == "" || name == "" {
				return fmt.Errorf("available[%d].needs: %q is not KIND:NAME, such as program:git", i, need)
			}
		}
	}
	return nil
}
