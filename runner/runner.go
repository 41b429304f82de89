package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
)

// The errors of this package. Match them with errors.Is. The package doc and the methods
// name the calls that return them.
var (
	// ErrNoSession is returned for a session without events.
	ErrNoSession = errors.New("session does not exist")
	// ErrImported is returned for a session that another program ran and that was
	// imported.
	ErrImported = errors.New("imported session cannot be continued")
	// ErrNoProgress is returned by Run if a step appended no event, so that the same step
	// would follow without end.
	ErrNoProgress = errors.New("step added nothing to the log")
	// ErrBadReply is returned by Run for a reply that breaks the rules of call IDs. The
	// reply is recorded as refused.
	ErrBadReply = errors.New("reply is not valid")
	// ErrNotRunning is returned by Note for a session that is not running in this
	// process.
	ErrNotRunning = errors.New("session is not running")
	// ErrNotAsked is returned for a call that no reply of the run contains.
	ErrNotAsked = errors.New("no reply asks for the call")
	// ErrOtherText is returned by Admit for a recorded message with other content.
	ErrOtherText = errors.New("message is on record with another content")
	// ErrElsewhere is returned by Run if another process that may be alive runs the
	// session.
	ErrElsewhere = errors.New("another process runs the session")
	// ErrBroken is returned by Run after a defect, if Config.OnBroken is Stop.
	ErrBroken = errors.New("tool has a defect, and the runner stops at defects")
)

// AllowedRules has the permission rules that allowed the requests of running calls. It is
// safe for concurrent use.
type AllowedRules interface {
	// Of returns the rules of a call, until Forget removes them.
	Of(domain.Invocation) []domain.Rule
	// Forget removes the rules of a call whose end is on record.
	Forget(domain.Invocation)
}

// DefaultParallel is the number of calls of one reply that run at the same time where
// Config.Parallel is zero.
const DefaultParallel = 8

// A Config configures a [Runner]. Ledger and Registry are required; each other field says
// what its zero value means.
type Config struct {
	// Ledger is the log. Required.
	Ledger *events.Ledger
	// Registry finds tools and settles calls. Required.
	Registry *registry.Registry
	// Provider sends turns to the model. Nil: sessions can only be recovered.
	Provider Provider
	// Profile returns the profile of the agent that takes the next turn of a session. It
	// is called when a run begins and before each turn, and not by a recovery. An error
	// ends the run. Nil: the zero Profile.
	Profile func(context.Context, *conversation.State) (Profile, error)
	// OnPart is called with each part of a reply as the provider yields it, before the
	// reply is recorded, for display. It must not block for long. It may be called for
	// several sessions at once. Nil: no call.
	OnPart func(Turn, Part)
	// Client is the program that runs the sessions, and Flags are the names that the user
	// set. Turns record both, and tools may depend on them.
	Client string
	Flags  []string
	// Has reports whether this machine has something that a tool needs, as
	// domain.TurnFacts.Has does. Nil: it has everything.
	Has func(need string) bool
	// VersionControl returns the state of the working copy in the location of a session that
	// Open records. It returns soon, and the zero value if there is no working copy. Nil: no
	// session records a state.
	VersionControl func(ctx context.Context, location string) events.VersionControl
	// Refresh brings the registrations up to date. It is called before each turn is
	// offered and before the calls of a reply are settled. An error ends the run. Nil: no
	// call.
	Refresh func(context.Context) error
	// Settling is called before a call is resolved, on the goroutine that settles it, and
	// may wait. An error ends the run; the call then has no end. Nil: no call.
	Settling func(context.Context, domain.Invocation, domain.Call) error
	// Looping decides whether a call that closes a loop may run. It returns nil to
	// allow the call, a *domain.Denied or *domain.Declined to refuse the call, or
	// another error to end the run. It may wait for a person until ctx ends. Nil: such
	// a call runs.
	Looping func(context.Context, domain.Invocation, events.LoopDetected) error
	// Rounds is the number of repetitions of a cycle that make a loop. Zero:
	// DefaultRounds.
	Rounds int
	// Allowances has the rules that allowed the requests of a call. The runner records
	// them with the end of the call. Nil: no rules are recorded.
	Allowances AllowedRules
	// Parallel is the number of calls of one reply that run at the same time.
	// Zero: DefaultParallel.
	Parallel int
	// Steps is the maximum number of replies to one prompt. The turn of the last of
	// these replies has no tools. Zero: unlimited.
	Steps int
	// OnBroken decides whether a run continues after a tool broke. Zero: GoOn.
	OnBroken OnBroken
	// Grace is the time limit for recording an interruption. Zero:
	// registry.DefaultGrace.
	Grace time.Duration
	// Elsewhere returns another process that opened one of the given layers and may be
	// alive, or the zero ID. The runner calls Elsewhere before it ends open calls or
	// requests of another process. Nil: there is no such process, because this process
	// holds the store exclusively.
	Elsewhere func(context.Context, []domain.LayerID) (domain.ProcessID, error)
}

// A Profile is what an agent contributes to its turns.
type Profile struct {
	// Rules bind the turn, and hide tools from the model. Without a set, no rule hides a
	// tool.
	Rules domain.RuleSets
	// System is the system prompt. It may be empty.
	System string
	// Model is the model that the agent asks for. Empty: the model that the provider
	// names, or else that of the session.
	Model string
	// Tools are patterns of the names that the turn offers. Empty: all names.
	Tools []string
	// Steps is the maximum number of replies to one prompt. Zero: no limit but
	// Config.Steps.
	Steps int
	// Registry settles the calls of the session. Nil: Config.Registry.
	Registry *registry.Registry
}

// OnBroken decides whether a run continues after a defect, a failed retention or media
// over the limit. The zero OnBroken is GoOn.
type OnBroken uint8

// The values of OnBroken.
const (
	// GoOn continues the run: the model reads that the call failed.
	GoOn OnBroken = iota
	// Stop ends the run with ErrBroken, after the ends of all calls of the reply are on
	// record.
	Stop
)

// A Runner runs agent sessions. Between runs it keeps for each session only a writer,
// which knows the length of the session's stream; every run folds the session from the
// log. A Runner is safe for concurrent use. It needs no Close.
type Runner struct {
	config Config
	mu     struct {
		sync.Mutex
		// sessions has the sessions in use, those with a pending append, and the last idle
		// ones.
		sessions map[domain.SessionID]*session
		// idle has the idle sessions, the longest idle one first.
		idle []domain.SessionID
	}
}

// maxIdle is the number of idle sessions of which the Runner keeps the state, so that the
// next prompt reads only new events.
const maxIdle = 8

// A session is the Runner's state of one session. The fields below admits are guarded by
// the Runner's mu.
type session struct {
	id domain.SessionID
	// writer appends to the session. It is the only writer of the session in this
	// process.
	writer *events.Writer
	// admits is held while a message is admitted, and while a run begins, records a
	// turn or decides that the session is idle.
	admits semaphore
	// run is the current run. Nil: the session is not running.
	run *run
	// users is the number of runs and callers that use the session.
	users int
	// folded is the fold of the session by the last user. Nil: there is none, or a user
	// has taken it.
	folded *foldedSession
}

// A foldedSession is the fold of a session with the loop detector that has read it. One
// goroutine owns it.
type foldedSession struct {
	state *conversation.State
	loops *loopDetector
}

// A semaphore has at most one holder at a time. Unlike for a mutex, a caller can wait for
// it with a context.
type semaphore chan struct{}

// acquire waits for the semaphore. After a nil error the caller must call release once.
// An error is the cause of ctx.
func (s semaphore) acquire(ctx context.Context) (release func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// New returns a runner. It starts no goroutine and reads no event.
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

// Open records a new session and returns its ID. It overwrites the fields Session, Origin
// and, with Config.VersionControl, VersionControl of e; the caller sets the others.
func (r *Runner) Open(ctx context.Context, e events.SessionOpened) (domain.SessionID, error) {
	l := r.config.Ledger
	e.Session, e.Origin = l.Mint().Session(), events.Origin{Kind: events.RunHere}
	if r.config.VersionControl != nil && e.Location != "" {
		e.VersionControl = r.config.VersionControl(ctx, e.Location)
	}
	if _, err := l.Append(ctx, events.SessionStream(e.Session), 0, l.Draft(e, domain.EventID{})); err != nil {
		return domain.SessionID{}, fmt.Errorf("open session: %w", err)
	}
	return e.Session, nil
}

// Admit records a message for the agent of a session, with images and files that belong to
// it. To admit the same message with the same content again has no effect; with other
// content Admit returns ErrOtherText. It
// returns ErrNoSession and ErrImported like Run. A running session answers the message
// after its current reply or calls. Call Run after Admit in any case: Run joins the
// current run or starts one.
func (r *Runner) Admit(ctx context.Context, id domain.SessionID, message domain.MessageID, text string, media ...domain.Media) error {
	live := r.use(id)
	defer r.release(live)
	release, err := live.admits.acquire(ctx)
	if err != nil {
		return fmt.Errorf("admit prompt %s: %w", message, err)
	}
	defer release()
	prompt := events.PromptAdmitted{Message: message, Text: text}
	for _, m := range media {
		prompt.Media = append(prompt.Media, m)
	}
	last, known, err := r.findPrompt(ctx, live, message)
	switch {
	case err != nil:
		return fmt.Errorf("admit prompt: %w", err)
	case known != nil && !known.Event.IsZero() && known.Text == text && reflect.DeepEqual(known.Media, prompt.Media):
		return nil
	case known != nil:
		return fmt.Errorf("admit prompt %s: %w", message, ErrOtherText)
	}
	if _, err := live.writer.Append(ctx, r.config.Ledger.Draft(prompt, last)); err != nil {
		return fmt.Errorf("admit prompt %s: %w", message, err)
	}
	return nil
}

// findPrompt returns the last event of a session, and its prompt with a message ID, or nil
// if it has no message of that ID. A reply of that ID is an empty prompt without an event.
// If the session is not running, findPrompt brings its writer to the end of the stream: a run keeps the
// length that it has read, or it would miss a conflict. The caller holds live.admits.
//
// findPrompt reads the events that the session has gained, the whole stream if the fold is
// not in memory, and the prompts of the stream if the fold has forgotten messages.
func (r *Runner) findPrompt(ctx context.Context, live *session, message domain.MessageID) (last domain.EventID, known *conversation.Prompt, err error) {
	var after events.Revision
	forgotten := false
	find := func(s *conversation.State) {
		for _, m := range s.Messages {
			if m.ID == message {
				known = cmp.Or(m.Prompt, &conversation.Prompt{})
			}
		}
		last, after, forgotten = s.Last, s.Revision, s.Forgotten.Messages() > 0
	}
	found := func(v events.Envelope) {
		if e, ok := v.Event.(events.PromptAdmitted); ok && e.Message == message {
			known = &conversation.Prompt{Text: e.Text, Media: e.Media, Event: v.ID}
		}
	}
	if r.Look(live.id, find) {
		for v, err := range r.config.Ledger.Read(ctx, live.writer.Stream(), after) {
			if err != nil {
				return last, nil, fmt.Errorf("read session %s: %w", live.id, err)
			}
			last = v.ID
			found(v)
		}
	} else {
		f, err := r.load(ctx, live)
		if err != nil {
			return last, nil, err
		}
		find(f.state)
		live.writer.Advance(f.state.Revision)
		live.writer.Resume()
		r.keep(live, f)
	}
	if known != nil || !forgotten {
		return last, known, nil
	}
	prompts := events.Query{Stream: live.writer.Stream(), Filter: events.Filter{Kinds: []string{events.PromptAdmitted{}.Kind()}}}
	for v, err := range r.config.Ledger.Scan(ctx, prompts) {
		if err != nil {
			return last, nil, fmt.Errorf("read session %s: %w", live.id, err)
		}
		found(v)
	}
	return last, known, nil
}

// load returns the fold of a session up to the end of its stream, which the caller then
// owns. It reads the events after the fold in memory, or the whole stream. It first repeats
// an append of unknown outcome, so that the events of the append are either in the fold or
// certain not to be stored. It returns ErrNoSession, or ErrImported for a session that
// another program ran.
func (r *Runner) load(ctx context.Context, live *session) (*foldedSession, error) {
	if err := live.writer.Flush(ctx); err != nil && !wasRejected(err) {
		return nil, fmt.Errorf("read session %s: %w", live.id, err)
	}
	r.mu.Lock()
	f := live.folded
	live.folded = nil
	r.mu.Unlock()
	if f == nil {
		f = &foldedSession{conversation.Projection().Init(), newLoopDetector(r.config.Rounds)}
	}
	err := r.fold(ctx, f, live.writer.Stream(), new(sync.Mutex))
	switch {
	case err != nil:
		return nil, err
	case f.state.Session.IsZero():
		return nil, fmt.Errorf("read session %s: %w", live.id, ErrNoSession)
	case !f.state.Origin.Kind.Runs():
		return nil, fmt.Errorf("read session %s: %w", live.id, ErrImported)
	}
	return f, nil
}

// keep gives a fold back for the next user of a session. The caller does not use it
// afterwards.
func (r *Runner) keep(live *session, f *foldedSession) {
	r.mu.Lock()
	defer r.mu.Unlock()
	live.folded = f
}

// use returns the state of a session, which it creates if there is none. The caller calls
// release.
func (r *Runner) use(id domain.SessionID) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.useLocked(id)
}

// useLocked is use for a caller that holds r.mu.
func (r *Runner) useLocked(id domain.SessionID) *session {
	live, ok := r.mu.sessions[id]
	if !ok {
		live = &session{id: id, writer: r.config.Ledger.Writer(events.SessionStream(id), 0), admits: make(semaphore, 1)}
		r.mu.sessions[id] = live
	}
	if live.users++; live.users == 1 {
		r.mu.idle = slices.DeleteFunc(r.mu.idle, func(idle domain.SessionID) bool { return idle == id })
	}
	return live
}

// release ends a use of a session. It removes the sessions that are idle for longer than
// the last maxIdle. A session with a pending append keeps its writer, and no fold.
func (r *Runner) release(live *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if live.users--; live.users > 0 {
		return
	}
	r.mu.idle = append(r.mu.idle, live.id)
	for len(r.mu.idle) > maxIdle {
		longest := r.mu.sessions[r.mu.idle[0]]
		r.mu.idle = slices.Delete(r.mu.idle, 0, 1)
		if longest.folded = nil; !longest.writer.Pending() {
			delete(r.mu.sessions, longest.id)
		}
	}
}

// running returns the run of a session that has begun and not ended, or nil.
func (r *Runner) running(id domain.SessionID) *runState {
	r.mu.Lock()
	defer r.mu.Unlock()
	if live, ok := r.mu.sessions[id]; ok && live.run != nil {
		return live.run.state
	}
	return nil
}
