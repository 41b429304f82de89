package modelapi

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/runner"
)

// The ends of an attempt that are no reply. A provider returns them; Stream turns the
// first two into a *runner.ProviderError.
var (
	// ErrCut says that the stream ended before the end of the reply.
	ErrCut = errors.New("the stream ended before the end of the reply")
	// ErrProtocol says that a response does not follow the protocol of its server.
	ErrProtocol = errors.New("the response does not follow the protocol")
	// ErrStopped says that the reader of the parts wants no more of them.
	ErrStopped = errors.New("the reader of the reply stopped")
)

// A ReportedError is an error that the server reports: in a response with an error status,
// or within a stream.
type ReportedError struct {
	// Status is the HTTP status that the error names. Zero: it names none.
	Status int
	// Code is the code of the error, or else its type. It may be empty.
	Code string
	// Message is the text of the error. It may be empty.
	Message string
}

// Error returns the code and the message.
func (e *ReportedError) Error() string {
	switch {
	case e.Message == "" && e.Code == "":
		return "the server reports an error without a message"
	case e.Message == "":
		return e.Code
	case e.Code == "":
		return e.Message
	}
	return e.Code + ": " + e.Message
}

// ParseReported reads the error object of a server: {"code":…,"type":…,"message":…} or a
// string. A code may be a number, which is then the HTTP status.
func ParseReported(data json.RawMessage) *ReportedError {
	var text string
	if json.Unmarshal(data, &text) == nil {
		return &ReportedError{Message: text}
	}
	var e struct {
		Code    json.RawMessage `json:"code"`
		Type    string          `json:"type"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(data, &e) != nil {
		return &ReportedError{Message: Excerpt(data)}
	}
	reported := &ReportedError{Message: e.Message}
	if json.Unmarshal(e.Code, &reported.Code) != nil {
		reported.Code = string(e.Code)
	}
	if status, err := strconv.Atoi(reported.Code); err == nil && status >= 400 && status < 600 {
		reported.Status = status
	}
	if reported.Code == "" && e.Type != "error" {
		reported.Code = e.Type
	}
	return reported
}

// ReportedIn returns the error that a document {"error":…} reports, and whether it reports
// one.
func ReportedIn(document []byte) (*ReportedError, bool) {
	var d struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(document, &d) != nil || len(d.Error) == 0 || string(d.Error) == "null" {
		return nil, false
	}
	return ParseReported(d.Error), true
}

// maxExcerpt is the number of bytes of a response that an error text quotes.
const maxExcerpt = 200

// Excerpt returns the beginning of a response for an error text.
func Excerpt(data []byte) string { return cut(string(data), maxExcerpt) }

// cut returns the first bytes of a text as valid UTF-8.
func cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}

// maxMessage is the largest text of a failure in bytes.
const maxMessage = 4 << 10

// failure returns the *runner.ProviderError of a failed attempt, and whether a later
// attempt may succeed. It returns a *runner.IncompatibleError unchanged. response is nil if
// there was none.
func (c *Caller) failure(model string, response *http.Response, err error) (failed error, mayPass bool) {
	if _, ok := errors.AsType[*runner.IncompatibleError](err); ok {
		return err, false
	}
	p := &runner.ProviderError{Provider: c.provider, Model: model, Message: err.Error()}
	if response != nil {
		h := response.Header
		p.Status, p.RetryAfter = response.StatusCode, retryAfter(h)
		p.Request = cut(c.secrets.Redact(strings.TrimSpace(h.Get("X-Request-Id")+" "+h.Get("Request-Id"))), maxExcerpt)
	}
	p.Failure, mayPass = kindOf(err, response)
	if u, ok := errors.AsType[*url.Error](err); ok {
		p.Message = u.Err.Error() // the text of the URL says no more than the provider
	}
	switch {
	case errors.Is(err, errStalled):
		p.Message += " (" + c.policy.Stall.String() + ")"
	case errors.Is(err, errSilent):
		p.Message += " (" + (silentStalls * c.policy.Stall).String() + ")"
	}
	p.Message = cut(c.secrets.Redact(p.Message), maxMessage)
	return p, mayPass
}

// kindOf returns the kind of the failure of an attempt, and whether it may pass.
func kindOf(err error, response *http.Response) (kind runner.FailureKind, mayPass bool) {
	if reported, ok := errors.AsType[*ReportedError](err); ok {
		kind := reported.kind(response)
		passes := kind == runner.RateLimited || kind == runner.Overloaded
		return kind, passes && !slices.Contains([]string{"insufficient_quota", "billing_error"}, reported.Code)
	}
	switch {
	case errors.Is(err, errStalled):
		return runner.StreamStalled, true
	case errors.Is(err, errSilent):
		return runner.StreamStalled, false
	case errors.Is(err, errRedirect):
		return runner.InvalidRequest, false
	case errors.Is(err, errTooLarge), errors.Is(err, ErrProtocol), errors.Is(err, bufio.ErrTooLong):
		return runner.StreamFailure, false
	case response != nil:
		return runner.StreamCut, true
	}
	return runner.ConnectionFailure, true
}

// kind returns the kind of a reported error from its status or that of the response, its
// code and its text. The servers report a full context with the status 400 and a text.
func (e *ReportedError) kind(response *http.Response) runner.FailureKind {
	status := e.Status
	if status == 0 && response != nil {
		status = response.StatusCode
	}
	switch text := strings.ToLower(e.Code + " " + e.Message); {
	case status == http.StatusRequestEntityTooLarge, containsAny(text, "context_length", "context length", "context window", "context size", "prompt is too long", "request_too_large"):
		return runner.ContextExceeded
	case status == http.StatusUnauthorized, status == http.StatusForbidden, containsAny(e.Code, "invalid_api_key", "authentication_error", "permission_error"):
		return runner.AuthenticationFailure
	case status == http.StatusTooManyRequests, containsAny(e.Code, "rate_limit", "insufficient_quota"):
		return runner.RateLimited
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout, status == http.StatusConflict, containsAny(e.Code, "server_error", "overloaded", "api_error", "timeout_error"):
		return runner.Overloaded
	case status >= http.StatusBadRequest, containsAny(e.Code, "invalid_request"):
		return runner.InvalidRequest
	}
	return runner.StreamFailure
}

// containsAny reports whether text contains one of the words.
func containsAny(text string, words ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
}

// retryAfter returns the time for which a server asks the client to wait: the header
// Retry-After-Ms in milliseconds, or Retry-After in seconds or as a date. Zero: it does not
// ask, or in an unknown form.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return duration(ms, time.Millisecond)
	}
	if seconds, err := strconv.ParseFloat(h.Get("Retry-After"), 64); err == nil {
		return duration(seconds, time.Second)
	}
	if date, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return max(time.Until(date), 0)
	}
	return 0
}

// duration returns a number of units between zero and a day.
func duration(n float64, unit time.Duration) time.Duration {
	if !(n > 0) { // also for a number that is none
		return 0
	}
	return time.Duration(min(n*float64(unit), float64(24*time.Hour)))
}

// maxErrorBody is the number of bytes of a response with an error that are read.
const maxErrorBody = 64 << 10

// NotAStream returns the error of a response that is one JSON document instead of a
// stream: the error that the document reports, or a ErrProtocol.
func NotAStream(body io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if err != nil {
		return err
	}
	if reported, ok := ReportedIn(data); ok {
		return reported
	}
	return fmt.Errorf("%w: it is a document of the type application/json: %s", ErrProtocol, Excerpt(data))
}

// SendError returns the error of a request that has no stream: a *ReportedError for a
// response with an error status, whose body the SDK has read and kept, and otherwise err.
// response is nil if there was none. The error of the SDK is not kept, because it has the
// headers of the request.
func SendError(response *http.Response, err error) error {
	if response == nil || response.StatusCode < http.StatusBadRequest {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err != nil {
		return err
	}
	if reported, ok := ReportedIn(data); ok {
		return reported
	}
	return &ReportedError{Message: cmp.Or(Excerpt(bytes.TrimSpace(data)), http.StatusText(response.StatusCode))}
}
