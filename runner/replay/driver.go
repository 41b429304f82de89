package replay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// A driver replays a tape. It applies what came to the recorded session from outside, such
// as prompts and registrations, at its place in the order of the tape, and runs the runner,
// whose events must follow from that. The cursor is the entry that comes next. An actor, a
// goroutine of the runner, waits in one of its hooks until the cursor has reached the entry
// that it is about to record. If every actor waits for an entry behind one that no actor
// records, that entry is missing in the replay, and the driver skips it.
//
// The lock mu is not held while the runner, the registry or the store is called.
type driver struct {
	tape    *Tape
	config  Config
	session domain.SessionID
	// layers, scopes and catalog are owned by the goroutine of play, except while an actor
	// that it waits for reads them.
	layers  map[domain.LayerID]*replayedLayer
	scopes  map[domain.RegistrationID]*registry.Scope
	catalog *catalog.State
	// programs has the recorded processes by their IDs, and program is the one that runs
	// the session.
	programs map[domain.ProcessID]*program
	program  *program

	mu      sync.Mutex
	changed *sync.Cond
	cursor  int
	// done has the entries that are applied, recorded again or skipped.
	done []bool
	// labels labels the events of the new session up to length.
	labels *labeler
	length events.Revision
	// permissions maps the recorded permission requests and questions to the new ones.
	permissions map[domain.PermissionID]domain.PermissionID
	// waiters are the waiting actors, and busy counts those that do not wait.
	waiters map[*waiter]bool
	busy    int
	// settling has the calls that are being settled, with the call that added each. Of a
	// call without a parent the parent is zero. left counts them by parent.
	settling map[callKey]callKey
	left     map[callKey]int
	// running is set while a run executes, and begun after its first profile.
	running, begun bool
	// interrupted is set if the context of the run has ended.
	interrupted bool
	cancel      context.CancelCauseFunc
	// recovers is set from the death of a recorded process to the next turn.
	recovers bool
	failed   error
}

// A callKey identifies a call of the new session.
type callKey struct {
	message domain.MessageID
	call    domain.CallID
}

// A waiter is an actor that waits until ready returns true. It is called with mu held.
type waiter struct {
	ready func() bool
	// open is set for an actor for which the tape has no entry: it waits for the end of
	// its process or its interruption. released ends its wait.
	open, released bool
}

// A program is one recorded process, as it is replayed.
type program struct {
	ledger *events.Ledger
	layers *registry.Layers
	// empty is a registry without layers, with which a recovery settles calls.
	empty  *registry.Registry
	runner *runner.Runner
	client string
	flags  []string
	dead   bool
}

// A replayedLayer is a layer of the tape in the target.
type replayedLayer struct {
	*registry.Layer
	program *program
}

// errKilled is the cause with which the runs of a recorded process end that died.
var errKilled = errors.New("the recorded process died here")

// errNoAnswer is the error of a turn that no event on the tape answers.
var errNoAnswer = errors.New("the tape has no reply to this turn")

// play replays the tape to its end.
func (d *driver) play(ctx context.Context) error {
	if err := d.startProgram(domain.ProcessID{}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.failed = errors.Join(d.failed, context.Cause(ctx))
		d.changed.Broadcast()
	})
	defer stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.cursor < len(d.tape.entries) && d.failed == nil {
		if err := d.advance(ctx); err != nil {
			d.failed = err
		}
	}
	for d.running && d.failed == nil && !d.stuck() {
		d.changed.Wait()
	}
	d.killLocked()
	d.mu.Unlock()
	err := d.closeLayers(ctx)
	d.mu.Lock()
	return errors.Join(d.failed, err)
}

// advance takes one step at the cursor. The caller holds mu.
func (d *driver) advance(ctx context.Context) error {
	i := d.cursor
	e := d.tape.entries[i]
	switch {
	case d.done[i]:
		d.pass()
	case isStimulus(e.Event):
		d.mu.Unlock()
		err := d.apply(ctx, e)
		d.mu.Lock()
		if err != nil {
			return fmt.Errorf("replay %s: %w", e.label, err)
		}
		d.done[i] = true
	case !d.running:
		before := d.length
		d.run(ctx, e.Event)
		for d.running && d.length == before && d.failed == nil && !d.stuck() {
			d.changed.Wait()
		}
		if !d.running && d.length == before && !d.done[i] {
			d.pass() // the run recorded nothing: the entry is missing
		}
	case d.interrupts(e.Event):
		d.interrupted = true
		d.cancel(reasonOf(e.Event))
		d.changed.Broadcast()
	case d.stuck():
		if !d.releaseOpen() {
			d.pass()
		}
	default:
		d.changed.Wait()
	}
	return nil
}

// pass moves the cursor behind its entry. The caller holds mu.
func (d *driver) pass() {
	d.done[d.cursor] = true
	d.cursor++
	d.changed.Broadcast()
}

// isStimulus reports whether an event came to the recorded session from outside.
func isStimulus(e events.Event) bool {
	switch e.(type) {
	case events.SessionOpened, events.SessionForked, events.PromptAdmitted, events.SessionClosed, events.OutputPruned,
		events.LayerOpened, events.ToolsRegistered, events.RegistrationClosed, events.LayerClosed,
		events.SettingChanged, events.SessionSpawned, events.ContextAdded, events.CommandRan:
		return true
	}
	return false
}

// interrupts reports whether the recorded run was interrupted before an event, and the
// replayed one is not yet. The caller holds mu.
func (d *driver) interrupts(e events.Event) bool {
	if d.interrupted || d.recovers {
		return false
	}
	switch e := e.(type) {
	case events.CallSettled:
		return e.Outcome == domain.Interrupted
	case events.SessionInterrupted:
		return e.Reason != domain.ByUser || !strings.HasPrefix(e.Detail, "declined ")
	}
	return false
}

// reasonOf returns the reason of an interruption.
func reasonOf(e events.Event) domain.Interruption {
	switch e := e.(type) {
	case events.CallSettled:
		return e.Interruption
	case events.SessionInterrupted:
		return e.Reason
	}
	return domain.ByShutdown
}

// run starts a run of the new session for the event at the cursor. The caller holds mu.
func (d *driver) run(ctx context.Context, next events.Event) {
	switch next.(type) {
	case events.CallSettled, events.PermissionDecided, events.QuestionAnswered:
	default:
		d.recovers = false
	}
	drive := d.runnerFor(d.nextTurn()).Run
	if d.recovers {
		drive = d.program.runner.Recover
	}
	ctx, d.cancel = context.WithCancelCause(ctx)
	d.running, d.begun, d.interrupted, d.busy = true, false, false, 1
	go func() {
		_ = drive(ctx, d.session) // an error that the recorded run had too; its events are compared
		d.mu.Lock()
		defer d.mu.Unlock()
		d.cancel(nil)
		d.running, d.busy = false, 0
		clear(d.settling)
		clear(d.left)
		d.changed.Broadcast()
	}()
}

// stuck reports whether every actor waits, and none can go on. The caller holds mu.
func (d *driver) stuck() bool {
	if d.busy > 0 {
		return false
	}
	for w := range d.waiters {
		if w.released || w.ready() {
			return false
		}
	}
	return true
}

// releaseOpen ends the wait of the actors for which the tape has no entry, and returns
// false if there is none. The caller holds mu.
func (d *driver) releaseOpen() (some bool) {
	for w := range d.waiters {
		if w.open {
			w.released, some = true, true
		}
	}
	d.changed.Broadcast()
	return some
}

// wait makes the calling actor wait until w is ready, or its process is dead. The caller
// holds mu.
func (d *driver) wait(p *program, w *waiter) {
	ready := w.ready
	w.ready = func() bool { return p.dead || d.failed != nil || ready() }
	d.busy--
	d.waiters[w] = true
	d.changed.Broadcast()
	for !w.released && !w.ready() {
		d.changed.Wait()
	}
	delete(d.waiters, w)
	d.busy++
}

// waitFor makes the calling actor wait until the cursor has reached entry i and, for a call
// that was interrupted, until the run is. The caller holds mu.
func (d *driver) waitFor(p *program, i int) {
	interrupted := false
	if i < len(d.tape.entries) && !d.recovers {
		end, ok := d.tape.entries[i].Event.(events.CallSettled)
		interrupted = ok && end.Outcome == domain.Interrupted
	}
	d.wait(p, &waiter{ready: func() bool { return d.cursor > i || d.cursor == i && (!interrupted || d.interrupted) }})
}

// killLocked ends the process: it records nothing more. It waits for the end of the run.
// The caller holds mu.
func (d *driver) killLocked() {
	d.program.dead = true
	if d.cancel != nil {
		d.cancel(errKilled)
	}
	d.changed.Broadcast()
	for d.running {
		d.changed.Wait()
	}
}

// recorded marks the entry of an event of the new session as recorded again. Package
// runner calls it through the store, after each append.
func (d *driver) recorded(v events.Envelope) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v.Revision <= d.length {
		return // an append that was repeated
	}
	d.length = v.Revision
	if i, ok := d.tape.index[d.labels.add(v).label]; ok {
		d.done[i] = true
	}
	if e, ok := v.Event.(events.CallSettled); ok {
		d.settled(callKey{e.Message, e.Call})
	}
	d.changed.Broadcast()
}

// settled counts the goroutine of a call as ended, and the one that waits for all of them
// as busy again after the last. The caller holds mu.
func (d *driver) settled(key callKey) {
	parent, ok := d.settling[key]
	if !ok {
		return
	}
	delete(d.settling, key)
	d.busy--
	if d.left[parent]--; d.left[parent] == 0 {
		delete(d.left, parent)
		d.busy++
	}
}

// settles counts a goroutine for each call that is about to be settled in place of the one
// that waits for them. The caller holds mu.
func (d *driver) settles(parent callKey, calls []callKey) {
	for _, key := range calls {
		d.settling[key] = parent
	}
	d.left[parent] = len(calls)
	d.busy += len(calls) - 1
}

// nextTurn returns the first turn that is not recorded again, or the last one. The caller
// holds mu or is the only actor.
func (d *driver) nextTurn() int {
	for n, i := range d.tape.turns {
		if !d.done[i] {
			return n + 1
		}
	}
	return len(d.tape.turns)
}

// startProgram starts the replay of a recorded process, which then runs the session. The ID
// is zero for a recovery, and for the process of an import.
func (d *driver) startProgram(id domain.ProcessID) (err error) {
	p := &program{}
	p.ledger = events.NewLedger(&watchedStore{Store: d.config.Store, driver: d, program: p}, d.config.Mint, d.config.Now)
	p.layers = registry.NewLayers(p.ledger, d.config.Process)
	p.empty, err = p.layers.Registry(d.registryConfig())
	d.programs[id], d.program = p, p
	return err
}

// programOf returns the process that took a turn: that of the layers of its tools. A turn
// without tools belongs to the process that ran before it.
func (d *driver) programOf(e events.TurnMaterialized) *program {
	for _, o := range offeredOrHidden(e) {
		if l := d.layers[o.Layer]; l != nil {
			return l.program
		}
	}
	return d.program
}

// offeredOrHidden returns the registrations in effect in a turn.
func offeredOrHidden(e events.TurnMaterialized) []domain.Offered {
	all := slices.Clone(e.Tools)
	for _, h := range e.Hidden {
		all = append(all, h.Offered)
	}
	return all
}

// runnerFor returns the runner of the process that took a turn, which then runs the session,
// or that of the process that is running it. A process has one client and one set of flags.
// The caller holds mu.
func (d *driver) runnerFor(turn int) *runner.Runner {
	e := d.tape.turn(turn)
	if p := d.programOf(e); !p.dead && !d.recovers && !d.running {
		d.program = p
	}
	p := d.program
	if p.runner != nil && p.client == e.Client && slices.Equal(p.flags, e.Flags) {
		return p.runner
	}
	c := &tapeProvider{d, p}
	config := runner.Config{
		Ledger: p.ledger, Registry: p.empty, Provider: c, Profile: c.profile, Client: e.Client, Flags: e.Flags, Has: c.has,
		Settling: c.settling, Allowances: c, Parallel: parallel,
	}
	if slices.ContainsFunc(d.tape.entries, func(e labeled) bool { _, ok := e.Event.(events.LoopDetected); return ok }) {
		config.Looping = c.looping
	}
	p.client, p.flags, p.runner = e.Client, e.Flags, runner.New(config)
	return p.runner
}

// parallel is the number of calls of one reply that run at the same time: all, because the
// tape has their order.
const parallel = 1 << 16

// registryConfig returns how the registries of the replay settle calls.
func (d *driver) registryConfig() registry.Config {
	c := registry.Config{Outputs: d.config.Outputs, Grace: time.Hour, Policy: d.tape.policy()}
	for _, e := range d.tape.entries {
		if end, ok := e.Event.(events.CallSettled); ok && len(end.Input) > 0 {
			c.Before = []registry.Before{(&tapeProvider{d, d.program}).rewritten}
			break
		}
	}
	return c
}

// policy returns the strictest policy under which the calls of the tape can have run.
func (t *Tape) policy() registry.StalenessPolicy {
	policy := registry.Strict
	for _, e := range t.entries {
		switch e := e.Event.(type) {
		case events.CallStarted:
			if e.Effective != e.Offered {
				return registry.ByFingerprint
			}
		case events.CallSettled:
			if e.Began && e.Outcome != domain.Lost && e.Effective != e.Offered {
				policy = registry.Admitted
			}
		}
	}
	return policy
}

// apply applies an event that came from outside.
func (d *driver) apply(ctx context.Context, v labeled) error {
	switch e := v.Event.(type) {
	case events.SessionOpened:
		return d.open(ctx, e)
	case events.PromptAdmitted:
		var media []domain.Media
		for _, part := range e.Media {
			if m, ok := part.(domain.Media); ok {
				media = append(media, m)
			}
		}
		return d.nextRunner().Admit(ctx, d.session, d.config.Mint.Message(), e.Text, media...)
	case events.SessionClosed:
		return d.append(ctx, e)
	case events.LayerOpened:
		return d.openLayer(ctx, e, v)
	case events.ToolsRegistered:
		return d.register(ctx, e, v)
	case events.RegistrationClosed:
		d.fold(v)
		if scope := d.scopes[e.Registration]; scope != nil {
			return scope.Close(ctx)
		}
	case events.LayerClosed:
		d.fold(v)
		return d.closeLayer(ctx, e)
	}
	return nil
}

// nextRunner returns the runner of the next turn.
func (d *driver) nextRunner() *runner.Runner {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runnerFor(d.nextTurn())
}

// lockedNextTurn is nextTurn for a caller that does not hold mu.
func (d *driver) lockedNextTurn() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.nextTurn()
}

// append appends events to the new session while no run does.
func (d *driver) append(ctx context.Context, all ...events.Event) error {
	d.mu.Lock()
	for d.running && !d.stuck() {
		d.changed.Wait()
	}
	after := d.length
	d.mu.Unlock()
	l := d.program.ledger
	drafts := make([]events.Draft, len(all))
	for i, e := range all {
		drafts[i] = l.Draft(e, domain.EventID{})
	}
	_, err := l.Append(ctx, events.SessionStream(d.session), after, drafts...)
	return err
}

// open opens the new session, as the replay of the recorded one. The replay of a fork has
// the past of the fork.
func (d *driver) open(ctx context.Context, e events.SessionOpened) error {
	e.Session = d.session
	e.Origin = events.Origin{Kind: events.Replayed, Format: "tape", Source: d.tape.session.String()}
	for _, v := range d.tape.entries {
		if forked, ok := v.Event.(events.SessionForked); ok {
			return d.append(ctx, e, forked)
		}
	}
	return d.append(ctx, e)
}

// fold folds an event of a recorded layer.
func (d *driver) fold(v labeled) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.catalog = catalog.Projection().Apply(d.catalog, v.Envelope)
}

// openLayer opens a recorded layer again.
func (d *driver) openLayer(ctx context.Context, e events.LayerOpened, v labeled) error {
	var l *registry.Layer
	var err error
	if d.programs[e.Process] == nil {
		runs := d.program
		if err = d.startProgram(e.Process); err != nil {
			return err
		}
		if runs.runner != nil {
			d.program = runs // until a turn of the other one
		}
	}
	p := d.programs[e.Process]
	switch e.Placement {
	case domain.Application:
		l, err = p.layers.Application(ctx)
	case domain.PerSession:
		session := e.Session
		if session == d.tape.session {
			session = d.session
		}
		l, err = p.layers.Session(ctx, session)
	default:
		l, err = p.layers.Location(ctx, e.Location)
	}
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.layers[e.Layer] = &replayedLayer{l, p}
	d.mu.Unlock()
	d.fold(v)
	return nil
}

// register registers recorded tools again, in a scope of their own.
func (d *driver) register(ctx context.Context, e events.ToolsRegistered, v labeled) error {
	id, _ := v.Stream.Layer()
	l := d.layers[id]
	if l == nil {
		return nil // the layer was opened by an event that the ledger does not have
	}
	tools := registry.Tools{}
	for _, recorded := range e.Tools {
		tool, err := (&tapeProvider{d, l.program}).tool(recorded)
		if err != nil {
			return err
		}
		tools[string(recorded.Name)] = tool
	}
	var refused []registry.Refusal
	for _, r := range e.Refused {
		refused = append(refused, registry.Refusal{Name: r.Name, Err: errors.New(r.Reason)})
	}
	scope := l.Scope()
	if _, err := scope.RegisterValid(ctx, tools, refused...); err != nil {
		return err
	}
	d.scopes[domain.RegistrationOf(v.ID)] = scope
	d.fold(v)
	return nil
}

// closeLayer closes a recorded layer again. If the process of the layer died, it ends the
// process first, so that the calls of its run have no end.
func (d *driver) closeLayer(ctx context.Context, e events.LayerClosed) error {
	l := d.layers[e.Layer]
	if l == nil {
		return nil
	}
	if e.Reason != events.ProcessLost {
		return l.Close(ctx)
	}
	if !l.program.dead {
		d.mu.Lock()
		runs := l.program == d.program
		l.program.dead = true
		if runs {
			d.killLocked()
			d.recovers = true
		}
		d.mu.Unlock()
		if runs {
			if err := d.startProgram(domain.ProcessID{}); err != nil {
				return err
			}
			d.nextRunner()
		}
	}
	return d.recordLayerClosed(ctx, l, events.ProcessLost)
}

// recordLayerClosed records the end of a layer of a dead process, as a recovery does.
func (d *driver) recordLayerClosed(ctx context.Context, l *replayedLayer, reason string) error {
	stream := events.LayerStream(l.ID())
	var length events.Revision
	for v, err := range d.program.ledger.Read(ctx, stream, 0) {
		if err != nil {
			return err
		}
		if length = v.Revision; v.Event.Kind() == (events.LayerClosed{}).Kind() {
			return nil
		}
	}
	ledger := d.program.ledger
	_, err := ledger.Append(ctx, stream, length, ledger.Draft(events.LayerClosed{Layer: l.ID(), Reason: reason}, domain.EventID{}))
	return err
}

// closeLayers closes the layers that the tape leaves open, because the replay ends here.
func (d *driver) closeLayers(ctx context.Context) (err error) {
	ctx = context.WithoutCancel(ctx)
	for _, p := range d.programs {
		err = errors.Join(err, p.layers.Wait(ctx))
	}
	d.program = &program{ledger: events.NewLedger(d.config.Store, d.config.Mint, d.config.Now)}
	for _, l := range d.layers {
		err = errors.Join(err, d.recordLayerClosed(ctx, l, events.ProcessEnded))
	}
	return err
}

// A watchedStore is the store of one replayed process. It reports what the process appends
// to the session, and refuses appends after the death of the process.
type watchedStore struct {
	events.Store
	driver  *driver
	program *program
}

// Read implements events.Store. The past of a fork is in the store of the recording.
func (w *watchedStore) Read(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	if session, ok := s.Session(); ok && session != w.driver.session && w.driver.config.Recording != nil {
		return w.driver.config.Recording.Read(ctx, s, after)
	}
	return w.Store.Read(ctx, s, after)
}

// Append implements events.Store.
func (w *watchedStore) Append(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) error {
	w.driver.mu.Lock()
	dead := w.program.dead
	w.driver.mu.Unlock()
	if dead {
		return fmt.Errorf("append to %s: %w", s, events.ErrClosed)
	}
	if err := w.Store.Append(ctx, s, after, records...); err != nil {
		return err
	}
	if session, ok := s.Session(); !ok || session != w.driver.session {
		return nil
	}
	for i, r := range records {
		v, err := events.Decode(events.Entry{Record: r, Stream: s, Revision: after + events.Revision(i) + 1})
		if err != nil {
			return err
		}
		w.driver.recorded(v)
	}
	return nil
}
