package anthropic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
	"github.com/settlement-ledger/ledger/runner/secrets"
)

// OfficialURL is the base URL of Anthropic.
const OfficialURL = "https://api.anthropic.com"

// The errors of New. Callers match them with errors.Is.
var (
	// ErrNoKey says that a config has no key for a server that is not on this machine.
	ErrNoKey = errors.New("the key of a server of the Messages API is not set")
	// ErrBadServer says that a config has an invalid base URL or limit.
	ErrBadServer = errors.New("invalid configuration of a server of the Messages API")
)

// A Config describes a server and the parameters of its requests.
type Config struct {
	// Name is the name of the provider in events and errors. Empty: anthropic.
	Name string
	// Model is the model of each request. Empty: that of the turn.
	Model string
	// APIKey is sent in the header X-Api-Key. It may be empty if the server is on a
	// loopback address.
	APIKey string
	// BaseURL is the URL to which v1/messages is appended. It has the scheme http or https
	// and neither a query nor a user. Empty: OfficialURL.
	BaseURL string
	// MaxOutputTokens is the limit of a reply in tokens. Zero: the known limit of the
	// model.
	MaxOutputTokens int64
	// Temperature is the sampling temperature, from 0 to 1, and 1 with thinking. Nil: that
	// of the server.
	Temperature *float64
	// ThinkingBudget is the number of tokens that the model may spend on thinking, of
	// those of the reply, at least 1024. A model that takes no budget then decides by
	// itself. Zero: the request does not mention thinking.
	ThinkingBudget int64
	// Windows has the limits of models by their names. They replace the known ones.
	Windows map[string]modelapi.ContextWindow
	// Policy says when a request is repeated and when its response has stalled.
	Policy modelapi.Policy
}

// A Provider sends turns to one server. New makes it. It is safe for concurrent use.
type Provider struct {
	config Config
	caller *modelapi.Caller
}

// minThinking is the smallest budget for thinking that the API takes.
const minThinking = 1024

// New returns a Provider. It sends nothing. It returns ErrNoKey if the config has no key
// and the server is not on a loopback address, and ErrBadServer for an invalid base URL or
// for a number of tokens or a temperature that the API does not take.
func New(config Config) (*Provider, error) {
	config.Name, config.BaseURL = cmp.Or(config.Name, "anthropic"), cmp.Or(config.BaseURL, OfficialURL)
	host, err := modelapi.Host(config.BaseURL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the base URL of %s %w", ErrBadServer, config.Name, err)
	case config.MaxOutputTokens < 0 || config.ThinkingBudget < 0:
		return nil, fmt.Errorf("%w: %s has a limit of %d output tokens and %d tokens for thinking", ErrBadServer, config.Name, config.MaxOutputTokens, config.ThinkingBudget)
	case config.MaxOutputTokens > 0 && config.ThinkingBudget >= config.MaxOutputTokens:
		return nil, fmt.Errorf("%w: the %d tokens for thinking of %s are not fewer than the %d of a reply", ErrBadServer, config.ThinkingBudget, config.Name, config.MaxOutputTokens)
	case config.ThinkingBudget > 0 && config.ThinkingBudget < minThinking:
		return nil, fmt.Errorf("%w: the %d tokens for thinking of %s are fewer than %d", ErrBadServer, config.ThinkingBudget, config.Name, minThinking)
	case config.Temperature != nil && !(*config.Temperature >= 0 && *config.Temperature <= 1):
		return nil, fmt.Errorf("%w: the temperature %v of %s is not between 0 and 1", ErrBadServer, *config.Temperature, config.Name)
	case config.Temperature != nil && *config.Temperature != 1 && config.ThinkingBudget > 0:
		return nil, fmt.Errorf("%w: the temperature %v of %s is not 1, and it thinks", ErrBadServer, *config.Temperature, config.Name)
	case config.APIKey == "" && !modelapi.Loopback(host):
		return nil, fmt.Errorf("%w: set the key of %s, or name a server on a loopback address", ErrNoKey, config.Name)
	}
	return &Provider{config, modelapi.NewCaller(config.Name, config.Policy, secrets.New(config.APIKey))}, nil
}

// NextModel returns the name of the provider and Config.Model.
func (p *Provider) NextModel(*conversation.State, string) (provider, model string) {
	return p.config.Name, p.config.Model
}

// ContextLimit returns the limits of a model in tokens: those of Config.Windows, or else
// the known ones. The tokens of the reply are those that a request asks for.
func (p *Provider) ContextLimit(model string) (window, output int64) {
	limits := p.limits(model)
	return limits.Window, limits.Output
}

// limits returns the limits of a model, with the number of tokens that a request asks for.
func (p *Provider) limits(model string) modelapi.ContextWindow {
	limits, ok := p.config.Windows[model]
	if !ok {
		limits = knownWindow(model)
	}
	limits.Output = cmp.Or(p.config.MaxOutputTokens, limits.Output, defaultOutput)
	if limits.Output <= p.config.ThinkingBudget {
		limits.Output = p.config.ThinkingBudget + defaultOutput
	}
	return limits
}

// defaultOutput is the limit of a reply in tokens for models that are not known.
const defaultOutput = 8192

// knownWindows has the limits of the models whose names begin with a prefix, the longer
// prefixes first. The source is the model overview of the public API documentation.
// Config.Windows has other limits where a program knows them.
var knownWindows = []struct {
	prefix string
	modelapi.ContextWindow
}{
	{"claude-3-7-sonnet", modelapi.ContextWindow{Window: 200_000, Output: 64_000}},
	{"claude-3-5", modelapi.ContextWindow{Window: 200_000, Output: 8_192}},
	{"claude-3-", modelapi.ContextWindow{Window: 200_000, Output: 4_096}},
	{"claude-opus-4-0", modelapi.ContextWindow{Window: 200_000, Output: 32_000}},
	{"claude-opus-4-1", modelapi.ContextWindow{Window: 200_000, Output: 32_000}},
	{"claude-opus-4-2", modelapi.ContextWindow{Window: 200_000, Output: 32_000}}, // dated names of Opus 4
	{"claude-", modelapi.ContextWindow{Window: 200_000, Output: 64_000}},
}

// knownWindow returns the limits of a model, or the zero ContextWindow.
func knownWindow(model string) modelapi.ContextWindow {
	name := baseName(model)
	for _, known := range knownWindows {
		if strings.HasPrefix(name, known.prefix) {
			return known.ContextWindow
		}
	}
	return modelapi.ContextWindow{}
}

// model returns the model of the request for a turn.
func (p *Provider) model(turn runner.Turn) string { return cmp.Or(p.config.Model, turn.Model) }

// Reply sends a turn and yields the parts of the reply, as runner.Provider documents. Its
// errors are a *runner.ProviderError, a *runner.IncompatibleError, or the cause with which
// ctx ended.
func (p *Provider) Reply(ctx context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	tools, err := p.prepareTools(turn)
	if err != nil {
		return func(yield func(runner.Part, error) bool) { yield(nil, err) }
	}
	return p.caller.Stream(ctx, p.model(turn), func(ctx context.Context, attempt modelapi.Attempt) error {
		return p.ask(ctx, attempt, turn, tools)
	})
}

// ask makes one attempt.
func (p *Provider) ask(ctx context.Context, attempt modelapi.Attempt, turn runner.Turn, tools []anthropic.ToolUnionParam) error {
	messages := p.messages(turn)
	params := p.parameters(turn, messages)
	params.System, params.Messages, params.Tools = systemPrompt(turn), messages, tools
	options := []option.RequestOption{option.WithBaseURL(p.config.BaseURL), option.WithHTTPClient(attempt.Client), option.WithMaxRetries(0)}
	if p.config.APIKey != "" {
		options = append(options, option.WithAPIKey(p.config.APIKey))
	}
	var response, body *http.Response
	options = append(options, option.WithResponseInto(&response), option.WithResponseBodyInto(&body))
	service := anthropic.NewMessageService(options...)
	if err := service.NewStreaming(ctx, params).Err(); err != nil {
		return modelapi.SendError(response, err)
	}
	defer body.Body.Close()
	if strings.HasPrefix(body.Header.Get("Content-Type"), "application/json") {
		return modelapi.NotAStream(body.Body)
	}
	r := &replyReader{provider: p.config.Name, model: p.model(turn), emit: attempt.Emit}
	return r.read(ssestream.NewDecoder(body))
}
