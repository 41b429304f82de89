package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

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

// Allowances keep the rules that allowed what calls asked for, until Forget.
// They are safe for concurrent use.
type Allowances interface {
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
	Allowances Allowances
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

// What to do.
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
	held := r.session(id)
	release, err := held.admits.acquire(ctx)
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
	if err := w.Flush(ctx); err != nil && !dropped(err) {
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
	held, ok := r.mu.sessions[id]
	if !ok {
		held = &session{writer: r.config.Ledger.Writer(events.SessionStream(id), 0), admits: make(semaphore, 1)}
		r.mu.sessions[id] = held
	}
	return held
}

// running reports whether a run of a session has begun and not ended.
func (r *Runner) running(id domain.SessionID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.sessionLocked(id).run
	return run != nil && run.journal != nil
}

// A run is a session that is carried forward now, by the first who asked.
type run struct {
	recovers bool          // it is a Recover, which asks no model
	journal  *journal      // nil until the run has begun; guarded by the Runner's mu
	done     chan struct{} // closed when the run has ended
	err      error         // read after done
}

// Run takes steps until the session rests: there is nothing that the model has
// not read, or a person refused a call and admitted no message since, or the
// steps allowed are used up. What an earlier process left open is ended first.
// Whoever calls Run while the session runs joins that run and gets its error;
// leaving a joined run does not end it. If Run returns nil, every message that
// was admitted before the call was read, unless the steps were used up.
//
// If ctx ends, Run ends the calls that have no end as interrupted, records the
// interruption and returns the cause of ctx. After any other error it ends open
// calls in the same way, as a shutdown: the provider's, the ledger's, ErrBroken
// and ErrNoProgress. It records nothing after ErrElsewhere, ErrNoSession,
// ErrImported, events.ErrUnknownKind, and a *events.Conflict, which says that
// another process appends to the session. The session can be run again.
func (r *Runner) Run(ctx context.Context, session domain.SessionID) error {
	return r.drive(ctx, session, false)
}

// Recover ends what is open in a session and asks the model nothing: calls
// that began are lost; calls that did not are settled against the registry,
// where what a dead process offered is stale; requests for permission that
// nobody waits for are dismissed.
func (r *Runner) Recover(ctx context.Context, session domain.SessionID) error {
	return r.drive(ctx, session, true)
}

func (r *Runner) drive(ctx context.Context, id domain.SessionID, recovers bool) error {
	for {
		first, joined := r.enter(id, recovers)
		if !joined {
			return r.lead(ctx, id, first)
		}
		select {
		case <-first.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !first.recovers || recovers {
			return first.err
		}
	}
}

// enter returns the run of a session, and whether it was there already.
func (r *Runner) enter(id domain.SessionID, recovers bool) (_ *run, joined bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.sessionLocked(id)
	if held.run != nil {
		return held.run, true
	}
	held.run = &run{recovers: recovers, done: make(chan struct{}), err: ErrNotRunning}
	return held.run, false
}

// leave takes a run off its session.
func (r *Runner) leave(id domain.SessionID, ended *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if held := r.sessionLocked(id); held.run == ended {
		held.run = nil
	}
}

// lead carries a session on for all who joined.
func (r *Runner) lead(ctx context.Context, id domain.SessionID, run *run) error {
	defer func() {
		r.leave(id, run)
		close(run.done)
	}()
	c, err := r.begin(ctx, id, run)
	if err == nil {
		err = c.carry(ctx)
	}
	run.err = err
	return err
}

// begin reads the session that a run carries on.
func (r *Runner) begin(ctx context.Context, id domain.SessionID, run *run) (*carrying, error) {
	held := r.session(id)
	release, err := held.admits.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	s, w, err := r.load(ctx, id)
	if err != nil {
		return nil, err
	}
	w.Advance(s.Revision)
	w.Resume()
	j := newJournal(r.config.Ledger, w)
	j.session, j.allowances = id, r.config.Allowances
	r.mu.Lock()
	run.journal = j
	r.mu.Unlock()
	return &carrying{Runner: r, run: run, admits: held.admits, session: s, journal: j, loops: newLoopDetector(r.config.Rounds)}, nil
}

// Note records an event of a running call in its session, such as a decision
// about a permission. It returns ErrNotRunning if the session is not running.
func (r *Runner) Note(ctx context.Context, inv domain.Invocation, e events.Event) error {
	r.mu.Lock()
	var j *journal
	if run := r.sessionLocked(inv.Session).run; run != nil {
		j = run.journal
	}
	r.mu.Unlock()
	err := ErrNotRunning
	if j != nil {
		err = j.Note(ctx, callKey{inv.Message, inv.Call}, e)
	}
	if errors.Is(err, ErrNotRunning) {
		return fmt.Errorf("record %s in session %s: %w", e.Kind(), inv.Session, err)
	}
	return err
}

// carry takes steps until the session rests. However that ends, nothing of the
// session is left open, unless another process carries it on.
func (c *carrying) carry(ctx context.Context) error {
	for {
		rests, err := c.advance(ctx)
		if err != nil {
			return c.halt(ctx, err)
		}
		if !rests {
			continue
		}
		if over, err := c.rest(ctx); err != nil {
			return c.halt(ctx, err)
		} else if over {
			return nil
		}
	}
}

// advance takes the next step. It reports whether the run ends there.
func (c *carrying) advance(ctx context.Context) (rests bool, err error) {
	next, err := plan(c.session, c.config.Steps)
	if err != nil || c.isLast(next) {
		return true, err
	}
	if err := c.mine(ctx, next); err != nil {
		return false, err
	}
	before := c.session.Revision
	c.stopped, err = c.take(ctx, next)
	if err != nil {
		return false, err
	}
	if err := c.refresh(ctx); err != nil {
		return false, err
	}
	if c.session.Revision == before {
		return false, fmt.Errorf("run session %s: %w: %T", c.session.Session, ErrNoProgress, next)
	}
	return c.stopped, nil
}

// isLast reports whether a run ends at a step and does not take it.
func (c *carrying) isLast(next step) bool {
	_, asks := next.(ask)
	return next == (rest{}) || asks && (c.run.recovers || c.config.Provider == nil)
}

// rest ends a run in order. It reports false, and the run goes on, if a message
// was admitted meanwhile that the run has to answer. No message is admitted while
// it looks, so one that is admitted later finds that the session does not run.
func (c *carrying) rest(ctx context.Context) (over bool, err error) {
	release, err := c.admits.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	c.journal.close()
	if err := c.refresh(ctx); err != nil {
		return false, err
	}
	next, err := plan(c.session, c.config.Steps)
	if err != nil {
		return false, err
	}
	if !c.isLast(next) && !(c.stopped && c.session.Unread == 0) {
		c.journal.reopen()
		return false, nil
	}
	c.leave(c.session.Session, c.run)
	return true, nil
}

// mine returns ErrElsewhere if a step would end calls or questions of another
// process that may be alive. A call that has not begun belongs to the process
// whose tools its turn offered. Calls of a turn that this run took are its own.
func (c *carrying) mine(ctx context.Context, next step) error {
	if c.config.Elsewhere == nil {
		return nil
	}
	var calls []asked
	switch next := next.(type) {
	case lose:
		calls = next.calls
	case dismiss:
	case settle:
		calls = next.calls
	case refuse:
		calls = next.calls
	default:
		return nil
	}
	if c.session.Turn != nil && c.session.Turn.Turn == c.turn {
		return nil
	}
	other, err := c.config.Elsewhere(ctx, layersOf(c.session, calls))
	if err != nil {
		return fmt.Errorf("run session %s: %w", c.session.Session, err)
	}
	if !other.IsZero() {
		return fmt.Errorf("run session %s: %w: %s", c.session.Session, ErrElsewhere, other)
	}
	return nil
}

// layersOf returns the layers of the tools that the last turn of a session
// offered or hid, or the last turn before it that had any; those of the tools
// offered for open calls; and those under which calls began.
func layersOf(s *conversation.State, open []asked) (layers []domain.LayerID) {
	add := func(tool domain.Offered) {
		if !tool.Layer.IsZero() && !slices.Contains(layers, tool.Layer) {
			layers = append(layers, tool.Layer)
		}
	}
	if s.Turn != nil {
		for _, tool := range s.Turn.Tools {
			add(tool)
		}
		for _, hidden := range s.Turn.Hidden {
			add(hidden.Offered)
		}
	}
	for i := len(s.Messages) - 1; i >= 0 && len(layers) == 0; i-- {
		if reply := s.Messages[i].Reply; reply != nil {
			for _, tool := range reply.Offer.Tools {
				add(tool)
			}
		}
	}
	for _, call := range open {
		for _, tool := range call.offer.Tools {
			add(tool)
		}
		if call.Started != nil {
			add(call.Started.Effective)
		}
	}
	return layers
}

// A carrying is one run of a session on its way. Its session is folded from
// the log and nothing else.
type carrying struct {
	*Runner
	run     *run
	admits  semaphore // of its session
	stopped bool      // the last step stopped the run
	session *conversation.State
	journal *journal
	loops   *loopDetector
	turn    domain.TurnID  // the last one that this run took; zero: none yet
	halted  domain.EventID // the interruption that the run last tried to record; zero: none yet
}

// refresh folds what was appended since.
func (c *carrying) refresh(ctx context.Context) error {
	p := conversation.Projection()
	stream := events.SessionStream(c.session.Session)
	s, err := projections.Fold(p, c.session, c.config.Ledger.Read(ctx, stream, c.session.Revision))
	if err != nil {
		return fmt.Errorf("read session %s: %w", c.session.Session, err)
	}
	*c.session = *s
	return nil
}

// take takes one step. It reports whether the run stops there.
func (c *carrying) take(ctx context.Context, next step) (stop bool, err error) {
	switch next := next.(type) {
	case lose:
		return false, c.end(ctx, next.calls, lost)
	case refuse:
		return false, c.end(ctx, next.calls, func(asked) domain.Settlement { return domain.DisabledCall() })
	case dismiss:
		return false, c.dismiss(ctx, next.asks)
	case settle:
		return c.settle(ctx, next.calls)
	case ask:
		return false, c.ask(ctx, next.last)
	}
	return true, nil
}

// lost is the end of a call that began in another process.
func lost(a asked) domain.Settlement { return domain.LostCall(a.Started.Offered, a.Started.Effective) }

// end records the same kind of end for several calls, without running any.
func (c *carrying) end(ctx context.Context, calls []asked, how func(asked) domain.Settlement) error {
	return c.journal.record(ctx, c.ends(calls, how)...)
}

// ends returns the ends of several calls, bounded as the registry bounds those
// that it records. An end comes of the start of its call, or of the reply that
// asked for a call that did not begin.
func (c *carrying) ends(calls []asked, how func(asked) domain.Settlement) []events.Draft {
	drafts := make([]events.Draft, len(calls))
	for i, a := range calls {
		cause := a.reply
		if a.Started != nil {
			cause = a.StartedBy
		}
		end := c.config.Registry.Ended(a.offer.Turn, a.message, a.Call.Call, how(a))
		drafts[i] = c.config.Ledger.Draft(c.journal.withAllowed(end), cause)
	}
	return drafts
}

func (c *carrying) dismiss(ctx context.Context, asks []events.PermissionRequested) error {
	return c.journal.record(ctx, c.dismissals(asks)...)
}

func (c *carrying) dismissals(asks []events.PermissionRequested) []events.Draft {
	drafts := make([]events.Draft, len(asks))
	for i, a := range asks {
		drafts[i] = c.config.Ledger.Draft(events.PermissionDecided{
			Permission: a.Permission, Effect: domain.Deny, By: events.ByRecovery, Scope: "reject",
		}, c.session.Last)
	}
	return drafts
}

// settle settles calls side by side. The end of one is no matter of another.
func (c *carrying) settle(ctx context.Context, calls []asked) (stop bool, err error) {
	c.loops.advance(c.session)
	ends := make([]domain.Settlement, len(calls))
	errs := make([]error, len(calls))
	var group errgroup.Group
	group.SetLimit(c.config.Parallel)
	for i, a := range calls {
		c.journal.expect(a)
		group.Go(func() error {
			ends[i], errs[i] = c.settleOne(ctx, a)
			return nil
		})
	}
	_ = group.Wait() // the goroutines keep their own errors
	if err := errors.Join(errs...); err != nil {
		return true, err
	}
	if ctx.Err() != nil {
		return true, context.Cause(ctx)
	}
	return c.stops(ctx, calls, ends)
}

func (c *carrying) settleOne(ctx context.Context, a asked) (domain.Settlement, error) {
	inv := domain.Invocation{Session: c.session.Session, Agent: c.session.Agent, Message: a.message, Call: a.ID}
	if found, ok := c.loops.found[callKey{a.message, a.ID}]; ok && c.config.Looping != nil {
		if end, refused, err := c.unloop(ctx, inv, a, found); refused || err != nil {
			return end, err
		}
	}
	return c.config.Registry.Recall(a.offer).Settle(ctx, c.journal, inv, a.Call.Call)
}

// unloop records a loop and asks whether its next call may run. A call that
// may not ends here.
func (c *carrying) unloop(ctx context.Context, inv domain.Invocation, a asked, found events.LoopDetected) (end domain.Settlement, refused bool, err error) {
	if err := c.Note(ctx, inv, found); err != nil {
		return end, false, err
	}
	err = c.config.Looping(ctx, inv, found)
	denied, isDenied := errors.AsType[*domain.Denied](err)
	declined, isDeclined := errors.AsType[*domain.Declined](err)
	switch {
	case isDenied:
		end = domain.Settlement{Outcome: domain.DeniedByRule, Text: denied.Error(), Rule: denied.Rule}
	case isDeclined:
		end = domain.Settlement{Outcome: domain.DeclinedByUser, Text: declined.Feedback}
	default:
		return end, false, err
	}
	end.Offered, _ = a.offer.Find(a.Name)
	ended := c.ends([]asked{a}, func(asked) domain.Settlement { return end })
	return ended[0].Event.(events.CallSettled).Settlement(ended[0].ID), true, c.journal.record(ctx, ended...)
}

// stops reports whether a run stops at the ends of its calls, and records that.
func (c *carrying) stops(ctx context.Context, calls []asked, ends []domain.Settlement) (bool, error) {
	for i, end := range ends {
		switch end.Outcome {
		case domain.DeclinedByUser:
			if end.Text != "" {
				continue
			}
			d := c.config.Ledger.Draft(events.SessionInterrupted{Reason: domain.ByUser, Detail: "declined " + registry.ShortName(calls[i].Name)}, end.ID)
			_, err := c.journal.writer.Append(ctx, d)
			return true, err
		case domain.Defective, domain.RetentionFailed, domain.MediaTooLarge:
			if c.config.OnBroken == Stop {
				return true, fmt.Errorf("run %s %s: %w: %s", calls[i].Name, calls[i].ID, ErrBroken, end.Text)
			}
		}
	}
	return false, nil
}
