package indexing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/index"
)

// openIndex calls use with the store that o names, opened to read it, and its index.
func openIndex(ctx context.Context, o *stores.Opener, use func(*stores.Store, *index.Index) error) error {
	at, err := o.Where()
	if err != nil {
		return err
	}
	s, err := o.OpenToReadAt(ctx, at)
	if err != nil {
		return err
	}
	all, err := Indexes(o, at)
	if err == nil && len(all) == 0 {
		err = fault.Usage("no folder for the index: the folder of the store cannot be written, and HOME and XDG_CACHE_HOME are not set")
	}
	if err == nil {
		err = index.ErrUnwritable
	}
	for _, x := range all {
		if errors.Is(err, index.ErrUnwritable) {
			err = use(s, x)
		}
	}
	return errors.Join(err, s.Close())
}

// Indexes returns the indexes that a store may have, the best one first. They need not
// exist.
func Indexes(o *stores.Opener, at stores.Address) ([]*index.Index, error) {
	folders, err := o.IndexFolders(at)
	all := make([]*index.Index, len(folders))
	for i, dir := range folders {
		all[i] = index.New(dir)
	}
	return all, err
}

// reporter returns a function that shows the progress of a fill, and the function that
// ends the display. A fill that ends before its first report shows nothing.
func reporter(p *render.Printer) (func(index.Progress), func()) {
	bar, shown := p.Progress(), false
	return func(at index.Progress) {
		if ended := !at.Head.IsZero() && at.Position.Compare(at.Head) >= 0; ended && !shown {
			return
		}
		shown = true
		bar.Show("index", render.Records, at.Events, stores.Sequence(at.Position), stores.Sequence(at.Head))
	}, bar.End
}

// An Answerer answers the questions of reading commands from the index of the store that
// Opener names.
type Answerer struct {
	Printer *render.Printer
	Opener  *stores.Opener
	NoWait  bool // answer from the index as it is, and say how far behind the log it is
}

// Read opens the store to read it and calls use with it and with a snapshot of its index, as
// Answer does.
func (a *Answerer) Read(ctx context.Context, use func(*stores.Store, *index.Snapshot) error) error {
	return a.Opener.Read(ctx, func(s *stores.Store) error {
		return a.Answer(ctx, s, func(r *index.Snapshot) error { return use(s, r) })
	})
}

// Answer makes the index of an open store current and calls use with a snapshot of it. If
// the index turns out to be damaged, Answer rebuilds it and calls use again, so use prints
// nothing before its last question.
func (a *Answerer) Answer(ctx context.Context, s *stores.Store, use func(*index.Snapshot) error) error {
	at, err := a.Opener.Where()
	if err != nil {
		return err
	}
	all, err := Indexes(a.Opener, at)
	if err != nil {
		return err
	}
	for i, x := range all {
		if err := a.from(ctx, s, x, use); !errors.Is(err, index.ErrUnwritable) && !(a.NoWait && errors.Is(err, index.ErrNoIndex) && i < len(all)-1) {
			return reported(err)
		}
	}
	return reported(a.fromMemory(ctx, s, use))
}

// from answers from the index in a folder. It returns an index.ErrUnwritable if it cannot
// make it current.
func (a *Answerer) from(ctx context.Context, s *stores.Store, x *index.Index, use func(*index.Snapshot) error) error {
	if a.NoWait {
		if err := warnBehind(ctx, a.Printer, s, x); err != nil {
			return err
		}
		return answer(ctx, x, use)
	}
	if err := catchUp(ctx, a.Printer, s, x); err != nil {
		return err
	}
	err := answer(ctx, x, use)
	if errors.Is(err, index.ErrDamagedIndex) {
		if err := rebuild(ctx, a.Printer, s, x, (*index.Index).Rebuild); err != nil {
			return err
		}
		err = answer(ctx, x, use)
	}
	return err
}

// fromMemory answers from an index in memory, for a machine on which no folder can be
// written.
func (a *Answerer) fromMemory(ctx context.Context, s *stores.Store, use func(*index.Snapshot) error) error {
	report, end := reporter(a.Printer)
	r, err := index.InMemory(ctx, s.Ledger, report)
	end()
	if err != nil {
		return err
	}
	return errors.Join(use(r), r.Close())
}

// answer calls use with a snapshot of an index.
func answer(ctx context.Context, x *index.Index, use func(*index.Snapshot) error) error {
	r, err := x.Snapshot(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(r), r.Close())
}

// catchUp makes the index current.
func catchUp(ctx context.Context, p *render.Printer, s *stores.Store, x *index.Index) error {
	report, end := reporter(p)
	defer end()
	return x.CatchUp(ctx, s.Ledger, report)
}

// A statusRow is the JSON result of ledger index status and ledger index rebuild.
type statusRow struct {
	Store    string           `json:"store"`
	Path     string           `json:"path"`
	State    string           `json:"state"`  // absent, current, behind or unfit
	Reason   *string          `json:"reason"` // why it is unfit
	Schema   int64            `json:"schema"`
	FullText bool             `json:"full_text"`
	Bytes    int64            `json:"bytes"`
	Events   int64            `json:"events"`
	Position *events.Position `json:"position"` // of the last event that the index has
	Event    *string          `json:"event"`
	Time     *string          `json:"time"`
	Head     *events.Position `json:"head"`    // of the last event of the log
	Seconds  *float64         `json:"seconds"` // of a rebuild
}

// print writes the row.
func (r statusRow) print(p *render.Printer) error {
	return p.Object(r, func() {
		last := ""
		if r.Position != nil {
			last = fmt.Sprintf("position %s, %s, of %s", r.Position, render.ValueOf(r.Event), render.ValueOf(r.Time))
		}
		head, state := "", r.State
		if r.Head != nil {
			head = "position " + r.Head.String()
		}
		if r.Reason != nil {
			state += ": " + render.Printable(*r.Reason)
		}
		took := ""
		if r.Seconds != nil {
			took = render.Duration(time.Duration(*r.Seconds * float64(time.Second)))
		}
		size := ""
		if r.State != index.Absent {
			text := "with full text"
			if !r.FullText {
				text = "without full text"
			}
			size = fmt.Sprintf("%s, %s, schema %d, %s", render.Count(int(r.Events), "event"), render.Bytes(r.Bytes), r.Schema, text)
		}
		p.Fields("store", render.Printable(r.Store), "index", render.Printable(r.Path), "state", state, "holds", size, "last event", last, "log", head, "took", took)
	})
}

// statusOf returns the row of an index.
func statusOf(ctx context.Context, s *stores.Store, x *index.Index) (statusRow, error) {
	at, err := x.Status(ctx, s.Ledger)
	return statusRow{
		Store: s.Name, Path: at.Path, State: at.State, Reason: render.OrNull(at.Reason), Schema: at.Schema, FullText: at.Text, Bytes: at.Bytes, Events: at.Events,
		Position: render.OrNull(at.Position), Event: render.OrNull(at.Event), Time: render.OrNull(at.Time), Head: render.OrNull(at.Head),
	}, err
}

// Status prints how far the index of the store that o names is. It changes nothing.
func Status(ctx context.Context, p *render.Printer, o *stores.Opener) error {
	return openIndex(ctx, o, func(s *stores.Store, x *index.Index) error {
		row, err := statusOf(ctx, s, x)
		if err != nil {
			return err
		}
		return row.print(p)
	})
}

// A Filling is the function with which Rebuild fills an index, such as index.Index.Rebuild.
type Filling func(*index.Index, context.Context, *events.Ledger, func(index.Progress)) error

// Rebuild fills the index of the store that o names from the beginning of the log, replaces
// the old one and prints the result.
func Rebuild(ctx context.Context, p *render.Printer, o *stores.Opener, fill Filling) error {
	return openIndex(ctx, o, func(s *stores.Store, x *index.Index) error {
		began := p.Now()
		if err := rebuild(ctx, p, s, x, fill); err != nil {
			return err
		}
		row, err := statusOf(ctx, s, x)
		if err != nil {
			return err
		}
		took := p.Now().Sub(began).Seconds()
		row.Seconds = &took
		return row.print(p)
	})
}

// rebuild fills the index anew, with a progress bar.
func rebuild(ctx context.Context, p *render.Printer, s *stores.Store, x *index.Index, fill Filling) error {
	report, end := reporter(p)
	defer end()
	return fill(x, ctx, s.Ledger, report)
}

// reported maps an error of package index to a fault. It returns a fault as it is.
func reported(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, index.ErrNoText):
		return fault.WithHint(fault.Usage("sql: %w", err), "ledger index rebuild --text adds it")
	case errors.Is(err, index.ErrStatement):
		return fault.WithHint(fault.Usage("sql: %w", err), "docs/schema.md describes the tables; a statement can only read")
	case errors.Is(err, index.ErrNoIndex):
		f := fault.NotFound("leave --no-wait out, or run ledger index rebuild", "%w", err)
		f.Command = "ledger index rebuild"
		return f
	case errors.Is(err, index.ErrUnwritable):
		return fault.WithHint(err, "set XDG_CACHE_HOME to a folder on a disk with space")
	case errors.Is(err, index.ErrDamagedIndex):
		return fault.WithHint(err, "ledger index rebuild fills it anew")
	}
	return err
}
