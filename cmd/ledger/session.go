package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/spf13/cobra"
)

// sessionCommand returns the group ledger session.
func (a *app) sessionCommand() *cobra.Command {
	return a.group("session", "Sessions: list them, show one, follow one",
		a.sessionList(), a.sessionShow(), a.sessionTail())
}

// A sessionFilter selects the sessions that ledger session ls lists.
type sessionFilter struct {
	agent string       // empty: all agents
	when  query.Period // overlaps the time from the opening to the last event
	limit int          // the last so many; 0: all
}

// sessionList returns the command ledger session ls.
func (a *app) sessionList() *cobra.Command {
	var filter sessionFilter
	cmd := &cobra.Command{
		Use: "ls", Short: "List sessions, in the order of the log",
		Example: "  ledger session ls\n  ledger session ls --since 2d --limit 20\n  ledger session ls -o json | jq '.[] | select(.open > 0)'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error { return a.listSessions(cmd.Context(), s, filter) })
		},
	}
	cmd.Flags().StringVar(&filter.agent, "agent", "", "only those of this agent")
	filter.when.AddFlags(cmd, "those with an event")
	must(cmd.RegisterFlagCompletionFunc("agent", a.complete(query.AgentWords)))
	cmd.Flags().IntVar(&filter.limit, "limit", 0, "only so many, the last ones (0: all)")
	return cmd
}

// listSessions prints the selected sessions in the order of the log.
func (a *app) listSessions(ctx context.Context, s *stores.Store, filter sessionFilter) error {
	if err := filter.when.Resolve(a.Printer); err != nil {
		return err
	}
	state, err := stores.Current(ctx, s, calls.Projection())
	if err != nil {
		return err
	}
	if err := query.CheckAgent(state, filter.agent); err != nil {
		return err
	}
	sessions := slices.DeleteFunc(state.Sessions(), func(known calls.Session) bool {
		return filter.agent != "" && string(known.Agent) != filter.agent || filter.when.StartsAfter(known.LastEvent) || filter.when.EndsBy(known.Opened)
	})
	if sessions, err = query.LastN(sessions, filter.limit); err != nil {
		return err
	}
	rows := make([]sessionRow, len(sessions))
	for i, known := range sessions {
		rows[i] = sessionRowOf(known)
	}
	return render.Rows(a.Printer, rows, func() { a.Table(a.sessionTable(sessions)) })
}

// sessionTable returns the table of sessions for a person.
func (a *app) sessionTable(sessions []calls.Session) render.Table {
	t := render.Table{
		Head:  []string{"SESSION", "~AGENT", "?ORIGIN", "STATE", "?>PROMPTS", ">CALLS", ">OPEN", "?>FAILED", "LAST EVENT", "~TITLE"},
		Empty: "No sessions.",
	}
	for _, s := range sessions {
		t.Add(render.ShortID(s.ID), render.OneLine(string(s.Agent), 20), origin(s.Origin), a.sessionState(s), fmt.Sprint(s.Prompts), fmt.Sprint(s.Calls),
			fmt.Sprint(s.Open), fmt.Sprint(s.Failed), a.ShortTime(s.LastEvent), render.OneLine(s.Title, render.TextWidth))
	}
	return t
}

// sessionState returns the state of a session for a person. A session rests while it
// is neither closed nor interrupted and has no open call.
func (a *app) sessionState(s calls.Session) string {
	switch {
	case s.Closed:
		return a.Styled(render.Dim, "closed")
	case s.Interrupted:
		return a.Styled(render.Yellow, "■ interrupted")
	case s.Open > 0:
		return a.Outcome(render.OpenOutcome)
	}
	return "rests"
}

// sessionShow returns the command ledger session show.
func (a *app) sessionShow() *cobra.Command {
	var full bool
	cmd := &cobra.Command{
		Use: "show [SESSION]", Short: "Show a session: prompts, turns, replies, calls and how they ended",
		Example: "  ledger session show @last\n  ledger session show ses_…4K2P9Q\n  ledger session show 4K2P9Q -o json",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(query.SessionWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error { return a.showSession(cmd.Context(), s, query.OrLast(args), full) })
		},
	}
	fullFlag(cmd, &full)
	return cmd
}

// A sessionDetail is a session with its timeline, the JSON result of ledger session
// show.
type sessionDetail struct {
	sessionRow
	Timeline []happening `json:"timeline"`
}

// A happening is one entry of a timeline: an event of the session, or a call at the
// place of the reply that first asked for it.
type happening struct {
	Time     render.Timestamp  `json:"time"`
	Position events.Position   `json:"position"`
	Event    domain.EventID    `json:"event"`
	Kind     string            `json:"kind"` // of the event; Call for a call
	Turn     *domain.TurnID    `json:"turn"`
	Message  *domain.MessageID `json:"message"`
	Text     *string           `json:"text"`
	Reason   *string           `json:"reason"` // why a reply was refused
	Call     *callRow          `json:"call"`   // null: the entry is an event
	shown    string            // the summary for the table
	known    calls.Call        // the call, if Call is set
}

// showSession prints the session that id refers to.
func (a *app) showSession(ctx context.Context, s *stores.Store, id string, full bool) error {
	session, state, err := query.LoadSession(ctx, s, id)
	if err != nil {
		return err
	}
	detail := sessionDetail{sessionRow: sessionRowOf(session), Timeline: []happening{}}
	for v, err := range s.Ledger.Read(ctx, events.SessionStream(session.ID), 0) {
		if err != nil {
			return err
		}
		detail.Timeline = append(detail.Timeline, happenings(state, session.ID, v, full)...)
	}
	return a.Object(detail, func() { a.sessionPage(session, detail, full) })
}

// happenings returns the entries that an event adds to the timeline. The start and
// the end of a call appear in the entry of the call; they get an entry of their own
// only if no reply on record asked for the call.
func happenings(state *calls.State, session domain.SessionID, v events.Envelope, full bool) []happening {
	h := happening{Time: render.Timestamp(v.Time), Position: v.Position, Event: v.ID, Kind: v.Event.Kind(), shown: summary(v.Event)}
	switch e := v.Event.(type) {
	case events.PromptAdmitted:
		h.Message, h.Text = render.OrNull(e.Message), render.OrNull(e.Text)
	case events.TurnMaterialized:
		h.Turn, h.Message = render.OrNull(e.Turn), render.OrNull(e.Message)
	case events.ReplyReceived:
		h.Turn, h.Message, h.Text, h.shown = render.OrNull(e.Turn), render.OrNull(e.Message), render.OrNull(e.Text), repliedText(e)
		return append([]happening{h}, askedIn(state, session, e, v, full)...)
	case events.ReplyRefused:
		h.Turn, h.Message, h.Text, h.Reason = render.OrNull(e.Turn), render.OrNull(e.Message), render.OrNull(e.Text), render.OrNull(e.Reason)
	case events.CallStarted:
		if wasAsked(state, calls.Key{Session: session, Message: e.Message, Call: e.Call}) {
			return nil
		}
	case events.CallSettled:
		if wasAsked(state, calls.Key{Session: session, Message: e.Message, Call: e.Call}) {
			return nil
		}
		h.Kind = "CallSettled (never asked)"
	}
	return []happening{h}
}

// wasAsked reports whether a reply on record asked for a call.
func wasAsked(state *calls.State, key calls.Key) bool {
	c, ok := state.Call(key)
	return ok && !c.Asked.IsZero()
}

// askedIn returns an entry for each call of a reply that no earlier reply asked for.
func askedIn(state *calls.State, session domain.SessionID, e events.ReplyReceived, v events.Envelope, full bool) []happening {
	var all []happening
	for _, asked := range e.Calls {
		c, ok := state.Call(calls.Key{Session: session, Message: e.Message, Call: asked.ID})
		// A reply may contain the same call ID twice; the timeline shows the call once.
		again := slices.ContainsFunc(all, func(h happening) bool { return h.known.ID == asked.ID })
		if !ok || c.AskedAt.Event != v.ID || again {
			continue
		}
		input := render.RawJSON(asked.Input)
		row := rowOf(query.CallWithInput{Call: c, Input: input}, full)
		all = append(all, happening{
			Time: render.Timestamp(c.Asked), Position: v.Position, Event: v.ID, Kind: "Call", Turn: render.OrNull(c.Turn), Message: render.OrNull(c.Message),
			Call: &row, known: c, shown: inputText(input, full),
		})
	}
	return all
}

// sessionPage prints a session and its timeline for a person.
func (a *app) sessionPage(s calls.Session, detail sessionDetail, full bool) {
	parent := ""
	if !s.Parent.IsZero() {
		parent = s.Parent.String()
	}
	a.Fields(
		"session", s.ID.String(), "agent", render.Printable(string(s.Agent)), "model", render.Printable(s.Model), "location", render.Printable(s.Location),
		"origin", strings.TrimSpace(origin(s.Origin)+" "+render.Printable(s.Origin.Source)), "parent", parent,
		"opened", a.LongTime(s.Opened), "last event", a.LongTime(s.LastEvent), "state", a.sessionState(s),
		"calls", fmt.Sprintf("%d: %d open, %d not succeeded", s.Calls, s.Open, s.Failed),
	)
	a.Line("")
	t := render.Table{Head: []string{">AT", "WHAT", "~", "?", "?>TOOK", "~", "~"}, Empty: "Nothing happened.", Unlimited: full}
	for _, h := range detail.Timeline {
		at := elapsed(time.Time(h.Time).Sub(s.Opened))
		if h.Call != nil {
			t.Add(at, "  "+a.Outcome(h.Call.Outcome), render.OneLine(h.Call.Tool, 30), render.ShortCallID(h.Call.Call), render.Took(h.known), h.shown, render.OneLine(h.known.Preview, render.TextWidth))
			continue
		}
		t.Add(at, a.Styled(render.Bold, phrases[h.Kind]+unphrased(h.Kind)), nameOf(h), "", "", render.OneLine(h.shown, render.TextWidth+20), "")
	}
	a.Table(t)
}

// phrases are the words of a timeline for the kinds of events.
var phrases = map[string]string{
	"SessionOpened": "opened", "PromptAdmitted": "prompt", "TurnMaterialized": "turn", "ReplyReceived": "reply",
	"ReplyRefused":       "reply refused",
	"SessionInterrupted": "interrupted", "SessionClosed": "closed", "PermissionRequested": "asks permission",
	"PermissionDecided": "permission", "LateResultObserved": "late result", "LoopDetected": "loop", "OutputPruned": "pruned",
	"SettingChanged": "setting", "SessionSpawned": "spawned by", "ContextAdded": "context", "ContextCompacted": "compacted",
	"CommandRan": "command", "ProviderFailed": "provider failed",
	"ApprovalSaved": "approval", "ApprovalRevoked": "approval revoked",
}

// unphrased returns kind if it has no phrase, and "" if it has one.
func unphrased(kind string) string {
	if phrases[kind] != "" {
		return ""
	}
	return kind
}

// nameOf returns the short ID by which other commands find the event of an entry, if
// any.
func nameOf(h happening) string {
	if h.Turn != nil && h.Kind == "TurnMaterialized" {
		return render.ShortID(*h.Turn)
	}
	return ""
}

// elapsed returns a duration since the start of the session, with its sign.
func elapsed(d time.Duration) string {
	if d < 0 {
		return "-" + render.Duration(-d)
	}
	return "+" + render.Duration(d)
}
