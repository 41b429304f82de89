package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/projections/spill"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// Options selects the optional checks of Run.
type Options struct {
	Digests bool           // read every kept output and compare its digest
	Indexes []*index.Index // the first one that exists is compared with the log; nil: none is
}

// The laws that Run checks in addition to those of projections/calls.
const (
	RecordDecodes  calls.Law = "a record reads back as it was written"
	StreamInOrder  calls.Law = "a stream has no gaps and positions increase"
	OutputResolves calls.Law = "a reference resolves or was pruned by an event"
	OutputMatches  calls.Law = "an output is what its settlement says"
	IndexAgrees    calls.Law = "the index has what the log gives"
	PastResolves   calls.Law = "a fork names an event of an earlier session"
)

// The values of Report.Index.
const (
	indexSkipped   = "skipped"    // it was not to be compared
	indexAbsent    = "absent"     // there is none
	indexUnfit     = "unfit"      // the next command that reads it rebuilds it
	indexUnread    = "unreadable" // this user may not read it, or records of the log are damaged or deleted
	indexEqual     = "equal"
	indexDifferent = "different" // an exception says where
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
	Index        string         `json:"index"`            // skipped, absent, unfit, unreadable, equal or different
	Exceptions   []ExceptionRow `json:"exceptions"`
	// The progress of readAll: the last revision of each stream, the position of the
	// last record, and the number of unreadable records so far. A length is only known
	// if it is not older than the last unreadable record.
	lengths      *spill.Map[events.Stream, streamLength]
	lastPosition events.Position
	unreadable   int
	// damaged reports that a record does not read back or decode.
	damaged bool
	// deletions are the deletions of a database by stream; nil for a folder.
	deletions map[events.Stream]*streamDeletion
}

// heldCalls is the number of calls that a check holds in memory, some 300 bytes each.
const heldCalls = 50_000

// A streamLength is the last revision of a stream.
type streamLength struct {
	Revision   events.Revision `json:"r"`
	Unreadable int             `json:"u,omitempty"` // the unreadable records before the revision
	Name       int             `json:"n,omitempty"` // the length of the stream's name
}

// newReport returns an empty report over a temporary database.
func newReport(s *spill.Store) *Report {
	return &Report{
		UnknownKinds: map[string]int{}, Exceptions: []ExceptionRow{}, Index: indexSkipped,
		lengths: spill.NewMap(s, spill.Options[events.Stream, streamLength]{
			Text: func(s events.Stream) string { return string(s) }, Limit: 32_768, Weigh: func(l *streamLength) int { return 1 + l.Name/64 },
		}),
	}
}

// Run checks the log and the outputs of s and prints the report to p. It returns a
// fault.Error with exit code 3 if the report has exceptions, and another error if the
// check could not read the log to its end.
func Run(ctx context.Context, p *render.Printer, s *stores.Store, opts Options) (err error) {
	memory, err := spill.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, memory.Close()) }()
	v := newReport(memory)
	v.Store, v.Digests = s.Name, opts.Digests
	progress := p.Progress()
	defer progress.End()
	if v.deletions, err = readDeletions(ctx, s); err != nil {
		return err
	}
	checker := calls.NewChecker(memory, heldCalls)
	if err := v.readAll(ctx, s, checker, memory, progress); err != nil {
		return err
	}
	v.checkDeletions(p.Now())
	v.count(checker)
	if err := v.checkOutputs(ctx, s, checker, progress); err != nil {
		return err
	}
	if err := memory.Err(); err != nil {
		return err
	}
	if len(opts.Indexes) > 0 {
		if err := v.checkIndex(ctx, s, opts.Indexes, progress); err != nil {
			return err
		}
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

// readAll reads the log from its beginning, checks each record and passes its event to the
// checker. Other goroutines read and decode ahead.
func (v *Report) readAll(ctx context.Context, s *stores.Store, checker *calls.Checker, memory *spill.Store, p *render.ProgressBar) error {
	end, _ := s.Head(ctx) // only for the progress display; reading meets the same error
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for e, err := range events.DecodeAhead(ctx, s.LentEntries(ctx, events.Position{})) {
		unreadable := e.Position.IsZero()
		if err != nil && !errors.Is(err, events.ErrDamaged) {
			return err
		}
		if unreadable {
			v.damaged = true
			v.except(calls.Exception{Law: RecordDecodes, Detail: err.Error()})
			v.unreadable++
			continue
		}
		if v.Events++; v.Events%1024 == 0 {
			p.Show("records", render.Records, int64(v.Events), stores.Sequence(e.Position), stores.Sequence(end))
			if err := memory.Err(); err != nil {
				return err
			}
		}
		v.checkPlace(e)
		if err != nil {
			v.damaged = true
			v.except(calls.Exception{Law: RecordDecodes, Detail: err.Error(), Stream: e.Stream, Revision: e.Revision, Position: e.Position, Event: e.ID})
			continue
		}
		switch kind := e.Event.(type) {
		case events.Unknown:
			v.UnknownKinds[fmt.Sprintf("%s v%d", kind.Name, kind.Version)]++
		case events.ReplyRefused:
			v.Refused++
		case events.SessionForked:
			if err := v.checkPast(ctx, s.Log, e, kind); err != nil {
				return err
			}
		}
		checker.Apply(e)
	}
	return memory.Err()
}

// checkPast checks that the past of a fork is on record before the fork. It reads one event
// of the parent.
func (v *Report) checkPast(ctx context.Context, log events.Store, fork events.Envelope, e events.SessionForked) error {
	fails := func(format string, args ...any) {
		v.except(calls.Exception{
			Law: PastResolves, Detail: fmt.Sprintf(format, args...), Stream: fork.Stream, Revision: fork.Revision, Position: fork.Position, Event: fork.ID,
		})
	}
	if e.Revision < 1 {
		fails("its past ends at revision %d", e.Revision)
		return nil
	}
	for past, err := range log.Read(ctx, events.SessionStream(e.Parent), events.Revision(e.Revision-1)) {
		switch {
		case errors.Is(err, events.ErrDamaged):
			return nil // the law about records names the record
		case err != nil:
			return err
		case past.Revision != events.Revision(e.Revision) || past.ID != e.Event:
			fails("session %s has %s at revision %d, not %s", e.Parent, past.ID, past.Revision, e.Event)
		case past.Position.Compare(fork.Position) >= 0:
			fails("its past ends at position %s, behind it", past.Position)
		}
		return nil
	}
	fails("session %s has no event at revision %d", e.Parent, e.Revision)
	return nil
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
func (v *Report) checkPlace(e events.Envelope) {
	except := func(format string, args ...any) {
		v.except(calls.Exception{
			Law: StreamInOrder, Detail: fmt.Sprintf(format, args...), Stream: e.Stream, Revision: e.Revision, Position: e.Position, Event: e.ID,
		})
	}
	v.lengths.Trim()
	held := v.lengths.Get(e.Stream)
	known := held != nil && held.Unreadable == v.unreadable
	if held == nil {
		held = &streamLength{Name: len(e.Stream)}
	}
	length := events.Revision(0)
	if known {
		length = held.Revision
	}
	complete := v.unreadable == 0
	switch t := v.deletions[e.Stream]; {
	// A gap after a deletion is an exception to the law RecordsKept, not to StreamInOrder.
	case t != nil:
		t.add(e, length, known || complete)
	// In order, or the first record of the stream after unreadable records.
	case e.Revision == length+1 || !known && !complete:
	case e.Revision > length+1:
		except("%s missing before it", formatRange(length+1, e.Revision-1))
	default:
		except("it has revision %d, and the one before it %d", e.Revision, length)
	}
	if e.Position.Compare(v.lastPosition) <= 0 {
		except("it stands behind position %s", v.lastPosition)
	}
	held.Revision, held.Unreadable, v.lastPosition = e.Revision, v.unreadable, e.Position
	v.lengths.Put(e.Stream, held)
}

// count sets the counts of calls in v and adds the exceptions, both from the checker.
func (v *Report) count(checker *calls.Checker) {
	n := checker.Counts()
	v.Sessions, v.Calls, v.Open, v.Settled = n.Sessions, n.Calls, n.Open, n.Calls-n.Open
	v.Waiting, v.Imported, v.Orphans = n.Waiting, n.OpenImported, n.OrphansImported
	for _, e := range checker.Exceptions() {
		v.Exceptions = append(v.Exceptions, newExceptionRow(e))
	}
}

// checkIndex compares the first index that exists with the log. An index that the next
// command rebuilds is not compared, nor is one of a log that has lost records.
func (v *Report) checkIndex(ctx context.Context, s *stores.Store, all []*index.Index, p *render.ProgressBar) error {
	err := v.compareFirst(ctx, s, all, p)
	if v.damaged || errors.Is(err, events.ErrDamaged) || errors.Is(err, fs.ErrPermission) {
		v.Index = indexUnread
		return nil
	}
	return err
}

// compareFirst does the work of checkIndex. It returns an events.ErrDamaged if the log has lost
// records, and an fs.ErrPermission if this user may not read the index.
func (v *Report) compareFirst(ctx context.Context, s *stores.Store, all []*index.Index, p *render.ProgressBar) error {
	if v.damaged {
		return nil
	}
	for _, x := range all {
		at, err := x.Status(ctx, s.Ledger)
		switch {
		case err != nil:
			return err
		case at.State == index.Unfit:
			v.Index = indexUnfit
			return nil
		case at.State != index.Absent:
			return v.compareIndex(ctx, s, x, p)
		}
	}
	v.Index = indexAbsent
	return nil
}

// compareIndex compares an index with the log.
func (v *Report) compareIndex(ctx context.Context, s *stores.Store, x *index.Index, p *render.ProgressBar) error {
	found, err := index.Compare(ctx, s.Ledger, x, func(at index.Progress) {
		p.Show("index", render.Records, at.Events, stores.Sequence(at.Position), stores.Sequence(at.Head))
	})
	if err != nil {
		return err
	}
	v.Index = indexEqual
	if found != nil {
		v.Index = indexDifferent
		v.except(calls.Exception{Law: IndexAgrees, Detail: found.String()})
	}
	return nil
}

// checkOutputs checks every output that a settlement names, and adds the exceptions in the
// order of the log. It counts the stored outputs that no settlement names.
func (v *Report) checkOutputs(ctx context.Context, s *stores.Store, checker *calls.Checker, p *render.ProgressBar) error {
	total, passed := checker.Counts().Outputs, 0
	first := len(v.Exceptions)
	for r := range checker.Outputs() {
		p.Show("outputs", func(n int64) string { return render.Count(int(n), "output") }, int64(passed), uint64(passed), uint64(total))
		if passed++; r.Pruned {
			continue
		}
		v.Outputs++
		if err := v.checkOutput(ctx, s.Outputs, *r); err != nil {
			return err
		}
	}
	slices.SortStableFunc(v.Exceptions[first:], func(a, b ExceptionRow) int {
		return cmp.Or(a.Position.Compare(*b.Position), strings.Compare(a.Detail, b.Detail))
	})
	for r, err := range s.Outputs.All(ctx) {
		if errors.Is(err, outputs.ErrDamaged) {
			v.except(calls.Exception{Law: OutputResolves, Detail: err.Error()})
			break
		}
		if err != nil {
			return err
		}
		if !checker.Names(r.Ref) {
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
