package agents

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/settlement-ledger/ledger/builtins/frontmatter"
	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// Limits of the keys of an agent file.
const (
	// maxDescription is the maximum length of a description in bytes. The description
	// of the tool task lists the descriptions of all subagents.
	maxDescription = 1024
	// maxModel is the maximum length of the name of a model in bytes.
	maxModel = 256
	// maxSteps is the maximum value of the key steps.
	maxSteps = 1_000_000
)

// An agentHeader is the front matter of an agent file.
type agentHeader struct {
	Description frontmatter.Value[string]                      `yaml:"description"`
	Model       frontmatter.Value[string]                      `yaml:"model"`
	Mode        frontmatter.Value[string]                      `yaml:"mode"`
	Rules       frontmatter.Value[[]frontmatter.Value[string]] `yaml:"rules"`
	Tools       frontmatter.Value[[]frontmatter.Value[string]] `yaml:"tools"`
	Steps       frontmatter.Value[int]                         `yaml:"steps"`
}

// Parse returns the agent of a file. The path is the source of the agent and of its
// rules. Parse returns a frontmatter.ErrInvalid that names the path, the line, the key
// and the correction, or a permission.ErrBadRule for a rule.
func Parse(name domain.AgentID, path string, data []byte) (Agent, error) {
	if err := frontmatter.CheckName(string(name)); err != nil {
		return Agent{}, fmt.Errorf("%s: %w", path, err)
	}
	h := agentHeader{}
	prompt, err := frontmatter.Parse(path, data, &h)
	if err != nil {
		return Agent{}, err
	}
	a := Agent{Name: name, Description: strings.TrimSpace(h.Description.V), Model: h.Model.V, Prompt: prompt, Steps: h.Steps.V, Source: path}
	if err := h.checkTexts(path); err != nil {
		return Agent{}, err
	}
	if a.Mode, err = h.mode(path); err != nil {
		return Agent{}, err
	}
	if a.Rules, err = h.rules(name, path); err != nil {
		return Agent{}, err
	}
	if a.Tools, err = h.tools(path); err != nil {
		return Agent{}, err
	}
	return a.withDigest(), nil
}

// checkTexts checks description, model and steps.
func (h agentHeader) checkTexts(path string) error {
	d, m, s := h.Description, h.Model, h.Steps
	switch {
	case strings.TrimSpace(d.V) == "":
		return frontmatter.Fault(path, max(d.Line, 1), "description", "there is no description: say in one sentence when to use the agent")
	case len(d.V) > maxDescription:
		return frontmatter.Fault(path, d.Line, "description", "it is longer than %d bytes: shorten it, and write details into the body", maxDescription)
	case !printable(d.V):
		return frontmatter.Fault(path, d.Line, "description", "it has a control character: remove it")
	case m.Line > 0 && (m.V == "" || len(m.V) > maxModel || strings.ContainsAny(m.V, " \t\r\n") || !printable(m.V)):
		return frontmatter.Fault(path, m.Line, "model", "it is not the name of a model: write one word of up to %d bytes, or remove the key", maxModel)
	case s.Line > 0 && (s.V < 1 || s.V > maxSteps):
		return frontmatter.Fault(path, s.Line, "steps", "it is %d: write a number from 1 to %d, or remove the key", s.V, maxSteps)
	}
	return nil
}

// printable reports whether a text is UTF-8 and has no control character other than
// line ends and tabs. A YAML text can have any bytes, by an escape or a binary value.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r == unicode.ReplacementChar || unicode.IsControl(r) && r != '\n' && r != '\t'
	})
}

// mode returns the mode. Without the key it is AllModes.
func (h agentHeader) mode(path string) (AgentMode, error) {
	if h.Mode.Line == 0 {
		return AllModes, nil
	}
	var mode AgentMode
	if err := mode.UnmarshalText([]byte(h.Mode.V)); err != nil {
		return 0, frontmatter.Fault(path, h.Mode.Line, "mode", "%q is not primary, subagent or all", h.Mode.V)
	}
	return mode, nil
}

// rules returns the rules of the file after an implicit allow * *.
func (h agentHeader) rules(name domain.AgentID, path string) (domain.Rules, error) {
	rules := domain.Rules{{Action: "*", Resource: "*", Effect: domain.Allow, Source: "agent " + string(name) + ": default"}}
	var errs []error
	for _, entry := range h.Rules.V {
		place := fmt.Sprintf("%s:%d", path, entry.Line)
		parsed, err := permission.ParseRules(place, strings.NewReader(entry.V))
		if err == nil && len(parsed) != 1 {
			err = frontmatter.Fault(path, entry.Line, "rules", "an entry has %d rules: write one rule in each entry, as in: - deny bash rm *", len(parsed))
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		parsed[0].Source = place
		rules = append(rules, parsed[0])
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return rules, nil
}

// tools returns the patterns of tool names, or nil without the key.
func (h agentHeader) tools(path string) ([]string, error) {
	if h.Tools.Line > 0 && len(h.Tools.V) == 0 {
		return nil, frontmatter.Fault(path, h.Tools.Line, "tools", `the list is empty: remove the key to offer all tools, or write "!*" to offer none`)
	}
	var patterns []string
	for _, p := range h.Tools.V {
		if !isToolPattern(p.V) {
			return nil, frontmatter.Fault(path, p.Line, "tools", `%q is not a pattern of tool names: write letters, digits, _, -, * and ?, after ! to exclude, in double quotes`, p.V)
		}
		patterns = append(patterns, p.V)
	}
	return patterns, nil
}

// isToolPattern reports whether a text can match the name of a tool.
func isToolPattern(text string) bool {
	text = strings.TrimPrefix(text, "!")
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-*?", r)
	})
}
