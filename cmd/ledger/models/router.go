package models

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/anthropic"
	"github.com/settlement-ledger/ledger/runner/providers/openai"
)

// A Config names the model of a session and the sources of its provider's settings.
type Config struct {
	// Model is PROVIDER/MODEL.
	Model string
	// BaseURL and API replace those of the provider of Model. Empty: they stay.
	BaseURL, API string
	// Folder is the configuration folder of the user. Empty: there is none.
	Folder string
	// Getenv returns a variable of the environment, or "".
	Getenv func(string) string
}

// modelProvider is the part of the providers that a Router uses.
type modelProvider interface {
	runner.RequestPreparer
	runner.ContextLimiter
}

// A Router sends each turn to the provider that the model of the turn names. New makes it.
// It is safe for concurrent use.
type Router struct {
	config    Config
	providers map[string]providerSettings

	mu   sync.Mutex
	made map[string]modelProvider
}

// New returns a Router. It sends nothing. It returns a usage fault for a file, a model or a
// provider that cannot be used.
func New(config Config) (*Router, error) {
	providers, err := loadProviders(config.Folder, config.Getenv)
	if err != nil {
		return nil, err
	}
	r := &Router{config: config, providers: providers, made: map[string]modelProvider{}}
	name, _, _ := strings.Cut(config.Model, "/")
	if s, ok := providers[name]; ok {
		s.BaseURL, s.API = cmp.Or(config.BaseURL, s.BaseURL), cmp.Or(config.API, s.API)
		providers[name] = s
		if config.API != "" && s.Kind != openaiKind {
			return nil, fault.Usage("--api is for providers of the kind %s, and %s is of the kind %s", openaiKind, name, s.Kind)
		}
	}
	if _, _, err := r.provider(config.Model); err != nil {
		return nil, err
	}
	return r, nil
}

// provider returns the provider that a model names, and the name of the model at that
// provider.
func (r *Router) provider(model string) (modelProvider, string, error) {
	name, rest, _ := strings.Cut(model, "/")
	s, ok := r.providers[name]
	if !ok || rest == "" {
		f := fault.Usage("the model %q names no provider: write PROVIDER/MODEL, with one of the providers %s", model, strings.Join(slices.Sorted(maps.Keys(r.providers)), ", "))
		f.Hint = "docs/models.md describes how to add a provider"
		return nil, "", f
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, ok := r.made[name]; ok {
		return p, rest, nil
	}
	p, err := r.newProvider(name, s)
	if err != nil {
		return nil, "", err
	}
	r.made[name] = p
	return p, rest, nil
}

// newProvider makes a provider from its settings.
func (r *Router) newProvider(name string, s providerSettings) (modelProvider, error) {
	key := ""
	if s.KeyVariable != "" {
		key = r.config.Getenv(s.KeyVariable)
	}
	var p modelProvider
	var err error
	if s.Kind == anthropicKind {
		p, err = anthropic.New(anthropic.Config{
			Name: name, APIKey: key, BaseURL: s.BaseURL, MaxOutputTokens: s.MaxOutputTokens, Temperature: s.Temperature,
			ThinkingBudget: s.ThinkingBudget, Windows: s.windows(), Policy: s.policy(),
		})
	} else {
		p, err = openai.New(openai.Config{
			Name: name, APIKey: key, BaseURL: s.BaseURL, API: openai.WireFormat(s.API), MaxOutputTokens: s.MaxOutputTokens, Temperature: s.Temperature,
			ReasoningEffort: s.ReasoningEffort, Windows: s.windows(), Policy: s.policy(),
		})
	}
	if err == nil {
		return p, nil
	}
	f := fault.Usage("%w", err)
	if errors.Is(err, anthropic.ErrNoKey) || errors.Is(err, openai.ErrNoKey) {
		f.Hint = "set the environment variable " + s.KeyVariable
		if s.KeyVariable == "" {
			f.Hint = "set key_env of the provider in " + FileName + " to the name of a variable with the key"
		}
	}
	return nil, f
}

// NextModel returns the provider and the model of the next reply: that of the agent, else
// Config.Model.
func (r *Router) NextModel(_ *conversation.State, agentModel string) (provider, model string) {
	model = cmp.Or(agentModel, r.config.Model)
	provider, _, _ = strings.Cut(model, "/")
	return provider, model
}

// PrepareRequest implements runner.RequestPreparer.
func (r *Router) PrepareRequest(turn runner.Turn) (runner.RequestRecord, error) {
	p, model, err := r.provider(turn.Model)
	if err != nil {
		return runner.RequestRecord{}, err
	}
	turn.Model = model
	return p.PrepareRequest(turn)
}

// ContextLimit implements runner.ContextLimiter. The limits of a model without a provider
// are not known.
func (r *Router) ContextLimit(model string) (window, output int64) {
	p, name, err := r.provider(model)
	if err != nil {
		return 0, 0
	}
	return p.ContextLimit(name)
}

// Reply implements runner.Provider.
func (r *Router) Reply(ctx context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	p, model, err := r.provider(turn.Model)
	if err != nil {
		return func(yield func(runner.Part, error) bool) { yield(nil, err) }
	}
	turn.Model = model
	return p.Reply(ctx, turn)
}
