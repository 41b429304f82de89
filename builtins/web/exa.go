package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// ExaKeyVariable is the environment variable that has the key for Exa. This package does
// not read it.
const ExaKeyVariable = "EXA_API_KEY"

// ExaURL is the address of Exa's API.
const ExaURL = "https://api.exa.ai"

// maxSearchResponse is the maximum size of a response in bytes. Reading ends there.
const maxSearchResponse = 256 << 10

// An ExaConfig configures an Exa. Key is required.
type ExaConfig struct {
	Key string
	// BaseURL is the address of the API. Empty: ExaURL.
	BaseURL string
	// Client sends the requests. It follows no redirects, which would send the key to
	// another host. Nil: http.DefaultClient, which uses a proxy of the environment.
	Client *http.Client
}

// An Exa is the SearchProvider of the service exa.ai. It is safe for concurrent use. It
// prints as its name, so that its key does not get into a log.
type Exa struct {
	key, base string
	client    *http.Client
}

// NewExa returns an Exa. It returns an ErrBadConfig, without the value, for a field that
// is missing or invalid.
func NewExa(c ExaConfig) (*Exa, error) {
	if c.Key == "" || strings.ContainsFunc(c.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("make Exa: %w: Key is empty or holds a character that no key has", ErrBadConfig)
	}
	base, err := url.Parse(cmp.Or(c.BaseURL, ExaURL))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("make Exa: %w: BaseURL is not an http or https URL without credentials and query", ErrBadConfig)
	}
	client := *cmp.Or(c.Client, http.DefaultClient)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Exa{c.Key, strings.TrimSuffix(base.String(), "/"), &client}, nil
}

// Name returns exa.
func (*Exa) Name() string { return "exa" }

// String returns exa.
func (e *Exa) String() string { return e.Name() }

// GoString returns exa.
func (e *Exa) GoString() string { return e.Name() }

// An exaSearch is the body of a request for POST /search.
type exaSearch struct {
	Query      string      `json:"query"`
	Type       string      `json:"type"`
	NumResults int         `json:"numResults"`
	Contents   exaContents `json:"contents"`
}

// exaContents says which content of the found pages a response has.
type exaContents struct {
	Text      exaText `json:"text"`
	LiveCrawl string  `json:"livecrawl,omitempty"`
}

// exaText limits the text of each page.
type exaText struct {
	MaxCharacters int `json:"maxCharacters"`
}

// An exaPage is a result in a response of POST /search.
type exaPage struct {
	Title         string `json:"title"`
	URL           string `json:"url"`
	PublishedDate string `json:"publishedDate"`
	Author        string `json:"author"`
	Text          string `json:"text"`
}

// SearchWeb sends POST /search. It divides MaxCharacters among the pages.
func (e *Exa) SearchWeb(ctx context.Context, q WebQuery) (string, error) {
	request := exaSearch{Query: q.Query, Type: q.Type, NumResults: q.Results,
		Contents: exaContents{exaText{max(q.MaxCharacters/max(q.Results, 1), 1)}, q.LiveCrawl}}
	var response struct {
		Results []exaPage `json:"results"`
	}
	if err := e.post(ctx, "/search", request, &response); err != nil {
		return "", err
	}
	var pages []string
	for _, p := range response.Results {
		pages = append(pages, p.text())
	}
	return e.redact(strings.Join(pages, "\n\n")), nil
}

// text returns the fields of a page, each with its name.
func (p exaPage) text() string {
	var b strings.Builder
	for _, field := range [][2]string{{"Title", p.Title}, {"URL", p.URL}, {"Published", p.PublishedDate}, {"Author", p.Author}} {
		if field[1] != "" {
			fmt.Fprintf(&b, "%s: %s\n", field[0], strings.Join(strings.Fields(field[1]), " "))
		}
	}
	return b.String() + strings.TrimSpace(p.Text)
}

// SearchCode sends POST /context.
func (e *Exa) SearchCode(ctx context.Context, q CodeQuery) (string, error) {
	request := map[string]any{"query": q.Query, "tokensNum": q.Tokens}
	var response struct {
		Response string `json:"response"`
	}
	if err := e.post(ctx, "/context", request, &response); err != nil {
		return "", err
	}
	return e.redact(response.Response), nil
}

// post sends a request and decodes the response, unknown fields of which are ignored. Its
// errors contain neither the key nor the address.
func (e *Exa) post(ctx context.Context, path string, body, response any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.base+path, bytes.NewReader(data))
	if err != nil {
		return errors.New("the address of the search provider is invalid")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("X-Api-Key", e.key)
	got, err := e.client.Do(request)
	if err != nil {
		return e.redactError(err)
	}
	defer got.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(got.Body, maxSearchResponse+1))
	switch {
	case err != nil:
		return e.redactError(err)
	case len(answer) > maxSearchResponse:
		return fmt.Errorf("the response is larger than %d KiB: ask for less", maxSearchResponse>>10)
	case got.StatusCode != http.StatusOK:
		return e.statusError(got.StatusCode, answer)
	case len(bytes.TrimSpace(answer)) == 0:
		return nil // no results
	}
	if err := json.Unmarshal(answer, response); err != nil {
		return errors.New("the response is not the JSON that the interface promises")
	}
	return nil
}

// maxReason is how many bytes of the provider's own error text are repeated.
const maxReason = 300

// statusError returns the error for a status other than 200, with the reason that the
// provider gives in the field error.
func (e *Exa) statusError(status int, answer []byte) error {
	advice := map[int]string{
		http.StatusUnauthorized: ": check " + ExaKeyVariable, http.StatusForbidden: ": check " + ExaKeyVariable,
		http.StatusPaymentRequired: ": the account has no credit left", http.StatusTooManyRequests: ": too many requests, try again later",
	}[status]
	var reason struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(answer, &reason) == nil && reason.Error != "" {
		text := e.redact(reason.Error)
		advice += ": " + strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
	}
	return fmt.Errorf("the search provider answered with status %d %s%s", status, http.StatusText(status), advice)
}

// redactError returns the cause of an error of the client without the address and the key.
func (e *Exa) redactError(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	return errors.New("reach the search provider: " + e.redact(err.Error()))
}

// redact replaces the key in a text, in case that the provider repeats it.
func (e *Exa) redact(text string) string {
	for _, form := range []string{e.key, url.QueryEscape(e.key), url.PathEscape(e.key)} {
		text = strings.ReplaceAll(text, form, "[key]")
	}
	return text
}
