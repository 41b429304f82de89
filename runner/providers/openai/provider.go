package openai

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
	"github.com/settlement-ledger/ledger/runner/secrets"
)

// OfficialURL is the base URL of OpenAI.
const OfficialURL = "https://api.openai.com/v1"

// The errors of New. Callers match them with errors.Is.
var (
	// ErrNoKey says that a config has no key for a server that is not on this machine.
	ErrNoKey = errors.New("the key of an OpenAI-compatible server is not set")
	// ErrBadServer says that a config names a server or a format that does not exist.
	ErrBadServer = errors.New("invalid configuration of an OpenAI-compatible server")
)

// A WireFormat is one of the two formats of the API.
type WireFormat string

// The formats.
const (
	ChatCompletions WireFormat = "chat"
	Responses       WireFormat = "responses"
)

// A Config describes a server and the parameters of its requests.
type Config struct {
	// Name is the name of the provider in events and errors. Empty: openai.
	Name string
	// Model is the model of each request. Empty: that of the turn.
	Model string
	// APIKey is sent as a bearer token. It may be empty if the server is on a loopback
	// address.
	APIKey string
	// BaseURL is the URL to which the paths of the API are appended. It has the scheme
	// http or https and neither a query nor a user. Empty: OfficialURL.
	BaseURL string
	// API is the format. Empty: Responses for OfficialURL, and otherwise ChatCompletions.
	API WireFormat
	// MaxOutputTokens is the limit of a reply in tokens. Zero: that of the server.
	MaxOutputTokens int64
	// Temperature is the sampling temperature. Nil: that of the server.
	Temperature *float64
	// ReasoningEffort is sent to models with reasoning, as the server spells it. Empty:
	// that of the server.
	ReasoningEffort string
	// Windows has the limits of models by their names. They replace the known ones.
	Windows map[string]modelapi.ContextWindow
	// Policy says when a request is repeated and when its response has stalled.
	Policy modelapi.Policy
}

// A Provider sends turns to one server. New makes it. It is safe for concurrent use.
type Provider struct {
	config Config
	// official is set if the server is that of OpenAI.
	official bool
	caller   *modelapi.Caller
}

// New returns a Provider. It sends nothing. It returns ErrNoKey if the config has no key
// and the server is not on a loopback address, and ErrBadServer for an invalid base URL, an
// unknown format or a negative number of tokens.
func New(config Config) (*Provider, error) {
	config.Name, config.BaseURL = cmp.Or(config.Name, "openai"), cmp.Or(config.BaseURL, OfficialURL)
	host, err := modelapi.Host(config.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("%w: the base URL of %s %w", ErrBadServer, config.Name, err)
	}
	p := &Provider{official: host == "api.openai.com"}
	if config.API == "" {
		config.API = ChatCompletions
		if p.official {
			config.API = Responses
		}
	}
	switch {
	case config.API != ChatCompletions && config.API != Responses:
		return nil, fmt.Errorf("%w: the format %q of %s is neither %s nor %s", ErrBadServer, config.API, config.Name, ChatCompletions, Responses)
	case config.MaxOutputTokens < 0:
		return nil, fmt.Errorf("%w: %s has the limit of %d output tokens", ErrBadServer, config.Name, config.MaxOutputTokens)
	case config.APIKey == "" && !modelapi.Loopback(host):
		return nil, fmt.Errorf("%w: set the key of %s, or name a server on a loopback address", ErrNoKey, config.Name)
	}
	p.config, p.caller = config, modelapi.NewCaller(config.Name, config.Policy, secrets.New(config.APIKey))
	return p, nil
}

// NextModel returns the name of the provider and Config.Model.
func (p *Provider) NextModel(*conversation.State, string) (provider, model string) {
	return p.config.Name, p.config.Model
}

// ContextLimit returns the limits of a model in tokens: those of Config.Windows, or else
// the known ones. The tokens of the reply are at most Config.MaxOutputTokens.
func (p *Provider) ContextLimit(model string) (window, output int64) {
	limits, ok := p.config.Windows[model]
	if !ok {
		limits = lookUp(model).ContextWindow
	}
	if p.config.MaxOutputTokens > 0 && (limits.Output == 0 || p.config.MaxOutputTokens < limits.Output) {
		limits.Output = p.config.MaxOutputTokens
	}
	return limits.Window, limits.Output
}

// model returns the model of the request for a turn.
func (p *Provider) model(turn runner.Turn) string { return cmp.Or(p.config.Model, turn.Model) }

// Reply sends a turn and yields the parts of the reply, as runner.Provider documents. Its
// errors are a *runner.ProviderError, a *runner.IncompatibleError, or the cause with which
// ctx ended.
func (p *Provider) Reply(ctx context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	tools, choice, err := p.prepareTools(turn)
	if err != nil {
		return func(yield func(runner.Part, error) bool) { yield(nil, err) }
	}
	return p.caller.Stream(ctx, p.model(turn), func(ctx context.Context, attempt modelapi.Attempt) error {
		if p.config.API == ChatCompletions {
			return p.askChat(ctx, attempt, turn, tools, choice)
		}
		return p.askResponses(ctx, attempt, turn, tools, choice)
	})
}

// askChat makes one attempt in Chat Completions.
func (p *Provider) askChat(ctx context.Context, attempt modelapi.Attempt, turn runner.Turn, tools []preparedTool, choice toolChoice) error {
	params := p.chatParameters(p.model(turn), choice)
	params.Messages, params.Tools = chatMessages(turn), chatTools(tools)
	service := openai.NewChatCompletionService(p.options(attempt)...)
	return exchange(func(options ...option.RequestOption) error {
		_, err := service.New(ctx, params, options...)
		return err
	}, func(stream ssestream.Decoder) error { return readChat(stream, turn.Message, attempt.Emit) })
}

// askResponses makes one attempt in Responses. If the server cannot read a reasoning item,
// because another key or server made it, the attempt goes on without these items.
func (p *Provider) askResponses(ctx context.Context, attempt modelapi.Attempt, turn runner.Turn, tools []preparedTool, choice toolChoice) error {
	model := p.model(turn)
	params := p.responsesParameters(model, choice)
	params.Tools, params.Instructions = responsesTools(tools), optional(turn.System)
	service := responses.NewResponseService(p.options(attempt)...)
	ask := func(given func(events.ProviderItem) bool) error {
		params.Input.OfInputItemList = responsesInput(turn, given)
		return exchange(func(options ...option.RequestOption) error {
			_, err := service.New(ctx, params, options...)
			return err
		}, func(stream ssestream.Decoder) error { return readResponses(stream, p.config.Name, model, attempt.Emit) })
	}
	err := ask(func(item events.ProviderItem) bool { return item.Provider == p.config.Name && item.Model == model })
	if unreadableReasoning(err) {
		return ask(func(events.ProviderItem) bool { return false })
	}
	return err
}

// options returns the options of the SDK for one attempt. The SDK repeats no request.
func (p *Provider) options(attempt modelapi.Attempt) []option.RequestOption {
	options := []option.RequestOption{option.WithBaseURL(p.config.BaseURL), option.WithHTTPClient(attempt.Client), option.WithMaxRetries(0)}
	if p.config.APIKey != "" {
		options = append(options, option.WithAPIKey(p.config.APIKey))
	}
	return options
}

// exchange sends one request with send and reads its response with read.
func exchange(send func(...option.RequestOption) error, read func(ssestream.Decoder) error) error {
	var response, body *http.Response
	if err := send(option.WithResponseInto(&response), option.WithResponseBodyInto(&body)); err != nil {
		return modelapi.SendError(response, err)
	}
	defer body.Body.Close()
	if strings.HasPrefix(body.Header.Get("Content-Type"), "application/json") {
		return modelapi.NotAStream(body.Body)
	}
	return read(ssestream.NewDecoder(body))
}
