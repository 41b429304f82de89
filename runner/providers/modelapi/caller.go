package modelapi

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/secrets"
)

// A Policy says how often a request is repeated and when its response has stalled.
type Policy struct {
	// Attempts is the largest number of attempts. Zero: 4.
	Attempts int
	// Backoff is the wait before the second attempt. It doubles with each attempt, up to 8
	// seconds, and varies by a quarter. Zero: half a second.
	Backoff time.Duration
	// MaxWait is the longest time that the client waits if the server asks it to wait. If
	// the server asks for more, the request fails. Zero: one minute.
	MaxWait time.Duration
	// Stall is the time without a byte of the server after which an attempt ends. Zero:
	// five minutes. An attempt whose server sends bytes, but no part of the reply for
	// silentStalls of these times, ends too and is not repeated.
	Stall time.Duration
}

// silentStalls is the number of stall times for which a server may send bytes without a part
// of the reply. Models with reasoning, and those that write a long input of a call, take many
// minutes.
const silentStalls = 12

// maxBackoff is the longest wait that the server did not ask for.
const maxBackoff = 8 * time.Second

// withDefaults returns p with the defaults in place of zeros.
func (p Policy) withDefaults() Policy {
	if p.Attempts == 0 {
		p.Attempts = 4
	}
	if p.Backoff == 0 {
		p.Backoff = time.Second / 2
	}
	if p.MaxWait == 0 {
		p.MaxWait = time.Minute
	}
	if p.Stall == 0 {
		p.Stall = 5 * time.Minute
	}
	return p
}

// wait returns the time between attempt n, which failed, and the next one.
func (p Policy) wait(n int, asked time.Duration) time.Duration {
	if asked > 0 {
		return asked
	}
	backoff := min(p.Backoff<<min(n-1, 10), maxBackoff)
	return backoff - backoff/4 + rand.N(backoff/2+1)
}

// A Caller sends requests to one server.
type Caller struct {
	provider string
	policy   Policy
	secrets  *secrets.Set
}

// NewCaller returns a Caller for the server of a provider. Its errors name the provider.
// They and the parts of a reply contain none of the secrets.
func NewCaller(provider string, policy Policy, secrets *secrets.Set) *Caller {
	return &Caller{provider: provider, policy: policy.withDefaults(), secrets: secrets}
}

// An Attempt is one attempt at a request.
type Attempt struct {
	// Client sends the request of the attempt. The SDK must not repeat it.
	Client *http.Client
	// Emit passes on a part of the reply without secrets. The end of a text that may begin
	// a secret is passed on with a later part, or at the end of the attempt. Emit returns
	// false if the reader of the parts wants no more; the attempt then returns ErrStopped.
	Emit func(runner.Part) bool
}

// Stream yields the reply to one request to a model: the parts that run emits, behind a
// runner.FailedAttemptPart for each attempt that was repeated. run makes one attempt and
// returns nil at the end of the reply. Its context ends with ctx, or if the server stalls.
func (c *Caller) Stream(ctx context.Context, model string, run func(context.Context, Attempt) error) iter.Seq2[runner.Part, error] {
	return func(yield func(runner.Part, error) bool) {
		for n := 1; ; n++ {
			result := c.try(ctx, model, run, yield)
			if result.stopped || result.err == nil {
				return
			}
			failed, ok := errors.AsType[*runner.ProviderError](result.err)
			if !ok || result.begun || !result.mayPass || n >= c.policy.Attempts || failed.RetryAfter > c.policy.MaxWait {
				yield(nil, result.err)
				return
			}
			if !yield(runner.FailedAttemptPart{Attempt: n, Err: failed}, nil) {
				return
			}
			if err := sleep(ctx, c.policy.wait(n, failed.RetryAfter)); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// sleep waits for d. It returns the cause of ctx if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// An attemptResult is how an attempt ended.
type attemptResult struct {
	// err is nil at the end of the reply.
	err error
	// begun is set if the reply has a part.
	begun bool
	// stopped is set if the reader of the parts stopped.
	stopped bool
	// mayPass is set if a later attempt may succeed.
	mayPass bool
}

// try makes one attempt.
func (c *Caller) try(ctx context.Context, model string, run func(context.Context, Attempt) error, yield func(runner.Part, error) bool) (result attemptResult) {
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &watchdog{timer: time.AfterFunc(c.policy.Stall, func() { cancel(errStalled) }), stall: c.policy.Stall}
	defer w.timer.Stop()
	silence := time.AfterFunc(silentStalls*c.policy.Stall, func() { cancel(errSilent) })
	defer silence.Stop()
	parts := newPartRedactor(c.secrets, func(part runner.Part) bool {
		result.stopped = result.stopped || !yield(part, nil)
		return !result.stopped
	})
	emit := func(part runner.Part) bool {
		if result.stopped || attempt.Err() != nil {
			return false
		}
		w.timer.Stop()
		silence.Stop()
		defer w.touch()
		defer silence.Reset(silentStalls * c.policy.Stall)
		result.begun = true
		return parts.add(part)
	}
	err := run(attempt, Attempt{Client: w.client(), Emit: emit})
	w.timer.Stop()
	silence.Stop()
	parts.flush()
	if result.stopped || err == nil {
		return result
	}
	if cause := context.Cause(ctx); cause != nil {
		result.err = cause
		return result
	}
	if cause := context.Cause(attempt); errors.Is(cause, errStalled) || errors.Is(cause, errSilent) {
		err = cause
	}
	result.err, result.mayPass = c.failure(model, w.response, err)
	return result
}
