package runner

import (
	"fmt"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// A FailureKind is the kind of a failed request to a provider.
type FailureKind string

// The kinds of failed requests.
const (
	// AuthenticationFailure is a missing, invalid or unauthorized key.
	AuthenticationFailure FailureKind = "authentication"
	// InvalidRequest is a request that the provider refuses as it is.
	InvalidRequest FailureKind = "invalid_request"
	// ContextExceeded is a request with more tokens than the context of the model holds,
	// or more bytes than the provider takes.
	ContextExceeded FailureKind = events.FailureContextExceeded
	// RateLimited is a request over a limit of requests, tokens or money.
	RateLimited FailureKind = "rate_limited"
	// Overloaded is a failure of the provider, such as the status 500, 503 or 529.
	Overloaded FailureKind = "overloaded"
	// ConnectionFailure is a connection that was refused or reset, or a request without a
	// response.
	ConnectionFailure FailureKind = "connection"
	// StreamStalled is a response that sent no bytes for too long.
	StreamStalled FailureKind = "stalled"
	// StreamCut is a response that ended before its end.
	StreamCut FailureKind = "cut"
	// StreamFailure is an error that the provider reports within a response, or a
	// response that does not follow the protocol.
	StreamFailure FailureKind = "stream"
)

// A ProviderError is a failed request to a model. Its texts contain no secret.
type ProviderError struct {
	// Provider and Model name the server and the model of the request.
	Provider, Model string
	Failure         FailureKind
	// Status is the HTTP status. Zero: there was no response.
	Status int
	// Request is the ID that the server gave the request. It may be empty.
	Request string
	// RetryAfter is the time for which the server asked the client to wait. Zero: it did
	// not ask.
	RetryAfter time.Duration
	// Message is the error text.
	Message string
	// Cause is the error that Message describes. It may be nil.
	Cause error
}

// Error names the provider, the model, the failure, the status, the request and the
// message.
func (e *ProviderError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s", e.Provider, e.Model, e.Failure)
	if e.Status != 0 {
		fmt.Fprintf(&b, ", status %d", e.Status)
	}
	if e.Request != "" {
		fmt.Fprintf(&b, ", request %s", e.Request)
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, ", retry after %v", e.RetryAfter)
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	return b.String()
}

// Unwrap returns e.Cause.
func (e *ProviderError) Unwrap() error { return e.Cause }

// An IncompatibleError reports that a turn breaks a restriction of the model. Nothing was
// sent.
type IncompatibleError struct {
	// Provider and Model name the server and the model of the request.
	Provider, Model string
	// Tool is the name of the tool that breaks the restriction. Empty: the turn as a whole
	// does.
	Tool string
	// Rule is the restriction, such as "a tool name has at most 64 characters".
	Rule string
	// Detail is the part of the turn that breaks it. It may be empty.
	Detail string
}

// Error names the provider, the model, the tool, the rule and the detail.
func (e *IncompatibleError) Error() string {
	text := fmt.Sprintf("%s %s does not accept the request", e.Provider, e.Model)
	if e.Tool != "" {
		text = fmt.Sprintf("%s %s does not accept the tool %s", e.Provider, e.Model, e.Tool)
	}
	text += ": " + e.Rule
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}
