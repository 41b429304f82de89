package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
)

// The errors of this package. Callers match them with errors.Is.
var (
	ErrNoSession  = errors.New("there is no such session")
	ErrImported   = errors.New("session was imported and cannot be carried on")
	ErrNoProgress = errors.New("step added nothing to the log")
	ErrBadReply   = errors.New("reply cannot be used")
	ErrNotRunning = errors.New("session is not running")
	ErrNotAsked   = errors.New("call was not asked for")
	ErrOtherText  = errors.New("message is on record with another text")
	ErrElsewhere  = errors.New("another process carries the session on")
	ErrBroken     = errors.New("tool broke and the runner stops at that")
)

// AllowedRules keep the rules that allowed what calls asked for, until Forget.
// They are safe for concurrent use.
type AllowedRules interface {
	Of(domain.Invocation) []domain.Rule
	Forget(domain.Invocation)
}

// DefaultParallel is how many calls of one message run at once.
const DefaultParallel = 8

// A Config says how sessions are carried forward.
type Config struct {
	Ledger   *events.Ledger     // required
	Registry *registry.Registry // finds tools and settles calls; required
	Provider Provider           // asked for replies; nil: sessions can only be recovered
	// Rules hide tools from the model of an agent. Nil: none.
	Rules func(domain.AgentID) domain.Rules
	// Looping is asked before a call runs that comes round again and again. It
	// returns nil, a *domain.Denied or a *domain.Declined, or what broke. Nil:
	// such a call runs.
	Looping func(context.Context, domain.Invocation, events.LoopDetected) error
	Rounds  int // that make a loop; zero: DefaultRounds
	// Allowances know which rules allowed what a call asked for. The runner
	// records these rules with the end of the call. Nil: none are recorded.
	Allowances AllowedRules
	// Parallel is how many calls of one message run at once. Zero:
	// DefaultParallel.
	Parallel int
	// Steps is how many replies there may be to one prompt; tools are disabled
	// in the last. Zero: any number.
	Steps int
	// OnBroken says whether a run goes on after a tool broke.
	OnBroken OnBroken
	// Grace is how long the record of an interruption may take. Zero:
	// registry.DefaultGrace.
	Grace time.Duration
	// Elsewhere returns another process that opened one of these layers and may
	// be alive, and the zero ID if there is none. It is asked before what a
	// session has open is ended as left behind. Nil: there is none, as whoever
	// holds the store alone knows.
	Elsewhere func(context.Context, []domain.LayerID) (domain.ProcessID, error)
}

// OnBroken says whether a run goes on after a defect or a failed retention.
// The zero OnBroken is GoOn.
type OnBroken uint8

// The values of OnBroken.
const (
	GoOn OnBroken = iota
	Stop
)

// A Runner carries sessions forward. Between calls it holds no more of a
// session than where its stream ends. It is safe for concurrent use.
type Runner struct {
	config Config
	mu     struct {
		sync.Mutex
		sessions map[domain.SessionID]*session
	}
}

// A session is what a Runner holds of a session.
type session struct {
	writer *events.Writer
	admits semaphore // held while a message is admitted, and while a run begins or ends in order
	run    *run      // nil while the session is not running; guarded by the Runner's mu
}

// A semaphore admits one holder at a time.
type semaphore chan struct{}

// acquire waits until the semaphore is free. The caller calls release. An error
// is the cause of ctx.
func (s semaphore) acquire(ctx context.Context) (release func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// New returns a runner.
func New(config Config) *Runner {
	if config.Rounds <= 0 {
		config.Rounds = DefaultRounds
	}
	if config.Parallel == 0 {
		config.Parallel = DefaultParallel
	}
	if config.Grace == 0 {
		config.Grace = registry.DefaultGrace
	}
	r := &Runner{config: config}
	r.mu.sessions = map[domain.SessionID]*session{}
	return r
}

// Open begins a session. The session's ID and origin are given by Open.
func (r *Runner) Open(ctx context.Context, e events.SessionOpened) (domain.SessionID, error) {
	l := r.config.Ledger
	e.Session, e.Origin = l.Mint().Session(), events.Origin{Kind: events.RunHere}
	if _, err := l.Append(ctx, events.SessionStream(e.Session), 0, l.Draft(e, domain.EventID{})); err != nil {
		return domain.SessionID{}, fmt.Errorf("open session: %w", err)
	}
	return e.Session, nil
}

// Admit accepts a message for the agent of a session. Admitting a message again,
// with the same text, does nothing; with another text it is ErrOtherText. A
// session that is running answers the message after the reply or the calls that
// it is busy with; call Run after Admit in any case, which joins that run or
// starts one.
func (r *Runner) Admit(ctx context.Context, id domain.SessionID, message domain.MessageID, text string) error {
	live := r.session(id)
	release, err := live.admits.acquire(ctx)
	if err != nil {
		return fmt.Errorf("admit prompt %s: %w", message, err)
	}
	defer release()
	s, w, err := r.load(ctx, id)
	if err != nil {
		return fmt.Errorf("admit prompt: %w", err)
	}
	for _, m := range s.Messages {
		if m.ID == message && m.Prompt != nil && m.Prompt.Text == text {
			return nil
		}
		if m.ID == message {
			return fmt.Errorf("admit prompt %s: %w", message, ErrOtherText)
		}
	}
	if !r.running(id) {
		w.Advance(s.Revision) // a run keeps to the length that it knows, or it would miss a conflict
		w.Resume()
	}
	d := r.config.Ledger.Draft(events.PromptAdmitted{Message: message, Text: text}, s.Last)
	if _, err := w.Append(ctx, d); err != nil {
		return fmt.Errorf("admit prompt %s: %w", message, err)
	}
	return nil
}

// load folds a session and returns it with its writer, whose outcomes are all
// known then. It returns ErrNoSession, or ErrImported for a session that another
// program ran.
func (r *Runner) load(ctx context.Context, id domain.SessionID) (*conversation.State, *events.Writer, error) {
	w := r.session(id).writer
	if err := w.Flush(ctx); err != nil && !wasRejected(err) {
		return nil, nil, fmt.Errorf("read session %s: %w", id, err)
	}
	p := conversation.Projection()
	s, err := projections.Fold(p, p.Init(), r.config.Ledger.Read(ctx, w.Stream(), 0))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("read session %s: %w", id, err)
	case s.Session.IsZero():
		return nil, nil, fmt.Errorf("read session %s: %w", id, ErrNoSession)
	case s.Origin.Kind != events.RunHere:
		return nil, nil, fmt.Errorf("read session %s: %w", id, ErrImported)
	}
	return s, w, nil
}

// session returns what the runner holds of a session.
func (r *Runner) session(id domain.SessionID) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessionLocked(id)
}

func (r *Runner) sessionLocked(id domain.SessionID) *session {
	live, ok := r.mu.sessions[id]
	if !ok {
		live = &session{writer: r.config.Ledger.Writer(events.SessionStream(id), 0), admits: make(semaphore, 1)}
		r.mu.sessions[id] = live
	}
	return live
}

// running reports whether a run of a session has begun and not ended.
func (r *Runner) running(id domain.SessionID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.sessionLocked(id).run
	return run != nil && run.journal != nil
}
