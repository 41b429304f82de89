package receipts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// A Discrepancy is a difference or a note at a place of a receipt or of the store.
type Discrepancy struct {
	// Place is a member of the receipt, or a revision of the session.
	Place  string `json:"place"`
	Detail string `json:"detail"`
}

// A Report is the result of a check.
type Report struct {
	Store   string           `json:"store"`
	Receipt string           `json:"receipt"` // the name of the file
	Session domain.SessionID `json:"session"`
	Message domain.MessageID `json:"message"`
	Call    domain.CallID    `json:"call"`
	Outcome *domain.Outcome  `json:"outcome"` // of the settlement in the receipt; null: it has none
	Made    string           `json:"made"`
	Program Program          `json:"program"`
	Events  int              `json:"events"`  // in the receipt
	Outputs int              `json:"outputs"` // in the receipt
	Checked int              `json:"checked"` // outputs whose bytes were read and have their digest
	// Differences contradict the store. Notes are about values that a later or copied store may
	// have otherwise.
	Differences []Discrepancy `json:"differences"`
	Notes       []Discrepancy `json:"notes"`
}

// differ adds a difference.
func (r *Report) differ(place, format string, args ...any) {
	r.Differences = append(r.Differences, Discrepancy{place, fmt.Sprintf(format, args...)})
}

// note adds a note.
func (r *Report) note(place, format string, args ...any) {
	r.Notes = append(r.Notes, Discrepancy{place, fmt.Sprintf(format, args...)})
}

// A storeComparison compares a receipt with a store.
type storeComparison struct {
	*Report
	receipt *Receipt
	store   *stores.Store
	// settled is the settlement of the call in the receipt, at the index of its event. Nil: the
	// receipt has none.
	settled *events.CallSettled
	at      int
	// pruned are the outputs of the call that events of the store prune.
	pruned map[domain.Ref]events.OutputPruned
}

// Options selects the optional checks of Check.
type Options struct {
	Bytes bool // read the kept outputs; else compare the sizes and digests that the store has of them
}

// Check compares a receipt with a store. It returns ErrOtherStore for a store
// that does not begin with the record of the receipt or lacks the session, and an error of the log
// or the outputs; a record that does not decode is a difference.
func Check(ctx context.Context, s *stores.Store, r *Receipt, opts Options) (*Report, error) {
	c := &storeComparison{
		Report: &Report{
			Store: s.Name, Session: r.Call.Session, Message: r.Call.Message, Call: r.Call.Call, Made: r.Made, Program: r.Program,
			Events: len(r.Events), Outputs: len(r.Outputs), Differences: []Discrepancy{}, Notes: []Discrepancy{},
		},
		receipt: r, store: s, pruned: map[domain.Ref]events.OutputPruned{},
	}
	if err := c.checkStore(ctx); err != nil {
		return nil, err
	}
	c.checkSeal()
	c.checkEvents()
	if err := c.checkSession(ctx); err != nil {
		return nil, err
	}
	c.checkRetained()
	for i, o := range r.Outputs {
		if err := c.checkOutput(ctx, i, o, opts.Bytes); err != nil {
			return nil, err
		}
	}
	return c.Report, nil
}

// checkStore compares the first record of the log with that of the receipt.
func (c *storeComparison) checkStore(ctx context.Context) error {
	first, err := storeRef(ctx, c.store)
	switch want := c.receipt.Store; {
	case errors.Is(err, events.ErrDamaged):
		c.differ("store", "the first record of the store cannot be read: %v", err)
	case err != nil:
		return err
	case first.FirstEvent != want.FirstEvent:
		return fmt.Errorf("%w: its log begins with %s, and this one with %s", ErrOtherStore, want.FirstEvent, first.FirstEvent)
	case first.SHA256 != want.SHA256:
		c.differ("store.sha256", "the first record of the log has the SHA-256 %s, and the receipt says %s", first.SHA256, want.SHA256)
	}
	return nil
}

// checkSeal compares the digest of the receipt with its members.
func (c *storeComparison) checkSeal() {
	if r := c.receipt; r.computed != r.SHA256 {
		c.differ("receipt_sha256", "the receipt has the SHA-256 %s, and says %s: it was changed after it was made", r.computed, r.SHA256)
	}
}

// checkEvents checks the events of the receipt without the store: their digests, their order,
// their stream and their roles. It sets c.settled.
func (c *storeComparison) checkEvents() {
	session := events.SessionStream(c.receipt.Call.Session)
	selection, last := calls.NewSelection(c.receipt.Call.key()), events.Revision(0)
	for i, e := range c.receipt.Events {
		place := placeOf(i, e)
		entry, err := e.entry()
		if err != nil { // Read has found it
			c.differ(place, "%v", err)
			continue
		}
		if digest := digestOf(entry); digest != e.SHA256 {
			c.differ(place, "the record has the SHA-256 %s, and the receipt says %s", digest, e.SHA256)
		}
		if e.Stream != session {
			c.differ(place, "it is of the stream %s, and the session of the call is %s", e.Stream, session)
		}
		if e.Revision <= last {
			c.differ(place, "its revision %d follows %d: the events are not in the order of the session", e.Revision, last)
		}
		if e.Revision > c.receipt.Head.Revision {
			c.differ(place, "its revision %d is after the head %d of the receipt", e.Revision, c.receipt.Head.Revision)
		}
		last = max(last, e.Revision)
		v, err := events.Decode(entry)
		if err != nil {
			c.differ(place, "it does not decode: %v", err)
			continue
		}
		if role := selection.Role(v.Event); role != e.Role {
			c.differ(place, "it is %s, and the receipt says %q", roleText(role), e.Role)
		}
		if c.settled == nil {
			if c.settled = settlementOf(c.receipt.Call.key(), nil, v.Event); c.settled != nil {
				c.at, c.Outcome = i, &c.settled.Outcome
			}
		}
	}
}

// placeOf names an event of the receipt.
func placeOf(i int, e RecordedEvent) string {
	return fmt.Sprintf("events[%d], revision %d of %s", i, e.Revision, e.Stream)
}

// roleText returns a role with an article for the text of a finding.
func roleText(role calls.Role) string {
	if role == "" {
		return "no event of the call"
	}
	return fmt.Sprintf("the %s of the call", role)
}

// checkSession reads the session from the store, and compares each event of the call up to the
// head with that of the receipt.
func (c *storeComparison) checkSession(ctx context.Context) error {
	session, head := events.SessionStream(c.receipt.Call.Session), c.receipt.Head
	byRevision := map[events.Revision]int{}
	for i, e := range slices.Backward(c.receipt.Events) {
		byRevision[e.Revision] = i
	}
	selection := calls.NewSelection(c.receipt.Call.key())
	length, unknown, later := events.Revision(0), 0, 0
	for e, err := range c.store.Log.Read(ctx, session, 0) {
		if errors.Is(err, events.ErrDamaged) {
			c.differ(fmt.Sprintf("revision %d of %s", length+1, session), "the store cannot read on: %v", err)
			return nil
		}
		if err != nil {
			return err
		}
		length = e.Revision
		if e.Revision == head.Revision {
			c.checkHead(e)
		}
		v, err := events.Decode(e)
		if err != nil {
			c.differ(fmt.Sprintf("revision %d of %s", e.Revision, session), "the record of the store does not decode: %v", err)
		}
		role := calls.Role("")
		if err == nil {
			role = selection.Role(v.Event)
		}
		switch kind := v.Event.(type) {
		case events.Unknown:
			unknown++
		case events.OutputPruned:
			if role != "" {
				c.pruned[kind.Retained.Ref] = kind
			}
		}
		i, has := byRevision[e.Revision]
		switch {
		case has:
			c.compare(i, e, role)
		case role != "" && e.Revision > head.Revision:
			later++
		case role != "":
			c.differ(fmt.Sprintf("revision %d of %s", e.Revision, session), "the store has %s there, the %s %s, and the receipt lacks it", roleText(role), e.Kind, e.ID)
		}
	}
	if length == 0 {
		return fmt.Errorf("%w: this one has no session %s", ErrOtherStore, c.receipt.Call.Session)
	}
	c.checkLength(length)
	if later > 0 {
		c.note("head", "the store has later events of the call: %d; ledger call prove makes a receipt with them", later)
	}
	if unknown > 0 {
		c.note(string(session), "the session has events of kinds that this program does not know, which it cannot tell to be of the call: %d", unknown)
	}
	return nil
}

// checkHead compares the head of the receipt with the entry at its revision.
func (c *storeComparison) checkHead(e events.Entry) {
	head := c.receipt.Head
	if e.ID != head.Event {
		c.differ("head.event", "at revision %d the store has %s, and the receipt says %s", head.Revision, e.ID, head.Event)
	}
	if e.Position != head.Position {
		c.note("head.position", "the store has the event at position %s, and the receipt says %s: a copy of a store has other positions", e.Position, head.Position)
	}
}

// checkLength reports the head and each event of the receipt behind the end of the session.
func (c *storeComparison) checkLength(length events.Revision) {
	if c.receipt.Head.Revision > length {
		c.differ("head.revision", "the session of the store ends at revision %d, and that of the receipt at %d", length, c.receipt.Head.Revision)
	}
	for i, e := range c.receipt.Events {
		if e.Revision > length {
			c.differ(placeOf(i, e), "the store has no event there: its session ends at revision %d", length)
		}
	}
}

// compare compares event i of the receipt with the entry of the store at its revision, whose role
// in the call is role.
func (c *storeComparison) compare(i int, e events.Entry, role calls.Role) {
	got := c.receipt.Events[i]
	place := placeOf(i, got)
	want := newEvent(role, e)
	for _, m := range []struct {
		name      string
		got, want string
	}{
		{"event", got.ID.String(), want.ID.String()}, {"kind", got.Kind, want.Kind}, {"version", fmt.Sprint(got.Version), fmt.Sprint(want.Version)},
		{"time", got.Time, want.Time}, {"sha256", got.SHA256, want.SHA256},
	} {
		if m.got != m.want {
			c.differ(place, "%s is %q in the receipt, and %q in the store", m.name, m.got, m.want)
		}
	}
	if role == "" {
		c.differ(place, "the event of the store there, the %s %s, is no event of the call", e.Kind, e.ID)
	} else if got.Role != role {
		c.differ(place, "role is %q in the receipt, and the event of the store is %s", got.Role, roleText(role))
	}
	c.compareBytes(place, "data", join(got.Data, got.DataBase64), e.Data)
	c.compareBytes(place, "metadata", join(got.Metadata, got.MetadataBase64), e.Metadata)
	if got.Position != e.Position {
		c.note(place, "the store has it at position %s, and the receipt says %s: a copy of a store has other positions", e.Position, got.Position)
	}
}

// compareBytes reports data or metadata that differ.
func (c *storeComparison) compareBytes(place, name string, got, want []byte) {
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	c.differ(place, "%s differ from byte %d on: the receipt has %d bytes with SHA-256 %s, and the store %d with %s", name, at, len(got), sum(got), len(want), sum(want))
}

// sum returns the SHA-256 of bytes.
func sum(b []byte) string {
	digest := sha256.Sum256(b)
	return hex.EncodeToString(digest[:])
}

// checkRetained compares the outputs of the receipt with those that its settlement names.
func (c *storeComparison) checkRetained() {
	var named []domain.Retained
	if c.settled != nil {
		named = c.settled.Retained
	}
	for i := range max(len(named), len(c.receipt.Outputs)) {
		place := fmt.Sprintf("outputs[%d]", i)
		switch {
		case i >= len(named):
			c.differ(place, "%s is no output that the settlement in the receipt names", c.receipt.Outputs[i].Ref)
		case i >= len(c.receipt.Outputs):
			c.differ(place, "%s is missing, which the settlement in events[%d] names", named[i].Ref, c.at)
		case c.receipt.Outputs[i].Retained != named[i]:
			c.differ(place, "it is %s, and the settlement in events[%d] names %s", retainedText(c.receipt.Outputs[i].Retained), c.at, retainedText(named[i]))
		}
	}
}

// retainedText describes an output.
func retainedText(r domain.Retained) string {
	return fmt.Sprintf("%s with %d bytes in %d lines of %s and the SHA-256 %s", r.Ref, r.Bytes, r.Lines, r.MIME, r.SHA256)
}

// checkOutput compares output i with the store.
func (c *storeComparison) checkOutput(ctx context.Context, i int, o NamedOutput, bytes bool) error {
	place := fmt.Sprintf("outputs[%d], %s", i, o.Ref)
	found, err := c.store.Outputs.Stat(ctx, o.Ref)
	if err == nil && found != o.Retained {
		c.differ(place, "the store has %s, and the receipt %s", retainedText(found), retainedText(o.Retained))
		return nil
	}
	if err == nil && bytes {
		err = c.store.Outputs.Verify(ctx, o.Ref)
	}
	pruned, isPruned := errors.AsType[*outputs.PrunedError](err)
	event, byEvent := c.pruned[o.Ref]
	switch {
	case err == nil:
		c.present(place, o, bytes)
	case isPruned && pruned.Retained != o.Retained:
		c.differ(place, "the store pruned %s, and the receipt has %s", retainedText(pruned.Retained), retainedText(o.Retained))
	case isPruned:
		c.gone(place, pruned.At, pruned.Policy)
	case errors.Is(err, outputs.ErrNotFound) && byEvent:
		c.gone(place, event.Pruned, event.Policy)
	case errors.Is(err, outputs.ErrNotFound) && o.State == Kept:
		c.differ(place, "it was kept, and the store does not have it")
	case errors.Is(err, outputs.ErrNotFound):
		c.note(place, "it was %s, and the store does not have it: only its digest can be compared", o.State)
	case stores.NodeFailed(err):
		c.note(place, "its node cannot be reached, so its bytes were not read: %v", err)
	case errors.Is(err, outputs.ErrDamaged):
		c.differ(place, "the store has other bytes: %v", err)
	default:
		return err
	}
	return nil
}

// present counts an output that the store has with the digest of the receipt.
func (c *storeComparison) present(place string, o NamedOutput, bytes bool) {
	if bytes {
		c.Checked++
	} else {
		c.note(place, "its size and digest are those of the store; its bytes were not read")
	}
	switch o.State {
	case Pruned:
		c.differ(place, "it was pruned when the receipt was made, and the store has it")
	case Unreachable, Missing:
		c.note(place, "it was %s when the receipt was made, and the store has it", o.State)
	}
}

// gone reports an output whose bytes were deleted at a time under a policy.
func (c *storeComparison) gone(place string, at time.Time, policy string) {
	c.note(place, "it was pruned at %s under %q: its bytes are gone, and its digest is that of its settlement", at.UTC().Format(timeForm), policy)
}
