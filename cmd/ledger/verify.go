package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/spf13/cobra"
)

// The laws that verify checks in addition to those of projections/calls.
const (
	readsBack   calls.Law = "a record reads back as it was written"
	inOrder     calls.Law = "a stream has no gaps and positions increase"
	resolves    calls.Law = "a reference resolves or was pruned by an event"
	keptAsNamed calls.Law = "an output is what its settlement says"
)

// A verifyFlags holds the flags of ledger verify.
type verifyFlags struct {
	outputs bool // read all outputs and compare their digests
}

// verifyCommand returns the command ledger verify.
func (a *app) verifyCommand() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use: "verify", Short: "Check the laws of the ledger over the whole log; exit 3 if any is broken",
		Long: `Read the whole log from its beginning, without any checkpoint, and check it:
every record decodes; streams have no gaps, and in a database nobody has hidden or
deleted records of them by $maxCount, $maxAge, $tb, a deletion or a tombstone; every call begins at most once and
ends once, under a registration that its turn offered and that was in effect,
neither closed nor hidden by another; no result without a call; every reference
to an output resolves to the bytes that the settlement names, or was pruned by
an event.

Each exception is listed. A call without an end and a request for permission
without a decision are counted; they are exceptions once the process that has
them is on record as stopped. In an import they never are. Kinds of events that
this program does not know are counted, and are no exception.`,
		Example: "  ledger verify\n  ledger verify --outputs=false\n  ledger verify -o json | jq '.exceptions | group_by(.law)'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error { return a.verify(cmd.Context(), s, f) })
		},
	}
	cmd.Flags().BoolVar(&f.outputs, "outputs", true, "read every kept output and compare its digest")
	return cmd
}

// An exceptionRow is a violation of a law, and its place as far as it is known.
type exceptionRow struct {
	Law      calls.Law         `json:"law"`
	Detail   string            `json:"detail"`
	Session  *domain.SessionID `json:"session"`
	Message  *domain.MessageID `json:"message"`
	Call     *domain.CallID    `json:"call"`
	Tool     *string           `json:"tool"`
	Event    *domain.EventID   `json:"event"`
	Stream   *events.Stream    `json:"stream"`
	Revision *events.Revision  `json:"revision"`
	Position *events.Position  `json:"position"`
}

// exceptionRowOf returns the row of an exception.
func exceptionRowOf(e calls.Exception) exceptionRow {
	return exceptionRow{
		Law: e.Law, Detail: e.Detail, Session: render.OrNull(e.Session), Message: render.OrNull(e.Message), Call: render.OrNull(e.Call), Tool: render.OrNull(e.Tool),
		Event: render.OrNull(e.Event), Stream: render.OrNull(e.Stream), Revision: render.OrNull(e.Revision), Position: render.OrNull(e.Position),
	}
}

// A verification is the JSON result of ledger verify, and the state of a check in
// progress.
type verification struct {
	Store        string         `json:"store"`
	Events       int            `json:"events"`
	Sessions     int            `json:"sessions"`
	Calls        int            `json:"calls"`
	Settled      int            `json:"settled"`          // calls with a settlement
	Open         int            `json:"open"`             // calls without a settlement
	Imported     int            `json:"open_imported"`    // open calls of imported sessions
	Orphans      int            `json:"orphans_imported"` // results in imported sessions whose source does not contain the call
	Waiting      int            `json:"waiting"`          // permission requests without a decision
	Outputs      int            `json:"outputs"`          // outputs that a settlement names and no event pruned
	Unreferenced int            `json:"unreferenced"`     // outputs kept here that no settlement names
	Unreachable  int            `json:"unreachable"`      // outputs not checked, as their node could not be reached
	Digests      bool           `json:"digests"`          // the outputs were read and their digests compared
	Refused      int            `json:"refused"`          // replies that were refused; none of their calls ran
	UnknownKinds map[string]int `json:"unknown_kinds"`    // number of events by a kind and version unknown to this program
	Exceptions   []exceptionRow `json:"exceptions"`
	// The progress of readAll: the last revision of each stream, the position of the
	// last record, and whether an unreadable record makes the lengths incomplete.
	lengths map[events.Stream]events.Revision
	last    events.Position
	lost    bool
	// tampered is nil for a folder.
	tampered map[events.Stream]*tampering
}

// verify checks the log and the outputs of s and prints the exceptions. Any
// exception is a fault.
func (a *app) verify(ctx context.Context, s *stores.Store, f verifyFlags) (err error) {
	v := &verification{
		Store: s.Name, Digests: f.outputs, UnknownKinds: map[string]int{}, Exceptions: []exceptionRow{},
		lengths: map[events.Stream]events.Revision{},
	}
	progress := a.Progress()
	defer progress.End()
	if v.tampered, err = tamperings(ctx, s); err != nil {
		return err
	}
	state, err := v.readAll(ctx, s, progress)
	if err != nil {
		return err
	}
	v.checkTampering(a.Now())
	v.count(state)
	if err := v.checkOutputs(ctx, s, state.Retained(), progress); err != nil {
		return err
	}
	progress.End()
	if err := a.Object(v, func() { a.verificationPage(v) }); err != nil || len(v.Exceptions) == 0 {
		return err
	}
	return &fault.Error{
		Exit: fault.ExitUnverified, Code: "exceptions", Err: fmt.Errorf("verify %s: %s", s.Name, render.Count(len(v.Exceptions), "exception")),
		Hint: "ledger call show CALL and ledger event ls --after POSITION show more; ledger recover ends what a dead process left open",
	}
}

// readAll reads the log from its beginning, checks each record and folds it into the
// state of the calls.
func (v *verification) readAll(ctx context.Context, s *stores.Store, p *render.Progress) (*calls.State, error) {
	end, _ := s.Head(ctx) // only for the progress display; reading meets the same error
	projection := calls.Projection()
	state := projection.Init()
	for e, err := range s.Entries(ctx, events.Position{}) {
		if errors.Is(err, events.ErrDamaged) {
			v.except(calls.Exception{Law: readsBack, Detail: err.Error()})
			clear(v.lengths)
			v.lost = true
			continue
		}
		if err != nil {
			return nil, err
		}
		p.Show("records", render.Records, int64(v.Events), stores.Sequence(e.Position), stores.Sequence(end))
		v.Events++
		v.checkPlace(e)
		envelope, err := events.Decode(e)
		if err != nil {
			v.except(calls.Exception{Law: readsBack, Detail: err.Error(), Stream: e.Stream, Revision: e.Revision, Position: e.Position, Event: e.ID})
			continue
		}
		switch e := envelope.Event.(type) {
		case events.Unknown:
			v.UnknownKinds[fmt.Sprintf("%s v%d", e.Name, e.Version)]++
		case events.ReplyRefused:
			v.Refused++
		}
		state = projection.Apply(state, envelope)
	}
	return state, nil
}

// except adds an exception, with the session that its stream belongs to.
func (v *verification) except(e calls.Exception) {
	if id, ok := e.Stream.Session(); ok && e.Session.IsZero() {
		e.Session = id
	}
	v.Exceptions = append(v.Exceptions, exceptionRowOf(e))
}

// checkPlace checks the revision and the position of a record. After unreadable
// records it accepts the first revision that it meets in each stream.
func (v *verification) checkPlace(e events.Entry) {
	except := func(format string, args ...any) {
		v.except(calls.Exception{
			Law: inOrder, Detail: fmt.Sprintf(format, args...), Stream: e.Stream, Revision: e.Revision, Position: e.Position, Event: e.ID,
		})
	}
	length, known := v.lengths[e.Stream]
	switch t := v.tampered[e.Stream]; {
	// A gap after a deletion is an exception to the law untouched, not to inOrder.
	case t != nil:
		t.add(e, length, known || !v.lost)
	// In order, or the first record of the stream after unreadable records.
	case e.Revision == length+1 || !known && v.lost:
	case e.Revision > length+1:
		except("%s missing before it", revisions(length+1, e.Revision-1))
	default:
		except("it has revision %d, and the one before it %d", e.Revision, length)
	}
	if e.Position.Compare(v.last) <= 0 {
		except("it stands behind position %s", v.last)
	}
	v.lengths[e.Stream], v.last = e.Revision, e.Position
}

// count fills in the counts and the exceptions of calls from the folded state.
func (v *verification) count(state *calls.State) {
	v.Sessions = len(state.Sessions())
	for _, c := range state.Calls() {
		v.Calls++
		if c.State == calls.Settled {
			v.Settled++
		}
	}
	v.Open = v.Calls - v.Settled
	for _, e := range state.Unfinished() {
		session, _ := state.Session(e.Session)
		switch {
		case e.Law == calls.WaitsForDecision:
			v.Waiting++
		case session.Imported():
			v.Imported++
		}
	}
	for _, c := range state.Orphans() {
		if c.Imported {
			v.Orphans++
		}
	}
	for _, e := range state.Exceptions() {
		v.Exceptions = append(v.Exceptions, exceptionRowOf(e))
	}
}

// checkOutputs checks every output that a settlement names, and counts the kept
// outputs that no settlement names.
func (v *verification) checkOutputs(ctx context.Context, s *stores.Store, named []calls.Retention, p *render.Progress) error {
	known := map[domain.Ref]bool{}
	for i, r := range named {
		known[r.Ref] = true
		p.Show("outputs", func(n int64) string { return render.Count(int(n), "output") }, int64(i), uint64(i), uint64(len(named)))
		if r.Pruned {
			continue
		}
		v.Outputs++
		if err := v.checkOutput(ctx, s.Outputs, r); err != nil {
			return err
		}
	}
	for r, err := range s.Outputs.All(ctx) {
		if errors.Is(err, outputs.ErrDamaged) {
			v.except(calls.Exception{Law: resolves, Detail: err.Error()})
			break
		}
		if err != nil {
			return err
		}
		if !known[r.Ref] {
			v.Unreferenced++
		}
	}
	return nil
}

// checkOutput compares an output with the description in its settlement and, with
// --outputs, its bytes with its digest. An output of an unreachable node is counted
// and is no exception.
func (v *verification) checkOutput(ctx context.Context, kept remote.BlobStore, r calls.Retention) error {
	except := func(law calls.Law, detail string) {
		v.except(calls.Exception{
			Law: law, Detail: detail, Session: r.Call.Session, Message: r.Call.Message, Call: r.Call.Call,
			Stream: events.SessionStream(r.Call.Session), Revision: r.Place.Revision, Position: r.Place.Position, Event: r.Settlement,
		})
	}
	found, err := kept.Stat(ctx, r.Ref)
	if err == nil && found != r.Retained {
		except(keptAsNamed, fmt.Sprintf("%s has %d bytes with SHA-256 %s, and the settlement says %d and %s", r.Ref, found.Bytes, found.SHA256, r.Bytes, r.SHA256))
		return nil
	}
	if err == nil && v.Digests {
		err = kept.Verify(ctx, r.Ref)
	}
	switch {
	case err == nil:
	case stores.NodeFailed(err):
		v.Unreachable++
	case errors.Is(err, outputs.ErrNotFound), errors.Is(err, outputs.ErrPruned), errors.Is(err, eventstoredb.ErrDeleted):
		except(resolves, err.Error())
	case errors.Is(err, outputs.ErrDamaged):
		except(keptAsNamed, err.Error())
	default:
		return err
	}
	return nil
}

// verificationPage prints a verification for a person.
func (a *app) verificationPage(v *verification) {
	t := render.Table{Head: []string{"~LAW BROKEN", "SESSION", "CALL", "~TOOL", ">POSITION", "~DETAIL"}}
	for _, e := range v.Exceptions {
		session, call := "", ""
		if e.Session != nil {
			session = render.ShortID(*e.Session)
		}
		if e.Call != nil {
			call = render.ShortCallID(*e.Call)
		}
		t.Add(a.Styled(render.Red, string(e.Law)), session, call, render.OneLine(render.ValueOf(e.Tool), 30), render.StringOf(e.Position), render.OneLine(e.Detail, 160))
	}
	if len(t.Rows) > 0 {
		a.Table(t)
		a.Line("")
	}
	a.Line("%s, %s, %s: %d settled, %d open.", render.Count(v.Events, "event"), render.Count(v.Sessions, "session"), render.Count(v.Calls, "call"), v.Settled, v.Open)
	if v.Imported > 0 {
		a.Line("%s in imports, whose files do not say how they ended.", render.Count(v.Imported, "open call"))
	}
	if v.Orphans > 0 {
		a.Line("%s in imports, whose files do not hold the calls.", render.Count(v.Orphans, "result"))
	}
	if n := v.Open - v.Imported; n > 0 {
		a.Line("%s at work or left by a process that died: ledger recover ends those of dead processes.", render.Count(n, "open call"))
	}
	if v.Waiting > 0 {
		a.Line("%s without a decision.", render.Count(v.Waiting, "request for permission"))
	}
	how := "found, their digests not compared"
	if v.Digests {
		how = "read"
	}
	if v.Outputs > 0 || v.Unreferenced > 0 {
		a.Line("%s %s; %d that no settlement names.", render.Count(v.Outputs-v.Unreachable, "kept output"), how, v.Unreferenced)
	}
	if v.Unreachable > 0 {
		a.Line("%s of other nodes, which cannot be asked, not checked: ledger output tells why.", render.Count(v.Unreachable, "output"))
	}
	if v.Refused > 0 {
		a.Line("%s refused, and kept: ledger event ls --kind ReplyRefused shows why.", render.Count(v.Refused, "reply"))
	}
	for _, kind := range slices.Sorted(maps.Keys(v.UnknownKinds)) {
		a.Line("%s of kind %s, which this program does not know.", render.Count(v.UnknownKinds[kind], "event"), render.Printable(kind))
	}
	if len(v.Exceptions) == 0 {
		a.Line("%s", a.Styled(render.Green, "✓ every law holds"))
		return
	}
	a.Line("%s", a.Styled(render.Red, "✗ "+render.Count(len(v.Exceptions), "exception")))
}
