package agents

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
)

// The built-in agents.
const (
	// Build may do everything that the configured rules allow. A session without an
	// agent runs as Build.
	Build domain.AgentID = "build"
	// Plan reads, and writes only files in .ledger/plans.
	Plan domain.AgentID = "plan"
	// General is the subagent for a task without a special role.
	General domain.AgentID = "general"
)

// An AgentMode says whether a person, a task or both can choose an agent. The zero
// AgentMode is not valid.
type AgentMode uint8

// The modes.
const (
	// PrimaryMode is for an agent that a person may choose.
	PrimaryMode AgentMode = iota + 1
	// SubagentMode is for an agent that a task may choose.
	SubagentMode
	// AllModes is for an agent that both may choose.
	AllModes
)

// modeNames has the text of each mode.
var modeNames = []string{"", "primary", "subagent", "all"}

// String returns the text of the mode as agent files have it; "?N" for a value N
// outside the set.
func (m AgentMode) String() string {
	if m == 0 || int(m) >= len(modeNames) {
		return fmt.Sprintf("?%d", uint8(m))
	}
	return modeNames[m]
}

// MarshalText returns the text of String.
func (m AgentMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText accepts the texts of String. It returns a domain.ErrBadWord for any
// other text.
func (m *AgentMode) UnmarshalText(text []byte) error {
	i := slices.Index(modeNames[1:], string(text))
	if i < 0 {
		return fmt.Errorf("parse %q: %w: %q", text, domain.ErrBadWord, modeNames[1:])
	}
	*m = AgentMode(i + 1)
	return nil
}

// An Agent is one agent. The slices belong to the Set; the caller must not change them.
type Agent struct {
	Name        domain.AgentID
	Description string
	// Model is the requested model. Empty: the model of the session.
	Model string
	// Prompt is the system prompt. It may be empty.
	Prompt string
	Mode   AgentMode
	// Rules are the rules of the file after an implicit allow * *.
	Rules domain.Rules
	// Base are the rule sets of the replaced agent, if this agent keeps them. Nil: it
	// keeps no rule sets.
	Base domain.RuleSets
	// Tools are patterns of the names of the tools that the agent offers. Empty: all.
	Tools []string
	// Steps is the maximum number of replies to one prompt. Zero: no limit.
	Steps int
	// Source is the path of the file, or "built in".
	Source string
	// Digest is the SHA-256, in hexadecimal, of everything above but Source and the
	// sources of rules. It changes if and only if the agent changes.
	Digest string
}

// RuleSets returns Base and, as the last set, Rules. The configured rules are not among
// them.
func (a Agent) RuleSets() domain.RuleSets {
	return append(slices.Clone(a.Base), a.Rules)
}

// replacing returns the agent of a project file with the restrictions of the agent that it
// replaces: its rule sets, its list of tools if it has one, and its limit of steps if that
// is the lower one.
func (a Agent) replacing(replaced Agent) Agent {
	a.Base = replaced.RuleSets()
	if len(replaced.Tools) > 0 {
		a.Tools = replaced.Tools
	}
	if replaced.Steps > 0 && (a.Steps == 0 || a.Steps > replaced.Steps) {
		a.Steps = replaced.Steps
	}
	return a.withDigest()
}

// withDigest returns the agent with its Digest.
func (a Agent) withDigest() Agent {
	var rules []string
	for _, set := range a.RuleSets() {
		rules = append(rules, set.Digest())
	}
	fields, err := json.Marshal([]any{a.Name, a.Description, a.Model, a.Prompt, a.Mode, rules, a.Tools, a.Steps})
	if err != nil {
		panic(err) // the fields are texts and numbers
	}
	sum := sha256.Sum256(fields)
	a.Digest = hex.EncodeToString(sum[:])
	return a
}
