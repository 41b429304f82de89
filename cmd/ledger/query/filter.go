package query

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/projections/index/where"
	"github.com/spf13/cobra"
)

// A Filter has the flags that select the rows of a list. Each flag has the same meaning in
// every list: --session, --agent and the period are about the row, and --tool, --outcome,
// --path, --by and --text about a call that the row is, or that it has to do with.
type Filter struct {
	Session  string   // an ID, shortened or not; empty: all sessions
	Agent    string   // empty: all agents
	Tool     string   // empty: all tools
	Outcomes []string // of OutcomeWords; empty: all outcomes
	Path     string   // a path as the user writes it; empty: all calls
	By       string   // who decided a request; empty: all calls
	Text     string   // words of an input or a shown text; empty: all calls
	Where    string   // a condition over the fields of the list; empty: all rows
	When     Period
	Limit    int // the number of rows, from the end of the log; 0: no limit
	Skip     int // the number of rows at the end of the log that are left out before
}

// A List is a kind of rows that a Filter selects.
type List struct {
	Noun   string // of the rows, in the plural
	Period string // the rows of --since and --until, such as "those asked for"
	Fields []where.Field
	Sum    bool // the rows are summed up, so the list has no --limit
}

// The lists.
var (
	CallList    = List{Noun: "calls", Period: "those asked for", Fields: index.CallFields}
	SessionList = List{Noun: "sessions", Period: "those with an event", Fields: index.SessionFields}
	TurnList    = List{Noun: "turns", Period: "those materialized", Fields: index.TurnFields}
	RequestList = List{Noun: "requests", Period: "those made", Fields: index.RequestFields}
	TextList    = List{Noun: "texts", Period: "those recorded", Fields: index.TextFields}
)

// OutcomeWords returns the values of --outcome: open, and the outcomes of settlements.
func OutcomeWords() []string {
	words := []string{render.OpenOutcome}
	for _, o := range domain.Outcomes() {
		words = append(words, o.String())
	}
	return words
}

// AddFlags adds the flags of a list to cmd.
func (f *Filter) AddFlags(cmd *cobra.Command, list List) {
	such := "with such a call: "
	if list.Noun == CallList.Noun {
		such = ""
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Session, "session", "", "only "+list.Noun+" of this session")
	flags.StringVar(&f.Agent, "agent", "", "only "+list.Noun+" of this agent")
	flags.StringVar(&f.Tool, "tool", "", such+"only calls of this tool")
	flags.StringSliceVar(&f.Outcomes, "outcome", nil, such+"only calls with one of these outcomes: "+strings.Join(OutcomeWords(), ", "))
	flags.StringVar(&f.Path, "path", "", such+"only calls that read, wrote or ran on this path, on one below it, or on one that ends with it; * is any text")
	if !list.Sum { // there --by names the groups
		flags.StringVar(&f.By, "by", "", such+"only calls with a request that this decided: rule, approval, user, headless, recovery, or an OS user")
	}
	if list.Noun != TextList.Noun {
		flags.StringVar(&f.Text, "text", "", such+"only calls with these words in the input or in what the model read")
	}
	f.When.AddFlags(cmd, list.Period)
	flags.StringVar(&f.Where, "where", "", "only "+list.Noun+" for which this condition holds, such as "+examples[list.Noun]+"; see docs/queries.md")
	if !list.Sum {
		flags.IntVar(&f.Limit, "limit", 0, "at most this many, the last ones (0: all)")
		flags.IntVar(&f.Skip, "skip", 0, "leave this many out, the last ones: --limit 20 --skip 20 is the page before the last")
	}
}

// examples are the conditions in the help texts of --where.
var examples = map[string]string{
	CallList.Noun: `'tool = bash and took > 1.5s'`, SessionList.Noun: `'calls > 0 and requests = 0'`, TurnList.Noun: `'offered = bash and calls = 0'`,
	RequestList.Noun: `'action = bash and by = user'`, TextList.Noun: `'kind = prompt'`,
}

// FieldsHelp returns the names of the fields of a list, for the help text of its command.
func (l List) FieldsHelp() string {
	names := make([]string, len(l.Fields))
	for i, f := range l.Fields {
		names[i] = f.Name
	}
	lines, line := []string{}, "  "
	for i, name := range names {
		if i < len(names)-1 {
			name += ","
		}
		if len(line)+len(name) > 78 {
			lines, line = append(lines, line), "  "
		}
		line += strings.Repeat(" ", min(1, len(line)-2)) + name
	}
	return "\nThe fields of --where (docs/queries.md describes them):\n" + strings.Join(append(lines, line), "\n")
}

// A Selection is a resolved Filter.
type Selection struct {
	Session domain.SessionID // zero: all sessions
	// Calls has the flags about calls. For the list of calls it has all flags.
	Calls index.CallQuery
	// Where is the condition over the fields of the list.
	Where *where.Expr
}

// Resolve checks the flags and returns what they select in a list. An unknown session, agent, tool,
// outcome or path is an error, and not an empty list.
func (f *Filter) Resolve(out *render.Printer, r *index.Snapshot, list List) (s Selection, err error) {
	for _, word := range f.Outcomes {
		if !slices.Contains(OutcomeWords(), word) {
			return s, fault.Usage("--outcome: %q is not %s", word, strings.Join(OutcomeWords(), ", "))
		}
	}
	if err := f.When.Resolve(out); err != nil {
		return s, err
	}
	if err := CheckLimit(f.Limit); err != nil {
		return s, err
	}
	if f.Skip < 0 {
		return s, fault.Usage("--skip: %d is below zero", f.Skip)
	}
	if s.Where, err = Where(out, f.Where, list.Fields); err != nil {
		return s, err
	}
	if f.Session != "" {
		var found calls.Session
		if found, err = Session(r, f.Session); err != nil {
			return s, err
		}
		s.Session = found.ID
	}
	if err := CheckTool(r, f.Tool); err != nil {
		return s, err
	}
	if err := CheckAgent(r, f.Agent); err != nil {
		return s, err
	}
	q := &s.Calls
	q.Tool, q.By, q.Open = f.Tool, f.By, slices.Contains(f.Outcomes, render.OpenOutcome)
	for _, o := range domain.Outcomes() {
		if slices.Contains(f.Outcomes, o.String()) {
			q.Outcomes = append(q.Outcomes, o)
		}
	}
	if f.Path != "" {
		if q.Paths, err = FindPath(r, "--path", f.Path); err != nil {
			return s, err
		}
	}
	if f.Text != "" {
		if q.Phrase, err = Phrase("--text", f.Text); err != nil {
			return s, err
		}
		if !r.HasText() {
			return s, NoText()
		}
	}
	if list.Noun == CallList.Noun {
		q.Session, q.Agent, q.Where, q.Limit, q.Skip = s.Session, f.Agent, s.Where, f.Limit, f.Skip
		q.From, q.To = f.When.Bounds()
	}
	return s, nil
}

// Empty returns the text of a list without rows.
func (f *Filter) Empty(out *render.Printer, list List) string {
	text := "No " + list.Noun
	from, to := f.When.Bounds()
	if !from.IsZero() {
		text += " since " + out.Milliseconds(from)
	}
	if !to.IsZero() {
		text += " before " + out.Milliseconds(to)
	}
	if f.Session+f.Agent+f.Tool+f.Path+f.By+f.Text+f.Where != "" || len(f.Outcomes) > 0 || f.Skip > 0 {
		text += " fit the flags"
	}
	return text + "."
}

// Where parses the condition of --where over fields.
func Where(out *render.Printer, text string, fields []where.Field) (*where.Expr, error) {
	e, err := where.Parse(text, fields, out.ParseTime)
	if wrong, ok := errors.AsType[*where.Error](err); ok {
		f := fault.Usage("--where: %w", err)
		f.Hint = "a condition is such as tool = bash and took > 1.5s; docs/queries.md describes it"
		if wrong.Names != nil {
			f.Hint = "did you mean " + wrong.Names[0] + "? known, the most similar first: " + strings.Join(wrong.Names, ", ")
		}
		return nil, f
	}
	return e, err
}

// Phrase returns the words of a text to search for. flag names the text in errors.
func Phrase(flag, text string) (index.Phrase, error) {
	phrase, err := index.NewPhrase(text)
	if err != nil {
		return phrase, fault.WithHint(fault.Usage("%s: %w", flag, err), "ledger search finds words; --where 'text ~ \"…\"' of ledger search compares characters")
	}
	return phrase, nil
}

// NoText returns the error of a search in an index without full text.
func NoText() error {
	f := fault.Usage("%w", index.ErrNoText)
	f.Hint, f.Command = "ledger index rebuild --text adds it", "ledger index rebuild --text"
	return f
}

// FindPath returns the recorded paths that a text means: a path, absolute or relative to the
// working directory, or the paths below it, or else those that end with it. In a text with *
// that is any text. A text that fits no path, or the ends of several, is an error. flag names
// the text in errors.
func FindPath(r *index.Snapshot, flag, text string) (index.Paths, error) {
	folder, err := os.Getwd()
	if err != nil {
		return index.Paths{}, err
	}
	exact, below, ending, err := r.FindPaths(folder, text)
	switch {
	case errors.Is(err, index.ErrManyPaths):
		return exact, fault.Usage("%s: %q: %w", flag, text, err)
	case err != nil:
		return exact, err
	case len(exact.Names()) > 0:
		return index.JoinPaths(exact, below), nil
	case len(below.Names()) > 0:
		return below, nil
	case len(ending.Names()) == 1:
		return ending, nil
	case len(ending.Names()) == 0:
		return exact, fault.NotFound("a path is absolute, relative to the working directory, or the end of a recorded one; with * it is a pattern", "%s: no call has a path %q", flag, text)
	}
	f := fault.Usage("%s: %q is ambiguous: %d paths end with it", flag, text, len(ending.Names()))
	f.Code, f.Hint = "ambiguous", "write more of the path, or a pattern such as '*/"+text+"' for all of them"
	f.Candidates = ending.Names()
	if n := len(f.Candidates); n > maxCandidates {
		f.Candidates = append(slices.Clone(f.Candidates[:maxCandidates]), "and others")
	}
	return exact, f
}
