package models

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
)

// FileName is the name of the configuration file in the configuration folder of the user.
const FileName = "models.toml"

// The kinds of providers.
const (
	anthropicKind = "anthropic"
	openaiKind    = "openai"
)

// A modelsFile is the configuration file.
type modelsFile struct {
	Providers map[string]providerSettings `toml:"providers"`
}

// A providerSettings is a table [providers.NAME] of the file.
type providerSettings struct {
	// Kind is anthropic or openai.
	Kind    string `toml:"kind"`
	BaseURL string `toml:"base_url"`
	// KeyVariable names the environment variable with the key.
	KeyVariable string `toml:"key_env"`
	// API is chat or responses, for the kind openai.
	API             string   `toml:"api"`
	MaxOutputTokens int64    `toml:"max_output_tokens"`
	Temperature     *float64 `toml:"temperature"`
	ThinkingBudget  int64    `toml:"thinking_budget"`
	ReasoningEffort string   `toml:"reasoning_effort"`
	// Attempts, MaxWait and StallTimeout are those of modelapi.Policy. Zero: its defaults.
	Attempts     int                      `toml:"attempts"`
	MaxWait      time.Duration            `toml:"max_wait"`
	StallTimeout time.Duration            `toml:"stall_timeout"`
	Models       map[string]modelSettings `toml:"models"`
}

// A modelSettings is a table [providers.NAME.models."MODEL"] of the file: the limits of a
// model in tokens.
type modelSettings struct {
	Window int64 `toml:"window"`
	Output int64 `toml:"output"`
}

// policy says when requests are repeated.
func (s providerSettings) policy() modelapi.Policy {
	return modelapi.Policy{Attempts: s.Attempts, MaxWait: s.MaxWait, Stall: s.StallTimeout}
}

// windows returns the limits of the models.
func (s providerSettings) windows() map[string]modelapi.ContextWindow {
	windows := map[string]modelapi.ContextWindow{}
	for name, m := range s.Models {
		windows[name] = modelapi.ContextWindow{Window: m.Window, Output: m.Output}
	}
	return windows
}

// knownProviders are the providers that need no file.
func knownProviders(getenv func(string) string) map[string]providerSettings {
	return map[string]providerSettings{
		"anthropic": {Kind: anthropicKind, KeyVariable: "ANTHROPIC_API_KEY", BaseURL: getenv("ANTHROPIC_BASE_URL")},
		"openai":    {Kind: openaiKind, KeyVariable: "OPENAI_API_KEY", BaseURL: getenv("OPENAI_BASE_URL")},
	}
}

// loadProviders returns the providers by name: those of the file in folder, which may be
// absent, and the known ones. A table of a known provider replaces the fields that it sets.
func loadProviders(folder string, getenv func(string) string) (map[string]providerSettings, error) {
	all := knownProviders(getenv)
	if folder == "" {
		return all, nil
	}
	path := filepath.Join(folder, FileName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	var file modelsFile
	read, err := toml.Decode(string(text), &file)
	if err != nil {
		return nil, badFile(path, "%v", err)
	}
	if unknown := read.Undecoded(); len(unknown) > 0 {
		return nil, badFile(path, "the key %s is not known", unknown[0])
	}
	for _, name := range slices.Sorted(maps.Keys(file.Providers)) {
		s := file.Providers[name]
		known := all[name]
		s.Kind, s.BaseURL, s.KeyVariable = cmp.Or(s.Kind, known.Kind), cmp.Or(s.BaseURL, known.BaseURL), cmp.Or(s.KeyVariable, known.KeyVariable)
		all[name] = s
		switch {
		case name == "" || strings.Contains(name, "/"):
			return nil, badFile(path, "the name of the provider %q is empty or contains a slash", name)
		case s.Kind != anthropicKind && s.Kind != openaiKind:
			return nil, badFile(path, "the provider %s has the kind %q: write kind = %q or %q", name, s.Kind, anthropicKind, openaiKind)
		case s.Attempts < 0 || s.MaxWait < 0 || s.StallTimeout < 0:
			return nil, badFile(path, "the provider %s has negative attempts, max_wait or stall_timeout: leave them out for the defaults", name)
		case s.Kind == anthropicKind && (s.API != "" || s.ReasoningEffort != ""):
			return nil, badFile(path, "the provider %s has api or reasoning_effort, which only the kind %s has", name, openaiKind)
		case s.Kind == openaiKind && s.ThinkingBudget != 0:
			return nil, badFile(path, "the provider %s has thinking_budget, which only the kind %s has", name, anthropicKind)
		}
	}
	return all, nil
}

// badFile returns the fault of a configuration file that cannot be used.
func badFile(path, format string, args ...any) error {
	f := fault.Usage("%s: %s", path, fmt.Sprintf(format, args...))
	f.Hint = "docs/models.md describes the file"
	return f
}
