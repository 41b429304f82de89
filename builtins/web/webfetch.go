package web

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed webfetch.md
var webfetchDescription string

// A pageFormat is a form in which webfetch returns a page.
type pageFormat string

// The page formats.
const (
	formatMarkdown pageFormat = "markdown"
	formatText     pageFormat = "text"
	formatHTML     pageFormat = "html"
)

// fetchArgs is the input of the tool webfetch.
type fetchArgs struct {
	URL     string     `json:"url" jsonschema:"the address of the page: http:// or https://"`
	Format  pageFormat `json:"format,omitempty" jsonschema:"markdown, text or html; markdown where there is none"`
	Timeout float64    `json:"timeout,omitempty" jsonschema:"seconds after which the fetch is ended; 30 where there is none"`
}

// fetchInput is the JSON schema of the constraints on fetchArgs.
const fetchInput = `{"properties":{"url":{"minLength":1,"maxLength":8192},"format":{"enum":["markdown","text","html"]},"timeout":{"exclusiveMinimum":0,"maximum":120}}}`

// defaultFetchTimeout is the timeout of a fetch without one, in seconds.
const defaultFetchTimeout = 30

// withDefaults returns the input with its defaults.
func (a fetchArgs) withDefaults() fetchArgs {
	if a.Format == "" {
		a.Format = formatMarkdown
	}
	if a.Timeout == 0 {
		a.Timeout = defaultFetchTimeout
	}
	return a
}

// fetchResult is the output of the tool webfetch.
type fetchResult struct {
	URL         string     `json:"url"`                // in canonical form
	FinalURL    string     `json:"finalURL,omitempty"` // the URL after redirects; empty if there were none
	ContentType string     `json:"contentType"`        // without parameters, such as text/html
	Format      pageFormat `json:"format"`
	Output      string     `json:"output"`
}

// A webfetchTool is the tool webfetch.
type webfetchTool struct {
	Config
	markdown *converter.Converter
}

// tool returns the domain.Tool of webfetch.
func (w webfetchTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[fetchArgs, fetchResult]{
		Description: webfetchDescription,
		Input:       domain.Constrained[fetchArgs](fetchInput),
		Execute:     w.run,
		Present:     presentFetch,
		AsksFirst:   true,
		Title:       func(in fetchArgs) string { return withoutCredentials(in.URL) },
	})
}

// presentFetch returns the page alone: the model knows its URL.
func presentFetch(_ fetchArgs, out domain.Encoded[fetchResult]) []domain.Content {
	r, err := out.Value()
	if err != nil || r.Output == "" {
		return []domain.Content{domain.Text("(the page has no text)")}
	}
	return []domain.Content{domain.Text(r.Output)}
}

// run executes one call. It checks the URL, asks for permission for the URL and for the
// private addresses of its host, and fetches. The time in which a person decides does not
// count for the timeout. run returns a *domain.Failure with the reason, or an error of the
// Evaluator unchanged.
func (w webfetchTool) run(ctx context.Context, in fetchArgs, inv domain.Invocation) (fetchResult, error) {
	result, err := w.fetch(ctx, in.withDefaults(), inv)
	switch {
	case err == nil:
		return result, nil
	case errors.Is(err, domain.ErrDenied) || errors.Is(err, domain.ErrDeclined):
		return fetchResult{}, err
	case ctx.Err() != nil:
		return fetchResult{}, context.Cause(ctx)
	}
	if asking, ok := errors.AsType[*askError](err); ok {
		return fetchResult{}, asking.error
	}
	return fetchResult{}, domain.Fail("Unable to fetch %s: %s", withoutCredentials(in.URL), err)
}

// An askError wraps an operational error of the Evaluator, so that run can return the
// error unchanged.
type askError struct{ error }

// ask asserts a permission. It wraps an operational error of the Evaluator in an askError.
func (c Config) ask(ctx context.Context, inv domain.Invocation, a permission.Ask) error {
	err := c.Permission.Assert(ctx, inv, a)
	if err == nil || errors.Is(err, domain.ErrDenied) || errors.Is(err, domain.ErrDeclined) {
		return err
	}
	return &askError{err}
}

// fetch does the work of run, but does not turn its errors into failures.
func (w webfetchTool) fetch(ctx context.Context, in fetchArgs, inv domain.Invocation) (fetchResult, error) {
	target, err := parseTarget(in.URL)
	if err != nil {
		return fetchResult{}, err
	}
	if err := w.ask(ctx, inv, fetchAsk(target, in)); err != nil {
		return fetchResult{}, err
	}
	limit := timeLimit{left: time.Duration(in.Timeout * float64(time.Second)), whole: in.Timeout}
	var addresses []pinnedAddress
	if err := limit.run(ctx, func(ctx context.Context) (err error) {
		addresses, err = w.resolve(ctx, target)
		return err
	}); err != nil {
		return fetchResult{}, err
	}
	if ask, private := privateAsk(target, addresses); private {
		if err := w.ask(ctx, inv, ask); err != nil {
			return fetchResult{}, err
		}
	}
	result := fetchResult{URL: target.String(), Format: in.Format}
	err = limit.run(ctx, func(ctx context.Context) error {
		return w.fillResult(ctx, inv, &result, hop{target, addresses})
	})
	return result, err
}

// fetchAsk returns the request for a URL. The answer "always" allows every URL.
func fetchAsk(t webTarget, in fetchArgs) permission.Ask {
	url := t.String()
	metadata, err := json.Marshal(map[string]any{"url": url, "format": in.Format, "timeout": in.Timeout})
	if err != nil {
		panic(err) // the values are strings and a finite number
	}
	return permission.Ask{Action: "webfetch", Resources: []string{url}, Save: everyResource, Metadata: metadata,
		Spellings: map[string][]string{url: t.spellings(in.URL)}}
}

// fillResult fetches the page of a hop and converts it.
func (w webfetchTool) fillResult(ctx context.Context, inv domain.Invocation, result *fetchResult, first hop) error {
	got, err := w.follow(ctx, inv, first, result.Format)
	if err != nil {
		return err
	}
	if final := got.target.String(); final != result.URL {
		result.FinalURL = final
	}
	result.ContentType = got.contentType
	result.Output, err = w.convert(ctx, got, result.Format)
	return err
}

// A timeLimit is the time that a fetch may take in all, over several steps.
type timeLimit struct {
	left  time.Duration
	whole float64 // seconds, for the error text
}

// run calls step with a context that ends when the time is over, and subtracts the time
// that it took. If the time is over, run returns an error that says so.
func (l *timeLimit) run(ctx context.Context, step func(context.Context) error) error {
	over := fmt.Errorf("the time limit of %g s is over: give a longer timeout, 120 at most", l.whole)
	started := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, l.left, over)
	defer cancel()
	err := step(limited)
	l.left -= time.Since(started)
	if err != nil && context.Cause(limited) == over {
		return over
	}
	return err
}
