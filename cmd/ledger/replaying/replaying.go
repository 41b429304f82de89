package replaying

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/replay"
)

// A Target is where a replay is recorded.
type Target struct {
	Store   events.Store
	Ledger  *events.Ledger
	Process domain.ProcessID
	// Elsewhere is set for a store other than that of the recording, which is kept.
	Elsewhere bool
	// Outputs keeps the outputs of the replay. Nil: their digests are compared, and they
	// are not kept.
	Outputs registry.Outputs
}

// Replay replays the tape of a session of a store. A session with a call that a process may
// be running, without a turn or with events of a newer program is a fault.
func Replay(ctx context.Context, from *stores.Store, session domain.SessionID, to Target) (*replay.Report, error) {
	tape, err := readTape(ctx, from, session, to.Elsewhere)
	if err != nil {
		return nil, err
	}
	return tape.Run(ctx, replay.Config{
		Store: to.Store, Mint: to.Ledger.Mint(), Now: to.Ledger.Now, Process: to.Process, Recording: from.Log, Outputs: to.Outputs, Source: outputsOf(from),
	})
}

// readTape reads the tape of a session of a store, which is replayed into another store if
// elsewhere is set. A fork is a fault there, because its past is in its own store alone.
func readTape(ctx context.Context, from *stores.Store, session domain.SessionID, elsewhere bool) (*replay.Tape, error) {
	tape, err := replay.ReadTape(ctx, from.Ledger, session)
	if err != nil {
		return nil, tapeFault(err)
	}
	if _, forked := tape.Forked(); forked && elsewhere {
		f := fault.Usage("session %s is a fork, and its past is in its own store alone", session)
		f.Hint = "replay it into that store: leave out --to and, with real tools or a live model, --dry-run"
		return nil, f
	}
	return tape, nil
}

// InMemory calls use with a target that is not kept.
func InMemory(ctx context.Context, from *stores.Store, use func(Target) error) (err error) {
	s, err := embedded.OpenMemory(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	l := events.NewLedger(s, from.Ledger.Mint(), from.Ledger.Now)
	process := l.Mint().Process()
	started := l.Draft(events.ProcessStarted{Process: process, Program: "ledger"}, domain.EventID{})
	if _, err := l.Append(ctx, events.ProcessStream(process), 0, started); err != nil {
		return err
	}
	return use(Target{Store: s, Ledger: l, Process: process})
}

// tapeFault returns the error of a tape with its exit code and a hint.
func tapeFault(err error) error {
	switch {
	case errors.Is(err, replay.ErrNoTurns):
		return &fault.Error{Exit: fault.ExitUsage, Code: "no_turns", Err: err, Hint: "name a session in which a model was asked; ledger session ls lists them"}
	case errors.Is(err, runner.ErrNoSession):
		return fault.NotFound("ledger session ls lists the sessions", "%w", err)
	case errors.Is(err, events.ErrUnknownKind):
		return &fault.Error{Exit: fault.ExitFailed, Code: "newer_format", Err: err, Hint: "use the version of ledger that recorded the session, or a newer one"}
	}
	return err
}

// outputsOf opens the kept outputs of a store.
func outputsOf(s *stores.Store) replay.OutputSource {
	return func(ctx context.Context, ref domain.Ref) (io.ReadCloser, error) {
		r, err := s.Outputs.Open(ctx, ref)
		if _, pruned := errors.AsType[*outputs.PrunedError](err); pruned || errors.Is(err, outputs.ErrNotFound) {
			return nil, fmt.Errorf("%w: %w", replay.ErrOutputGone, err)
		}
		if err != nil {
			return nil, err
		}
		return r, nil
	}
}

// modes describes the ways of a replay for a person.
var modes = map[string]string{"tape": "from the tape", "tools": "with real tools", "model": "with a live model"}

// maxShown is the number of differences that Show prints.
const maxShown = 50

// Show prints a report. It returns a fault with exit code 3 if the replay differs.
func Show(p *render.Printer, r *replay.Report, kept bool) error {
	err := p.Object(r, func() {
		for i, d := range r.Differences {
			if i == maxShown {
				p.Line("and %s: -o json lists all", render.Count(len(r.Differences)-i, "difference"))
				break
			}
			p.Line("%s", render.Printable(d.String()))
			p.Line("  recorded: %s", shown(d.Recorded))
			p.Line("  replayed: %s", shown(d.Replayed))
		}
		for _, step := range r.Unused {
			p.Line("not asked for: %s", render.OneLine(step.String(), 200))
		}
		for _, n := range r.Incomparable {
			p.Line("%s", p.Styled(render.Dim, "not comparable: "+render.OneLine(n.Where+": "+n.Reason, 300)))
		}
		verdict := "same"
		if !r.Same {
			verdict = render.Count(len(r.Differences)+len(r.Unused), "difference")
		}
		text := fmt.Sprintf("%s: %s, %s and %s replayed, %s", verdict, render.Count(r.Turns, "turn"), render.Count(r.Calls, "call"), render.Count(r.Events, "event"), modes[r.Mode])
		if kept {
			text += "; ledger session show " + r.Replay.String()
		}
		p.Line("%s", text)
	})
	if err != nil || r.Same {
		return err
	}
	return &fault.Error{
		Exit: fault.ExitUnverified, Code: "different", Err: fmt.Errorf("the replay of %s differs from the recording", r.Session), Quiet: p.Format == render.AsTable,
	}
}

// shown returns one side of a difference on one line.
func shown(text string) string {
	if text == "" {
		return "nothing"
	}
	return render.OneLine(text, 400)
}

// SaveJUnit writes a report as a JUnit file at path, or nothing if path is empty.
func SaveJUnit(path string, r *replay.Report) error {
	if path == "" {
		return nil
	}
	var b strings.Builder
	if err := WriteJUnit(&b, r); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return fault.WithHint(fmt.Errorf("--junit: %w", err), "name a file in a folder that exists and that you may write to")
	}
	return nil
}
