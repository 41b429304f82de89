package comparison

import (
	"fmt"
	"iter"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// The limits of a comparison.
const (
	// Window is the number of steps of each session, and of calls of each reply, that are
	// aligned together.
	Window = 256
	// MaxPlaces is the number of differing places of one input that are listed.
	MaxPlaces = 100
)

// A Class is the kind of a difference.
type Class string

// The classes.
const (
	Prompts  Class = "prompts"  // the text of a prompt, or a prompt
	Replies  Class = "replies"  // the text of a reply, or a reply
	Calls    Class = "calls"    // a call that only one session has
	Inputs   Class = "inputs"   // the input of a call
	Outcomes Class = "outcomes" // how a call ended
	Outputs  Class = "outputs"  // what a call returned
	Offers   Class = "offers"   // the tools of a turn, by name and fingerprint
	Models   Class = "models"   // the model that replied
	Tokens   Class = "tokens"   // the token counts of a reply
	Events   Class = "events"   // another event, such as a compaction or an interruption
)

// Classes returns all classes in the order of their importance.
func Classes() []Class {
	return []Class{Prompts, Replies, Calls, Inputs, Outcomes, Outputs, Offers, Models, Tokens, Events}
}

// A Change says which of the sessions has the compared part.
type Change string

// The changes.
const (
	Removed Change = "removed" // only the first session has it
	Added   Change = "added"   // only the second session has it
	Changed Change = "changed" // both have it, with different content
)

// A Difference is one difference of two sessions, A and B.
type Difference struct {
	Class  Class
	Change Change
	// A and B are the places of the step; nil: the session does not have the step.
	A, B *Where
	// Tool is the tool of a call, or a tool of an offer; empty: the difference is about
	// neither.
	Tool string
	// Path is the JSON pointer of the place in an input at which two inputs differ. It is
	// empty for the whole input.
	Path string
	// Before is the content in A, and After in B. They are whole.
	Before, After string
}

// Where is the place of a step in its session.
type Where struct {
	timeline.Place
	// Step is the number of the step in its session, from 1.
	Step int
	// Call is the ID of the call, if the difference is about one.
	Call domain.CallID
}

// A Side has the counts and times of one session.
type Side struct {
	Steps, Prompts, Replies, Calls int
	Succeeded, Open                int // calls
	Events                         int // entries of the timeline
	Tokens                         events.Tokens
	First, Last                    time.Time     // the times of the first and the last entry
	Ran                            time.Duration // the sum of the times that calls ran, as far as they are on record
	// Unknown has each kind of an unknown event once, with its version.
	Unknown []string
	Closed  bool // the session was closed
	// offers reports that a reply has an offer that can be compared, and replied that there
	// is a reply.
	offers, replied bool
}

// Running reports whether a call of the session is open.
func (s *Side) Running() bool { return s.Open > 0 }

// see counts an entry.
func (s *Side) see(e timeline.Entry) {
	s.Events++
	if s.First.IsZero() {
		s.First = e.Time
	}
	s.Last = e.Time
	switch event := e.Event.(type) {
	case events.PromptAdmitted:
		s.Prompts++
	case events.ReplyReceived:
		s.Tokens.Input += event.Tokens.Input
		s.Tokens.Output += event.Tokens.Output
		s.Tokens.CacheRead += event.Tokens.CacheRead
		s.Tokens.CacheWrite += event.Tokens.CacheWrite
	case events.SessionClosed:
		s.Closed = true
	case events.Unknown:
		s.unknown(fmt.Sprintf("%s version %d", event.Name, event.Version))
	}
	for _, c := range e.Calls {
		s.Calls++
		switch {
		case c.End == nil:
			s.Open++
		case c.End.Outcome == domain.Succeeded:
			s.Succeeded++
		}
		if c.End != nil {
			s.Ran += time.Duration(c.End.RanMS) * time.Millisecond
			s.Last = later(s.Last, c.End.Time)
		}
	}
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// maxUnknown is the number of unknown kinds that a Side lists.
const maxUnknown = 20

// unknown adds an unknown kind.
func (s *Side) unknown(kind string) {
	for _, have := range s.Unknown {
		if have == kind {
			return
		}
	}
	if len(s.Unknown) < maxUnknown {
		s.Unknown = append(s.Unknown, kind)
	}
}

// A Summary has the counts of a comparison.
type Summary struct {
	A, B Side
	// Shared is the number of steps at the beginning of both sessions without any
	// difference, and Aligned the number of all pairs.
	Shared, Aligned int
	// Found counts the differences by class.
	Found map[Class]int
	// NoOffers reports that a session has no offers that can be compared.
	NoOffers bool
}

// Differences returns the number of differences whose class is not ignored.
func (s Summary) Differences(ignored ...Class) int {
	n := 0
	for class, found := range s.Found {
		skip := false
		for _, c := range ignored {
			skip = skip || c == class
		}
		if !skip {
			n += found
		}
	}
	return n
}

// Compare yields the differences of two timelines in order, and returns their summary. It
// stops early, with an incomplete summary, when yield returns false. A nil yield counts
// the differences only.
func Compare(a, b iter.Seq2[timeline.Entry, error], yield func(Difference) bool) (Summary, error) {
	c := &comparer{yield: yield, summary: Summary{Found: map[Class]int{}}, alike: true}
	left, right := newWindow(a, &c.summary.A), newWindow(b, &c.summary.B)
	defer left.stop()
	defer right.stop()
	for !c.stopped {
		if err := left.fill(); err != nil {
			return c.summary, err
		}
		if err := right.fill(); err != nil {
			return c.summary, err
		}
		if len(left.held) == 0 && len(right.held) == 0 {
			break
		}
		c.next(left, right)
	}
	c.summary.NoOffers = c.summary.A.replied && !c.summary.A.offers || c.summary.B.replied && !c.summary.B.offers
	return c.summary, nil
}

// A window holds the next steps of a session.
type window struct {
	side *Side
	next func() (*step, error, bool)
	stop func()
	held []*step
	done bool
}

// newWindow returns a window at the beginning of a timeline.
func newWindow(entries iter.Seq2[timeline.Entry, error], side *Side) *window {
	next, stop := iter.Pull2(steps(entries, side))
	return &window{side: side, next: next, stop: stop}
}

// fill reads steps until the window is full or the session ends.
func (w *window) fill() error {
	for len(w.held) < Window && !w.done {
		s, err, ok := w.next()
		switch {
		case !ok:
			w.done = true
		case err != nil:
			return err
		default:
			w.side.Steps++
			if s.kind == replyKind {
				w.side.Replies++
				w.side.replied = true
				w.side.offers = w.side.offers || s.offers
			}
			w.held = append(w.held, s)
		}
	}
	return nil
}

// take removes the first n steps.
func (w *window) take(n int) { w.held = w.held[n:] }

// A comparer compares pairs of steps.
type comparer struct {
	yield   func(Difference) bool
	summary Summary
	alike   bool // all steps so far have no difference
	stopped bool
}

// next compares the next steps of both sessions and removes them.
func (c *comparer) next(a, b *window) {
	same := 0
	for same < min(len(a.held), len(b.held)) && a.held[same].key == b.held[same].key {
		c.pair(a.held[same], b.held[same])
		same++
	}
	if same > 0 {
		a.take(same)
		b.take(same)
		return
	}
	pairs := align(len(a.held), len(b.held), func(i, j int) int { return a.held[i].similarity(b.held[j]) })
	// Steps behind the last equal pair may have a better pair that is not read yet.
	endA, endB := len(a.held), len(b.held)
	if !a.done || !b.done {
		for _, p := range pairs {
			if a.held[p[0]].key == b.held[p[1]].key {
				endA, endB = p[0]+1, p[1]+1
			}
		}
	}
	i, j := 0, 0
	for _, p := range append(pairs, [2]int{endA, endB}) {
		for ; i < min(p[0], endA); i++ {
			c.only(a.held[i], Removed)
		}
		for ; j < min(p[1], endB); j++ {
			c.only(b.held[j], Added)
		}
		if p[0] >= endA || p[1] >= endB {
			break
		}
		c.pair(a.held[i], b.held[j])
		i, j = i+1, j+1
	}
	a.take(endA)
	b.take(endB)
}

// add yields a difference.
func (c *comparer) add(d Difference) {
	if c.stopped {
		return
	}
	c.alike = false
	c.summary.Found[d.Class]++
	if c.yield != nil && !c.yield(d) {
		c.stopped = true
	}
}

// classOf returns the class of the text of a step.
func classOf(k kind) Class {
	switch k {
	case promptKind:
		return Prompts
	case replyKind:
		return Replies
	}
	return Events
}

// where returns the place of a step, and of a call in it.
func (s *step) where(call domain.CallID) *Where { return &Where{s.at, s.number, call} }

// only reports a step that one session has.
func (c *comparer) only(s *step, change Change) {
	d := Difference{Class: classOf(s.kind), Change: change}
	text := s.text
	if d.Class == Events {
		text = string(s.kind) + "\n" + s.text
	}
	for _, called := range s.calls {
		if text != "" {
			text += "\n"
		}
		text += fmt.Sprintf("→ %s %s: %s", called.Asked.Name, called.input, called.outcome())
	}
	if change == Removed {
		d.A, d.Before = s.where(""), text
	} else {
		d.B, d.After = s.where(""), text
	}
	c.add(d)
}

// pair compares two aligned steps.
func (c *comparer) pair(a, b *step) {
	c.summary.Aligned++
	changed := func(class Class, before, after string) {
		if before != after {
			c.add(Difference{Class: class, Change: Changed, A: a.where(""), B: b.where(""), Before: before, After: after})
		}
	}
	if a.offers && b.offers {
		c.offers(a, b)
	}
	changed(classOf(a.kind), a.text, b.text)
	if a.kind == replyKind {
		if a.model() != "" && b.model() != "" {
			changed(Models, a.model(), b.model())
		}
		changed(Tokens, tokensText(a.reply.Tokens), tokensText(b.reply.Tokens))
		c.calls(a, b)
	}
	if c.alike {
		c.summary.Shared++
	}
}

// tokensText returns token counts as a text.
func tokensText(t events.Tokens) string {
	if t == (events.Tokens{}) {
		return ""
	}
	return fmt.Sprintf("%d input, %d output, %d read from the cache, %d written to it", t.Input, t.Output, t.CacheRead, t.CacheWrite)
}

// offers compares the tools that two turns offered.
func (c *comparer) offers(a, b *step) {
	definitions := func(s *step) (names []string, by map[string]string) {
		by = map[string]string{}
		for _, t := range s.turn.Tools {
			if _, again := by[string(t.Name)]; !again {
				names = append(names, string(t.Name))
			}
			by[string(t.Name)] = t.Fingerprint.String()
		}
		return names, by
	}
	namesA, inA := definitions(a)
	namesB, inB := definitions(b)
	add := func(tool string, change Change, before, after string) {
		c.add(Difference{Class: Offers, Change: change, A: a.where(""), B: b.where(""), Tool: tool, Before: before, After: after})
	}
	for _, name := range namesA {
		after, ok := inB[name]
		switch {
		case !ok:
			add(name, Removed, inA[name], "")
		case after != inA[name]:
			add(name, Changed, inA[name], after)
		}
	}
	for _, name := range namesB {
		if _, ok := inA[name]; !ok {
			add(name, Added, "", inB[name])
		}
	}
}

// calls aligns and compares the calls of two replies.
func (c *comparer) calls(a, b *step) {
	n, m := min(len(a.calls), Window), min(len(b.calls), Window)
	pairs := align(n, m, func(i, j int) int {
		x, y := a.calls[i], b.calls[j]
		switch {
		case x.Asked.Name != y.Asked.Name || (x.Parent == "") != (y.Parent == ""):
			return 0
		case x.key == y.key:
			return 100
		}
		return 40
	})
	// Calls beyond the window are pairs by their number.
	for k := 0; n+k < len(a.calls) && m+k < len(b.calls); k++ {
		if a.calls[n+k].Asked.Name == b.calls[m+k].Asked.Name {
			pairs = append(pairs, [2]int{n + k, m + k})
		}
	}
	i, j := 0, 0
	for _, p := range append(pairs, [2]int{len(a.calls), len(b.calls)}) {
		for ; i < p[0]; i++ {
			c.add(Difference{Class: Calls, Change: Removed, A: a.where(a.calls[i].Asked.ID), B: b.where(""), Tool: a.calls[i].Asked.Name, Before: callText(a.calls[i])})
		}
		for ; j < p[1]; j++ {
			c.add(Difference{Class: Calls, Change: Added, A: a.where(""), B: b.where(b.calls[j].Asked.ID), Tool: b.calls[j].Asked.Name, After: callText(b.calls[j])})
		}
		if i < len(a.calls) && j < len(b.calls) {
			c.call(a, b, a.calls[i], b.calls[j])
			i, j = i+1, j+1
		}
	}
}

// callText returns the input and the outcome of a call.
func callText(c call) string { return fmt.Sprintf("%s: %s", c.input, c.outcome()) }

// call compares two calls.
func (c *comparer) call(a, b *step, x, y call) {
	d := Difference{Change: Changed, A: a.where(x.Asked.ID), B: b.where(y.Asked.ID), Tool: x.Asked.Name}
	if x.key != y.key {
		for _, place := range placesOf(x.input, y.input) {
			d := d
			d.Class, d.Change, d.Path, d.Before, d.After = Inputs, place.change, place.path, place.before, place.after
			c.add(d)
		}
	}
	if x.outcome() != y.outcome() {
		d := d
		d.Class, d.Before, d.After = Outcomes, x.outcome(), y.outcome()
		c.add(d)
	}
	if before, after := x.result(), y.result(); before != after {
		d := d
		d.Class, d.Before, d.After = Outputs, before, after
		c.add(d)
	} else if before, after := x.kept(), y.kept(); before != after {
		d := d
		d.Class, d.Before, d.After = Outputs, before, after
		c.add(d)
	}
}
