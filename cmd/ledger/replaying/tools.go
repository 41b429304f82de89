package replaying

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/sessions"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner/replay"
)

// RealOptions configures a replay with real tools.
type RealOptions struct {
	// Setup has the agents, the environment and the rules. Workspace is the folder that is
	// copied; empty: the recorded one.
	sessions.Setup
	// RulesGiven is set if the user gave the rules. Otherwise requests are decided as
	// recorded.
	RulesGiven bool
	// Keep keeps the copy of the workspace.
	Keep bool
}

// ReplayTools replays a session of a store with the recorded replies and the real tools, in
// a copy of the workspace, into the store of p. A request for permission gets its recorded
// decision, unless the user gave rules. It prints where the copy is if it is kept.
func ReplayTools(ctx context.Context, from *stores.Store, session domain.SessionID, p *sessions.ActiveProcess, o RealOptions) (report *replay.Report, err error) {
	tape, err := readTape(ctx, from, session, p.Store != from)
	if err != nil {
		return nil, err
	}
	w, err := openCopy(ctx, tape, p, &o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close(o.Keep)) }()
	replies := tape.Replies(w.into, func(ctx context.Context, prompt replay.Prompt) error { return w.admit(ctx, prompt) })
	o.Provider = replies
	if !o.RulesGiven {
		o.Rules = append(o.Rules, tape.Denials()...)
		decider := recordedDecisions{replies}
		o.Approver, o.Questioner = decider, decider
	}
	if w.runner, err = p.OpenWorkspace(ctx, o.Setup); err != nil {
		return nil, err
	}
	if err := w.open(ctx, tape, "tools"); err != nil {
		return nil, err
	}
	for _, prompt := range replies.First() {
		if err := w.admit(ctx, prompt); err != nil {
			return nil, err
		}
	}
	for left := -1; replies.Left() > 0 && replies.Left() != left; {
		left = replies.Left()
		if ran := w.runner.Run(ctx, w.session); ctx.Err() != nil {
			return nil, ran
		}
	}
	report, err = replies.Compare(ctx, p.Ledger, w.session, w.outOf)
	if err != nil {
		return nil, err
	}
	for _, path := range w.left {
		report.Incomparable = append(report.Incomparable, replay.Incomparable{Where: path, Reason: "it is a link out of the workspace, or no regular file, and was not copied"})
	}
	if o.Keep {
		report.Incomparable = append(report.Incomparable, replay.Incomparable{Where: "workspace", Reason: "the copy is kept: " + w.path})
	}
	return report, nil
}

// ReplayModel runs the prompts of a session of a store with a live model, o.Provider, and the
// recorded results of the tools, into the store of p. If onMissReal is set, a call that the
// tape does not have runs the real tool in a copy of the workspace.
func ReplayModel(ctx context.Context, from *stores.Store, session domain.SessionID, p *sessions.ActiveProcess, o RealOptions, onMissReal bool) (report *replay.Report, err error) {
	tape, err := readTape(ctx, from, session, p.Store != from)
	if err != nil {
		return nil, err
	}
	w, err := openCopy(ctx, tape, p, &o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close(o.Keep)) }()
	live := tape.LiveTools(outputsOf(from), onMissReal, w.into)
	o.WrapTools = live.Wrap
	if w.runner, err = p.OpenWorkspace(ctx, o.Setup); err != nil {
		return nil, err
	}
	if err := w.open(ctx, tape, "model"); err != nil {
		return nil, err
	}
	for _, prompt := range tape.Prompts() {
		if err := w.admit(ctx, prompt); err != nil {
			return nil, err
		}
		if err := w.runner.Run(ctx, w.session); err != nil {
			return nil, err
		}
	}
	return live.Report(ctx, p.Ledger, w.session)
}

// A copiedWorkspace is a session in a copy of a workspace.
type copiedWorkspace struct {
	path string
	left []string // the paths that were not copied
	// originals are the paths in place of which the copy stands, the recorded one first.
	originals []string
	session   domain.SessionID
	runner    *sessions.SessionRunner
}

// openCopy copies the workspace of o and sets it to the copy.
func openCopy(ctx context.Context, tape *replay.Tape, p *sessions.ActiveProcess, o *RealOptions) (*copiedWorkspace, error) {
	w := &copiedWorkspace{session: p.Ledger.Mint().Session()}
	recorded := tape.Opening(w.session, "").Location
	if o.Workspace == "" {
		o.Workspace = recorded
	}
	if info, err := os.Stat(o.Workspace); err != nil || !info.IsDir() {
		return nil, fault.Usage("--workspace: %q is not a folder that can be opened: name the folder in which the tools run, as a copy", o.Workspace)
	}
	var err error
	if w.path, w.left, err = copyWorkspace(o.Workspace); err != nil {
		return nil, err
	}
	if absolute, err := filepath.Abs(o.Workspace); err == nil && absolute != recorded {
		w.originals = append(w.originals, absolute)
	}
	if recorded != "" {
		w.originals = append([]string{recorded}, w.originals...)
	}
	o.Workspace = w.path
	return w, context.Cause(ctx)
}

// into returns a text with the paths of the original workspaces replaced by the copy.
func (w *copiedWorkspace) into(text string) string {
	for _, original := range w.originals {
		text = strings.ReplaceAll(text, original, w.path)
	}
	return text
}

// outOf returns a text with the path of the copy replaced by the recorded one.
func (w *copiedWorkspace) outOf(text string) string {
	if len(w.originals) == 0 {
		return text
	}
	for _, other := range w.originals[1:] {
		text = strings.ReplaceAll(text, other, w.originals[0])
	}
	return strings.ReplaceAll(text, w.path, w.originals[0])
}

// open records the opening of the session.
func (w *copiedWorkspace) open(ctx context.Context, tape *replay.Tape, mode string) error {
	l := w.runner.Ledger
	opened := tape.Opening(w.session, mode)
	opened.Location = w.path
	drafts := []events.Draft{l.Draft(opened, domain.EventID{})}
	if forked, ok := tape.Forked(); ok {
		drafts = append(drafts, l.Draft(forked, drafts[0].ID))
	}
	_, err := l.Append(ctx, events.SessionStream(w.session), 0, drafts...)
	return err
}

// admit admits a prompt.
func (w *copiedWorkspace) admit(ctx context.Context, prompt replay.Prompt) error {
	return w.runner.Runner.Admit(ctx, w.session, w.runner.Ledger.Mint().Message(), prompt.Text, prompt.Media...)
}

// close closes the workspace and removes the copy, unless keep is set.
func (w *copiedWorkspace) close(keep bool) (err error) {
	if w.runner != nil {
		err = w.runner.Close()
	}
	if !keep {
		err = errors.Join(err, os.RemoveAll(filepath.Dir(w.path)))
	}
	return err
}

// recordedDecisions decides requests and answers questions as they were when the call was
// recorded: a call that ran then is allowed.
type recordedDecisions struct{ replies *replay.Replies }

// Decide implements permission.Approver.
func (d recordedDecisions) Decide(_ context.Context, r permission.Request) (permission.Answer, error) {
	end, ok := d.replies.End(r.Invocation)
	switch {
	case ok && end.Outcome == domain.DeclinedByUser:
		return permission.Answer{Choice: permission.Reject, Feedback: end.Text, By: permission.ByUser}, nil
	case !ok || end.Outcome == domain.DeniedByRule || !end.Began:
		return permission.Answer{Choice: permission.Reject, By: permission.ByHeadless}, nil
	}
	return permission.Answer{Choice: permission.Once, By: permission.ByHeadless}, nil
}

// AskQuestions implements permission.Questioner.
func (d recordedDecisions) AskQuestions(_ context.Context, q permission.QuestionRequest) (permission.QuestionReply, error) {
	e, ok := d.replies.Answer(q.Invocation)
	if !ok || e.Dismissed {
		return permission.QuestionReply{Dismissed: true, Feedback: e.Feedback, By: permission.ByHeadless}, nil
	}
	reply := permission.QuestionReply{By: permission.ByHeadless}
	for _, a := range e.Answers {
		reply.Answers = append(reply.Answers, a.Chosen)
	}
	return reply, nil
}
