package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// Options selects the optional checks of Run.
type Options struct {
	Digests bool // read every kept output and compare its digest
}

// The laws that Run checks in addition to those of projections/calls.
const (
	RecordDecodes  calls.Law = "a record reads back as it was written"
	StreamInOrder  calls.Law = "a stream has no gaps and positions increase"
	OutputResolves calls.Law = "a reference resolves or was pruned by an event"
	OutputMatches  calls.Law = "an output is what its settlement says"
)

// An ExceptionRow is a violation of a law, and its place as far as it is known.
type ExceptionRow struct {
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

// newExceptionRow returns the row of an exception.
func newExceptionRow(e calls.Exception) ExceptionRow {
	return ExceptionRow{
		Law: e.Law, Detail: e.Detail, Session: render.OrNull(e.Session), Message: render.OrNull(e.Message), Call: render.OrNull(e.Call), Tool: render.OrNull(e.Tool),
		Event: render.OrNull(e.Event), Stream: render.OrNull(e.Stream), Revision: render.OrNull(e.Revision), Position: render.OrNull(e.Position),
	}
}

// A Report is the JSON result of ledger verify, and the state of a check in
// progress.
type Report struct {
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
	Exceptions   []ExceptionRow `json:"exceptions"`
	// The progress of readAll: the last revision of each stream, the position of the
	// last record, and whether an unreadable record makes the lengths incomplete.
	lengths           map[events.Stream]events.Revision
	lastPosition      events.Position
	lengthsIncomplete bool
	// deletions are the deletions of a database by stream; nil for a folder.
	deletions map[events.Stream]*streamDeletion
}

// Run checks the log and the outputs of s and prints the report to p. It returns a
// fault.Error with exit code 3 if the report has exceptions, and another error if the
// check could not read the log to its end.
func Run(ctx context.Context, p *render.Printer, s *stores.Store, opts Options) (err error) {
	v := &Report{
		Store: s.Name, Digests: opts.Digests, UnknownKinds: map[string]int{}, Exceptions: []ExceptionRow{},
		lengths: map[events.Stream]events.Revision{},
	}
	progress := p.Progress()
	defer progress.End()
	if v.deletions, err = readDeletions(ctx, s); err != nil {
		return err
	}
	state, err := v.readAll(ctx, s, progress)
	if err != nil {
		return err
	}
	v.checkDeletions(p.Now())
	v.count(state)
	if err := v.checkOutputs(ctx, s, state.Retained(), progress); err != nil {
		return err
	}
	progress.End()
	if err := p.Object(v, func() { printReport(p, v) }); err != nil || len(v.Exceptions) == 0 {
		return err
	}
	return &fault.Error{
		Exit: fault.ExitUnverified, Code: "exceptions", Err: fmt.Errorf("verify %s: %s", s.Name, render.Count(len(v.Exceptions), "exception")),
		Hint: "ledger call show CALL and ledger event ls --after POSITION show more; ledger recover ends what a dead process left open",
	}
}

// readAll reads the log from its beginning, checks each record and folds it into the
// state of the calls.
func (v *Report) readAll(ctx context.Context, s *stores.Store, p *render.ProgressBar) (*calls.State, error) {
	end, _ := s.Head(ctx) // only for the progress display; reading meets the same error
	projection := calls.Projection()
	state := projection.Init()
	for e, err := range s.Entries(ctx, events.Position{}) {
		if errors.Is(err, events.ErrDamaged) {
			v.except(calls.Exception{Law: RecordDecodes, Detail: err.Error()})
			clear(v.lengths)
			v.lengthsIncomplete = true
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
			v.except(calls.Exception{Law: RecordDecodes, Detail: err.Error(), Stream: e.Stream, Revision: e.Revision, Position: e.Position, Event: e.ID})
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

// except adds the exception e to v. If e names no session, it sets the session to that
// of the stream of e.
func (v *Report) except(e calls.Exception) {
	if id, ok := e.Stream.Session(); ok && e.Session.IsZero() {
		e.Session = id
	}
	v.Exceptions = append(v.Exceptions, newExceptionRow(e))
}

// checkPlace checks the revision and the position of a record. After an unreadable
// record, the first record of a stream may have any revision, because the unreadable
// record may belong to that stream.
func (v *Report) checkPlace(e events.Entry) {
	except := func(format string, args ...any) {
		v.except(calls.Exception{
			Law: StreamInOrder, Detail: fmt.Sprintf(format, args...), Stream: e.Stream, Revision: e.Revision, Position: e.Position, Event: e.ID,
		})
	}
	length, known := v.lengths[e.Stream]
	switch t := v.deletions[e.Stream]; {
	// A gap after a deletion is an exception to the law RecordsKept, not to StreamInOrder.
	case t != nil:
		t.add(e, length, known || !v.lengthsIncomplete)
	// In order, or the first record of the stream after unreadable records.
	case e.Revision == length+1 || !known && v.lengthsIncomplete:
	case e.Revision > length+1:
		except("%s missing before it", formatRange(length+1, e.Revision-1))
	default:
		except("it has revision %d, and the one before it %d", e.Revision, length)
	}
	if e.Position.Compare(v.lastPosition) <= 0 {
		except("it stands behind position %s", v.lastPosition)
	}
	v.lengths[e.Stream], v.lastPosition = e.Revision, e.Position
}

// count sets the counts of calls in v and adds the exceptions, both from the state of
// the projection of calls.
func (v *Report) count(state *calls.State) {
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
		v.Exceptions = append(v.Exceptions, newExceptionRow(e))
	}
}

// checkOutputs checks every output in named, which are the outputs that settlements
// name. It counts the stored outputs that no settlement names.
func (v *Report) checkOutputs(ctx context.Context, s *stores.Store, named []calls.Retention, p *render.ProgressBar) error {
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
			v.except(calls.Exception{Law: OutputResolves, Detail: err.Error()})
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

// checkOutput compares the metadata of an output with its settlement. With the flag
// --outputs it also compares the bytes of the output with their digest. If the node that
// has the output is unreachable, checkOutput counts the output and adds no exception.
func (v *Report) checkOutput(ctx context.Context, store remote.BlobStore, r calls.Retention) error {
	except := func(law calls.Law, detail string) {
		v.except(calls.Exception{
			Law: law, Detail: detail, Session: r.Call.Session, Message: r.Call.Message, Call: r.Call.Call,
			Stream: events.SessionStream(r.Call.Session), Revision: r.Place.Revision, Position: r.Place.Position, Event: r.Settlement,
		})
	}
	found, err := store.Stat(ctx, r.Ref)
	if err == nil && found != r.Retained {
		except(OutputMatches, fmt.Sprintf("%s has %d bytes with SHA-256 %s, and the settlement says %d and %s", r.Ref, found.Bytes, found.SHA256, r.Bytes, r.SHA256))
		return nil
	}
	if err == nil && v.Digests {
		err = store.Verify(ctx, r.Ref)
	}
	switch {
	case err == nil:
	case stores.NodeFailed(err):
		v.Unreachable++
	case errors.Is(err, outputs.ErrNotFound), errors.Is(err, outputs.ErrPruned), errors.Is(err, eventstoredb.ErrDeleted):
		except(OutputResolves, err.Error())
	case errors.Is(err, outputs.ErrDamaged):
		except(OutputMatches, err.Error())
	default:
		return err
	}
	return nil
}
