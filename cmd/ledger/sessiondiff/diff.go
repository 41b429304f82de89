package sessiondiff

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/comparison"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// Options are the flags of `ledger session diff`.
type Options struct {
	Ignore []string // classes of differences that do not count
}

// Words returns the values of --ignore.
func Words() []string {
	var words []string
	for _, c := range comparison.Classes() {
		words = append(words, string(c))
	}
	return words
}

// ignored returns the classes to ignore, or a usage error for an unknown one.
func (o Options) ignored() ([]comparison.Class, error) {
	all := []comparison.Class{}
	for _, word := range o.Ignore {
		if !slices.Contains(Words(), word) {
			return nil, fault.Usage("--ignore: %q is not %s", word, strings.Join(Words(), ", "))
		}
		if !slices.Contains(all, comparison.Class(word)) {
			all = append(all, comparison.Class(word))
		}
	}
	return all, nil
}

// A differ compares two sessions up to the revisions that the index has.
type differ struct {
	ctx     context.Context
	s       *stores.Store
	a, b    calls.Session
	ignored []comparison.Class
}

// Diff prints the differences of the sessions that the IDs a and b identify. It returns a
// fault if there are any.
func Diff(ctx context.Context, out *render.Printer, s *stores.Store, r *index.Snapshot, a, b string, opts Options) error {
	ignored, err := opts.ignored()
	if err != nil {
		return err
	}
	d := &differ{ctx: ctx, s: s, ignored: ignored}
	if d.a, err = query.Session(r, a); err != nil {
		return err
	}
	if d.b, err = query.Session(r, b); err != nil {
		return err
	}
	summary, err := comparison.Compare(d.entries(d.a), d.entries(d.b), nil)
	if err != nil {
		return err
	}
	n := summary.Differences(ignored...)
	if out.Format == render.AsTable {
		err = d.print(out, summary, n)
	} else {
		err = render.ObjectWithList(out, d.head(summary, n), "differences", d.rows())
	}
	if err != nil || n == 0 {
		return err
	}
	return &fault.Error{
		Exit: fault.ExitUnverified, Code: "different", Quiet: true,
		Err: fmt.Errorf("sessions %s and %s differ: %s", d.a.ID, d.b.ID, render.Count(n, "difference")),
	}
}

// entries yields the entries of a session.
func (d *differ) entries(s calls.Session) iter.Seq2[timeline.Entry, error] {
	return timeline.Read(d.ctx, d.s.Ledger, s.ID, s.Revision)
}

// differences yields the differences that count.
func (d *differ) differences() iter.Seq2[comparison.Difference, error] {
	return func(yield func(comparison.Difference, error) bool) {
		stopped := false
		_, err := comparison.Compare(d.entries(d.a), d.entries(d.b), func(x comparison.Difference) bool {
			if slices.Contains(d.ignored, x.Class) {
				return true
			}
			stopped = !yield(x, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(comparison.Difference{}, err)
		}
	}
}

// A head is the JSON result of the command but its differences.
type head struct {
	A       side                     `json:"a"`
	B       side                     `json:"b"`
	Same    bool                     `json:"same"`    // no difference counts
	Ignored []comparison.Class       `json:"ignored"` // classes that do not count
	Shared  int                      `json:"shared"`  // steps at the beginning without any difference
	Aligned int                      `json:"aligned"` // steps that both sessions have
	Counts  map[comparison.Class]int `json:"counts"`  // of differences, ignored ones too
	Offers  bool                     `json:"offers"`  // false: a session is an import, so offers are not compared
}

// A side is one of the sessions.
type side struct {
	Session    domain.SessionID `json:"session"`
	Agent      *domain.AgentID  `json:"agent"`
	Model      *string          `json:"model"`
	Revision   events.Revision  `json:"revision"`
	Opened     render.Timestamp `json:"opened"`
	LastEvent  render.Timestamp `json:"last_event"`
	DurationMS int64            `json:"duration_ms"` // from the first to the last event
	RanMS      int64            `json:"ran_ms"`      // the sum of the times that calls ran
	Steps      int              `json:"steps"`
	Prompts    int              `json:"prompts"`
	Replies    int              `json:"replies"`
	Calls      int              `json:"calls"`
	Succeeded  int              `json:"succeeded"`
	Open       int              `json:"open"` // calls without an end: the session may be running
	Tokens     tokens           `json:"tokens"`
	Unknown    []string         `json:"unknown"` // kinds of events that this program does not know
}

// Tokens are the sums of token counts.
type tokens struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
}

// newSide returns the JSON of one session.
func newSide(s calls.Session, c comparison.Side) side {
	return side{
		Session: s.ID, Agent: render.OrNull(s.Agent), Model: render.OrNull(s.Model), Revision: s.Revision, Opened: render.Timestamp(s.Opened), LastEvent: render.Timestamp(s.LastEvent),
		DurationMS: max(0, c.Last.Sub(c.First).Milliseconds()), RanMS: c.Ran.Milliseconds(),
		Steps: c.Steps, Prompts: c.Prompts, Replies: c.Replies, Calls: c.Calls, Succeeded: c.Succeeded, Open: c.Open,
		Tokens: tokens{c.Tokens.Input, c.Tokens.Output, c.Tokens.CacheRead, c.Tokens.CacheWrite}, Unknown: append([]string{}, c.Unknown...),
	}
}

// head returns the JSON of the summary. Counts has every class.
func (d *differ) head(s comparison.Summary, n int) head {
	h := head{
		A: newSide(d.a, s.A), B: newSide(d.b, s.B), Same: n == 0, Ignored: d.ignored, Shared: s.Shared, Aligned: s.Aligned,
		Counts: map[comparison.Class]int{}, Offers: !s.NoOffers,
	}
	for _, c := range comparison.Classes() {
		h.Counts[c] = s.Found[c]
	}
	return h
}

// A row is one difference in JSON.
type row struct {
	Class  comparison.Class  `json:"class"`
	Change comparison.Change `json:"change"`
	A      *where            `json:"a"` // null: the session does not have the step
	B      *where            `json:"b"`
	Tool   *string           `json:"tool"`
	Path   *string           `json:"path"`   // the JSON pointer of the place in an input; null: all of it
	Before *string           `json:"before"` // null: the first session does not have it
	After  *string           `json:"after"`
}

// Where is the place of a difference in one session.
type where struct {
	Step     int              `json:"step"`
	Event    domain.EventID   `json:"event"`
	Position events.Position  `json:"position"`
	Time     render.Timestamp `json:"time"`
	Call     *domain.CallID   `json:"call"`
}

// newWhere returns the JSON of a place, or nil.
func newWhere(w *comparison.Where) *where {
	if w == nil {
		return nil
	}
	return &where{w.Step, w.Event, w.Position, render.Timestamp(w.Time), render.OrNull(w.Call)}
}

// rows yields the JSON of the differences.
func (d *differ) rows() iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		for x, err := range d.differences() {
			r := row{Class: x.Class, Change: x.Change, A: newWhere(x.A), B: newWhere(x.B), Tool: render.OrNull(x.Tool), Path: render.OrNull(x.Path)}
			if x.Change != comparison.Added {
				r.Before = &x.Before
			}
			if x.Change != comparison.Removed {
				r.After = &x.After
			}
			if !yield(r, err) {
				return
			}
		}
	}
}
