package sessions

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner/providers/script"
)

// Continue admits prompts of the trajectory and runs the session, in turn, until the
// trajectory ends or the session stops. It then prints the result. If prompt is not
// empty, it replaces the prompts before the first reply.
func (r *SessionRunner) Continue(ctx context.Context, replies *script.Script, session domain.SessionID, prompt string) error {
	l := r.launcher
	w := l.newProgress(l.Err, session)
	w.layer = r.Layer.ID()
	ran := w.during(ctx, r.Store, func() error {
		for {
			n, err := r.Admit(ctx, replies, session, prompt)
			if err != nil {
				return err
			}
			// The session holds every reply of the trajectory.
			if n >= replies.Len() {
				l.hintUnanswered(replies)
				return nil
			}
			if err := r.Run(ctx, session); err != nil && !errors.Is(err, script.ErrExhausted) {
				return err
			}
			s, err := r.Conversation(ctx, session)
			// Without this check, a run that adds no reply would repeat for
			// ever.
			if err != nil || s.Interrupted != nil || script.CountReplies(s) == n {
				return err
			}
		}
	})
	return errors.Join(ran, l.showRun(context.WithoutCancel(ctx), r.Store, session, nil))
}

// Ask admits a prompt with its media, if it is not empty, runs the session until the model has answered,
// and prints the result. If the standard output is a terminal, Ask writes the texts of the
// replies there as they arrive.
func (r *SessionRunner) Ask(ctx context.Context, session domain.SessionID, prompt string, media []domain.Media) error {
	l := r.launcher
	w := l.newProgress(l.Err, session)
	w.texts, w.layer = l.newStream(), r.Layer.ID()
	r.progress.Store(w)
	defer r.progress.Store(nil)
	ran := w.during(ctx, r.Store, func() error {
		if prompt != "" {
			if err := r.Runner.Admit(ctx, session, r.Ledger.Mint().Message(), prompt, media...); err != nil {
				return err
			}
		}
		return r.Run(ctx, session)
	})
	return errors.Join(ran, l.showRun(context.WithoutCancel(ctx), r.Store, session, w.streamed()))
}

// hintUnanswered prints a hint if the trajectory ends with a prompt.
func (l *Launcher) hintUnanswered(replies *script.Script) {
	if n := len(replies.Prompts(replies.Len())); n > 0 {
		fmt.Fprintf(l.Err, "hint: the trajectory ends with %s and no reply\n", render.Count(n, "prompt"))
	}
}

// Admit finds the first reply of the trajectory that the session does not have yet. It
// admits the prompts before that reply, and returns the index of that reply.
func (r *SessionRunner) Admit(ctx context.Context, replies *script.Script, session domain.SessionID, prompt string) (int, error) {
	s, err := r.Conversation(ctx, session)
	if err != nil {
		return 0, err
	}
	n := script.CountReplies(s)
	prompts := replies.Prompts(n)
	if n == 0 && prompt != "" {
		prompts = []string{prompt}
	}
	// Skip the prompts that an earlier run admitted and that no reply has answered.
	for _, text := range prompts[min(unansweredPrompts(s), len(prompts)):] {
		if err := r.Runner.Admit(ctx, session, r.Ledger.Mint().Message(), text); err != nil {
			return n, err
		}
	}
	return n, nil
}

// unansweredPrompts returns the number of prompts at the end of the conversation,
// behind the last reply.
func unansweredPrompts(s *conversation.State) int {
	n := 0
	for i := len(s.Messages) - 1; i >= 0 && s.Messages[i].Prompt != nil; i-- {
		n++
	}
	return n
}

// A sessionSummary is the JSON result of run and resume.
type sessionSummary struct {
	Session  domain.SessionID `json:"session"`
	Calls    int              `json:"calls"`
	Open     int              `json:"open"`     // calls without a settlement
	Outcomes map[string]int   `json:"outcomes"` // number of settled calls by outcome
	Stopped  *string          `json:"stopped"`  // why the session was interrupted; null: it was not
	Text     string           `json:"text"`     // of the last reply
	Finish   string           `json:"finish"`   // the stop reason of the last reply, as the provider spells it
	Tokens   events.Tokens    `json:"tokens"`   // of all replies
	message  domain.MessageID // of the last reply
}

// showRun folds the session from the log and prints its result. It leaves out the text of
// a reply that was streamed, which the terminal has already.
func (l *Launcher) showRun(ctx context.Context, s *stores.Store, session domain.SessionID, streamed map[domain.MessageID]bool) error {
	p := conversation.Projection()
	c, err := projections.Fold(p, p.Init(), s.Ledger.Read(ctx, events.SessionStream(session), 0))
	if err != nil {
		return err
	}
	r := resultOf(c)
	return l.Object(r, func() {
		if r.Text != "" && !streamed[r.message] {
			l.Line("%s", render.Printable(r.Text))
		}
		l.printSession(r)
	})
}

// showSession folds the session from the log and prints its line, without a text.
func (l *Launcher) showSession(ctx context.Context, s *stores.Store, session domain.SessionID) error {
	p := conversation.Projection()
	c, err := projections.Fold(p, p.Init(), s.Ledger.Read(ctx, events.SessionStream(session), 0))
	if err != nil {
		return err
	}
	l.printSession(resultOf(c))
	return nil
}

// printSession prints the line of a session.
func (l *Launcher) printSession(r sessionSummary) {
	l.Line("%s", l.Styled(render.Dim, fmt.Sprintf("%s: %s%s; ledger session show %s", render.ShortID(r.Session), countOutcomes(r), countTokens(r.Tokens), shortTail(r.Session))))
}

// resultOf returns the result of a conversation.
func resultOf(c *conversation.State) sessionSummary {
	r := sessionSummary{Session: c.Session, Outcomes: map[string]int{}}
	for _, m := range c.Messages {
		if m.Reply == nil {
			continue
		}
		r.Text, r.Finish, r.message = m.Reply.Text, m.Reply.Finish, m.ID
		r.Tokens.Input += m.Reply.Tokens.Input
		r.Tokens.Output += m.Reply.Tokens.Output
		r.Tokens.CacheRead += m.Reply.Tokens.CacheRead
		r.Tokens.CacheWrite += m.Reply.Tokens.CacheWrite
		for _, call := range m.Reply.Calls {
			r.Calls++
			if call.Settlement == nil {
				r.Open++
				continue
			}
			r.Outcomes[call.Settlement.Outcome.String()]++
		}
	}
	if c.Interrupted != nil {
		r.Stopped = render.OrNull(strings.TrimSpace("interrupted by " + c.Interrupted.Reason.String() + " " + c.Interrupted.Detail))
	}
	return r
}

// countOutcomes returns the number of calls and of each outcome, for a person.
func countOutcomes(r sessionSummary) string {
	parts := []string{render.Count(r.Calls, "call")}
	for _, o := range domain.Outcomes() {
		if n := r.Outcomes[o.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	return strings.Join(parts, ", ")
}

// countTokens returns the token counts of replies behind a semicolon, or "" if none are
// known.
func countTokens(t events.Tokens) string {
	read := t.Input + t.CacheRead + t.CacheWrite
	if read == 0 && t.Output == 0 {
		return ""
	}
	text := "; " + render.Count(int(read), "input token")
	if t.CacheRead > 0 {
		text += fmt.Sprintf(" (%s)", render.Count(int(t.CacheRead), "cached token"))
	}
	return text + ", " + render.Count(int(t.Output), "output token")
}

// shortTail returns the last six characters of an ID. Commands accept them in place of
// the whole ID.
func shortTail(id fmt.Stringer) string {
	text := id.String()
	return text[max(0, len(text)-6):]
}
