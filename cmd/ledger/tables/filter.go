package tables

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/projections/index"
)

// A Filter selects the rows that match all of its fields, as the flags give them. The zero
// Filter selects all rows of a table.
type Filter struct {
	Session  string       // an ID, shortened or not
	Agent    string       // of calls and turns
	Tool     string       // of calls and registrations
	Location string       // of the layer of registrations
	Outcomes []string     // of calls
	Open     bool         // only calls without a settlement
	When     query.Period // of the reply that asks, of the turn, of the registration
	// More has the flags Path, By, Text and Where of the lists of calls and turns. SQLite lists
	// the rows that they select before the first row is written. The other fields are compared
	// with each row in turn, so that an export by period needs no list of its rows.
	More query.Filter
}

// A selection is a condition over the columns of the tables of the index that a table is made
// of, with its arguments: texts and int64 numbers.
type selection struct {
	Condition string `json:"condition"`
	Args      []any  `json:"args"`
}

// UnmarshalJSON decodes numbers as int64.
func (s *selection) UnmarshalJSON(data []byte) error {
	type plain selection
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode((*plain)(s)); err != nil {
		return err
	}
	for i, arg := range s.Args {
		if n, ok := arg.(json.Number); ok {
			whole, err := n.Int64()
			if err != nil {
				return err
			}
			s.Args[i] = whole
		}
	}
	return nil
}

// add adds a condition.
func (s *selection) add(condition string, args ...any) {
	if s.Condition != "" {
		s.Condition += " AND "
	}
	s.Condition, s.Args = s.Condition+condition, append(s.Args, args...)
}

// given returns the filter as the flags gave it, which identifies an export. Times such as 2d
// and IDs such as @last mean something else later, and the same here.
func (f Filter) given() map[string]any {
	since, until := f.When.Given()
	all := map[string]any{"session": f.Session, "agent": f.Agent, "tool": f.Tool, "location": f.Location, "outcome": strings.Join(f.Outcomes, ","), "open": f.Open, "since": since, "until": until,
		"path": f.More.Path, "by": f.More.By, "text": f.More.Text, "where": f.More.Where}
	for name, v := range all {
		if v == "" || v == false {
			delete(all, name)
		}
	}
	return all
}

// The columns of the conditions of each table, by the field of Filter.
var (
	callFields         = map[string]string{"session": "session", "agent": "+agent", "tool": "tool", "time": "+asked_time"}
	turnFields         = map[string]string{"session": "turns.session", "agent": "+turns.agent", "time": "+turns.time"}
	registrationFields = map[string]string{"session": "+layers.session", "tool": "+registered_tools.tool", "location": "+layers.location", "time": "+registrations.registered_time"}
)

// compile returns the selection of the filter. An unknown session, tool, agent, location or
// outcome is a usage or not-found fault.
//
// A unary plus keeps SQLite from sorting: all rows are read in the order of the table. Only a
// session, and a tool of calls, have an index in that order.
func (f Filter) compile(p *render.Printer, r *index.Snapshot, fields map[string]string) (selection, error) {
	s := selection{Args: []any{}}
	if err := f.When.Resolve(p); err != nil {
		return s, err
	}
	if f.Session != "" {
		session, err := query.Session(r, f.Session)
		if err != nil {
			return s, err
		}
		s.add(fields["session"]+" = ?", session.ID.String())
	}
	if f.Tool != "" {
		if err := query.CheckTool(r, f.Tool); err != nil {
			return s, err
		}
		column := fields["tool"]
		if s.Condition != "" {
			column = "+" + strings.TrimPrefix(column, "+")
		}
		s.add(column+" = ?", f.Tool)
	}
	if f.Agent != "" {
		if err := query.CheckAgent(r, f.Agent); err != nil {
			return s, err
		}
		s.add(fields["agent"]+" = ?", f.Agent)
	}
	if f.Location != "" {
		location, err := query.AbsoluteLocation("location", f.Location)
		if err != nil {
			return s, err
		}
		s.add(fields["location"]+" = ?", location)
	}
	from, to := f.When.Bounds()
	if !from.IsZero() {
		s.add(fields["time"]+" >= ?", render.Timestamp(from).String())
	}
	if !to.IsZero() {
		s.add(fields["time"]+" < ?", render.Timestamp(to).String())
	}
	if err := f.addOutcomes(&s); err != nil {
		return s, err
	}
	return s, f.addMore(p, r, fields, &s)
}

// addMore adds the condition of More.
func (f Filter) addMore(p *render.Printer, r *index.Snapshot, fields map[string]string, s *selection) error {
	list := query.CallList
	if fields["session"] == turnFields["session"] {
		list = query.TurnList
	}
	more, err := f.More.Resolve(p, r, list)
	if err != nil {
		return err
	}
	condition, args := more.Calls.Condition()
	if list.Noun == query.TurnList.Noun {
		condition, args = index.TurnQuery{Calls: more.Calls, Where: more.Where}.Condition()
	}
	if condition != "" {
		s.add(condition, args...)
	}
	return nil
}

// addOutcomes adds the conditions of Outcomes and Open.
func (f Filter) addOutcomes(s *selection) error {
	if f.Open {
		s.add("+state <> 'settled'")
	}
	if len(f.Outcomes) == 0 {
		return nil
	}
	var any []string
	for _, word := range f.Outcomes {
		if !slices.Contains(query.OutcomeWords(), word) {
			return fault.Usage("--outcome: %q is not %s", word, strings.Join(query.OutcomeWords(), ", "))
		}
		if word == render.OpenOutcome {
			any = append(any, "+state <> 'settled'")
			continue
		}
		any = append(any, "+outcome = ?")
		s.Args = append(s.Args, word)
	}
	s.add("(" + strings.Join(any, " OR ") + ")")
	return nil
}
