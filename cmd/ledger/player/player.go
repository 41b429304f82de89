package player

import (
	"context"
	"errors"
	"io"
	"os"

	tea "charm.land/bubbletea/v2"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// Check returns a usage fault unless the standard input and output are a terminal.
func Check(out *render.Printer, in io.Reader, session string) error {
	keys, ok := in.(*os.File)
	if out.Terminal && out.OutFile != nil && ok && render.IsTerminal(keys) {
		return nil
	}
	f := fault.Usage("session play needs a terminal for its standard input and output")
	f.Command = "ledger session show " + session
	f.Hint = f.Command + " prints the session"
	return f
}

// Play plays a session until the user quits. Its keys come from in, and out has the
// terminal; see Check.
func Play(ctx context.Context, out *render.Printer, in io.Reader, ledger *events.Ledger, session calls.Session) error {
	reads, stop := context.WithCancel(ctx)
	defer stop()
	m := New(out, Source{Ctx: reads, Ledger: ledger, Session: session.ID}, session)
	end, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out.OutFile), tea.WithoutSignalHandler()).Run()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if last, ok := end.(Model); ok {
		err = errors.Join(err, last.err)
	}
	return err
}
