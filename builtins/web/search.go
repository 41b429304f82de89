package web

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed websearch.md
var websearchDescription string

//go:embed codesearch.md
var codesearchDescription string

// A SearchProvider answers searches. It is safe for concurrent use. Its results and its
// errors contain no credentials: the ledger records the results, and the model reads both.
type SearchProvider interface {
	// Name returns the name that results carry, such as exa.
	Name() string
	// SearchWeb returns the pages that fit a query as a text, or "" without a result.
	SearchWeb(context.Context, WebQuery) (string, error)
	// SearchCode returns code and explanations that fit a query as a text, or "" without a
	// result.
	SearchCode(context.Context, CodeQuery) (string, error)
}

// A WebQuery is the input of the tool websearch. Its numbers are set.
type WebQuery struct {
	Query         string `json:"query" jsonschema:"what to search for"`
	Results       int    `json:"numResults,omitempty" jsonschema:"how many pages; 8 where there is none"`
	LiveCrawl     string `json:"livecrawl,omitempty" jsonschema:"fallback or preferred; the provider decides where there is none"`
	Type          string `json:"type,omitempty" jsonschema:"auto, fast or deep; auto where there is none"`
	MaxCharacters int    `json:"contextMaxCharacters,omitempty" jsonschema:"about how many characters of text in all; 10000 where there is none"`
}

// A CodeQuery is the input of the tool codesearch. Its number is set.
type CodeQuery struct {
	Query  string `json:"query" jsonschema:"what to search for"`
	Tokens int    `json:"tokensNum,omitempty" jsonschema:"about how many tokens to return; 5000 where there is none"`
}

// The JSON schemas of the constraints on the queries.
const (
	websearchInput = `{"properties":{"query":{"minLength":1,"maxLength":2000,"pattern":"\\S"},"numResults":{"minimum":1,"maximum":20},` +
		`"livecrawl":{"enum":["fallback","preferred"]},"type":{"enum":["auto","fast","deep"]},"contextMaxCharacters":{"minimum":1,"maximum":50000}}}`
	codesearchInput = `{"properties":{"query":{"minLength":1,"maxLength":2000,"pattern":"\\S"},"tokensNum":{"minimum":1000,"maximum":50000}}}`
)

// withDefaults returns the query with its defaults.
func (q WebQuery) withDefaults() WebQuery {
	if q.Results == 0 {
		q.Results = 8
	}
	if q.Type == "" {
		q.Type = "auto"
	}
	if q.MaxCharacters == 0 {
		q.MaxCharacters = 10_000
	}
	return q
}

// withDefaults returns the query with its defaults.
func (q CodeQuery) withDefaults() CodeQuery {
	if q.Tokens == 0 {
		q.Tokens = 5000
	}
	return q
}

// searchTimeout is the time limit of a search.
const searchTimeout = 25 * time.Second

// noResults is the text that the model reads if a search finds nothing.
const noResults = "No search results found. Please try a different query."

// searchResult is the output of websearch and codesearch.
type searchResult struct {
	Provider string `json:"provider"`
	Text     string `json:"text"`
}

// A searchTool makes the tools websearch and codesearch.
type searchTool struct{ Config }

// websearch returns the domain.Tool of websearch.
func (s searchTool) websearch() (domain.Tool, error) {
	return makeSearch(s, "websearch", "search the web", websearchDescription, websearchInput,
		func(q WebQuery) (WebQuery, string) { return q.withDefaults(), q.Query }, SearchProvider.SearchWeb)
}

// codesearch returns the domain.Tool of codesearch.
func (s searchTool) codesearch() (domain.Tool, error) {
	return makeSearch(s, "codesearch", "search code", codesearchDescription, codesearchInput,
		func(q CodeQuery) (CodeQuery, string) { return q.withDefaults(), q.Query }, SearchProvider.SearchCode)
}

// makeSearch returns a search tool. fill returns an input with its defaults, and its query.
func makeSearch[Q any](s searchTool, action, purpose, description, schema string, fill func(Q) (Q, string), search func(SearchProvider, context.Context, Q) (string, error)) (domain.Tool, error) {
	return domain.Make(domain.Spec[Q, searchResult]{
		Description: description,
		Input:       domain.Constrained[Q](schema),
		AsksFirst:   true,
		Available:   searchAvailability(s.Search),
		Title: func(in Q) string {
			_, query := fill(in)
			return strings.Join(strings.Fields(query), " ")
		},
		Present: presentSearch[Q],
		Execute: func(ctx context.Context, in Q, inv domain.Invocation) (searchResult, error) {
			in, query := fill(in)
			if s.Search == nil {
				return searchResult{}, domain.Fail("Unable to %s for %s: no search provider is configured: set the environment variable EXA_API_KEY and start the program again", purpose, query)
			}
			if err := s.assertSearch(ctx, inv, action, query, in); err != nil {
				return searchResult{}, err
			}
			text, err := withSearchTimeout(ctx, func(ctx context.Context) (string, error) { return search(s.Search, ctx, in) })
			switch {
			case err == nil:
				return searchResult{s.Search.Name(), text}, nil
			case ctx.Err() != nil:
				return searchResult{}, context.Cause(ctx)
			}
			return searchResult{}, domain.Fail("Unable to %s for %s: %s", purpose, query, err)
		},
	})
}

// searchAvailability returns where the search tools are offered. With Exa, or without a
// provider, a machine must have a key for Exa. With the provider of an embedding program,
// the tools are offered everywhere.
func searchAvailability(p SearchProvider) domain.Availability {
	if _, ok := p.(*Exa); ok || p == nil {
		return domain.Availability{{Needs: []string{"env:" + ExaKeyVariable}}}
	}
	return nil
}

// assertSearch asks for permission for a query. The answer "always" allows every query.
func (s searchTool) assertSearch(ctx context.Context, inv domain.Invocation, action, query string, in any) error {
	metadata, err := json.Marshal(map[string]any{"provider": s.Search.Name(), "input": in})
	if err != nil {
		return err
	}
	return s.Permission.Assert(ctx, inv, permission.Ask{Action: action, Resources: []string{query}, Save: everyResource, Metadata: metadata})
}

// withSearchTimeout calls search with a context that ends after searchTimeout. After that
// it returns an error that says so.
func withSearchTimeout(ctx context.Context, search func(context.Context) (string, error)) (string, error) {
	over := fmt.Errorf("the provider did not answer within %v: try again later", searchTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, searchTimeout, over)
	defer cancel()
	text, err := search(ctx)
	if err != nil && errors.Is(context.Cause(ctx), over) {
		return "", over
	}
	return text, err
}

// presentSearch returns the text of the result, or noResults.
func presentSearch[Q any](_ Q, out domain.Encoded[searchResult]) []domain.Content {
	r, err := out.Value()
	if err != nil || strings.TrimSpace(r.Text) == "" {
		return []domain.Content{domain.Text(noResults)}
	}
	return []domain.Content{domain.Text(r.Text)}
}
