package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/promptline"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/sessions"
	"github.com/settlement-ledger/ledger/domain"
)

// maxPrompt is the largest prompt that is read from the standard input, in bytes.
const maxPrompt = promptline.MaxLine

// hasPromptLine reports whether a person can have a conversation: the three standard streams
// are terminals that can move the cursor, and results are for people.
func (a *app) hasPromptLine() bool {
	in, ok := a.in.(*os.File)
	return ok && render.IsTerminal(in) && a.Printer.Terminal && a.ErrTerminal && a.Format == render.AsTable &&
		a.Variable("TERM") != "dumb" && a.interrupts != nil
}

// openPromptLine opens the prompt line. The caller calls the returned function at the end.
func (a *app) openPromptLine() (end func(), err error) {
	a.console, err = promptline.Open(a.in.(*os.File), a.Err, a.Columns)
	if err != nil {
		return nil, err
	}
	a.interrupts.atExit(a.console.RestoreMode)
	return a.console.Close, nil
}

// shareTerminal returns the terminal of a.terminal for a command with a prompt line: the
// prompt line has it while no question is open. All results, too, go above the prompt line.
func (a *app) shareTerminal(ctx context.Context, in *os.File) *permission.Terminal {
	t := permission.NewTerminal(in, a.console)
	t.Share(a.console)
	a.Err, a.Out = t.Background(), bufio.NewWriter(t.Background())
	go func() {
		defer a.console.EndInput()
		_ = t.Run(ctx) // an error means that the terminal broke, which ends the conversation
	}()
	return t
}

// converse has a conversation in an open workspace.
func (a *app) converse(ctx context.Context, r *sessions.SessionRunner, session domain.SessionID) error {
	return r.Converse(ctx, session, sessions.PromptLine{Console: a.console, OnInterrupt: a.interrupts.divert})
}

// readPrompt returns the prompt of a session with a model: the given one, or else the
// standard input.
func (a *app) readPrompt(given string) (string, error) {
	if given = strings.TrimSpace(given); given != "" {
		return given, nil
	}
	if file, ok := a.in.(*os.File); ok && render.IsTerminal(file) {
		return "", fault.Usage("no prompt: give it as an argument, or on the standard input; a prompt line needs a terminal for input and output")
	}
	text, err := io.ReadAll(io.LimitReader(a.in, maxPrompt+1))
	switch prompt := strings.TrimSpace(string(text)); {
	case err != nil:
		return "", fmt.Errorf("read the prompt: %w", err)
	case len(text) > maxPrompt:
		return "", fault.Usage("the prompt on the standard input has more than %d bytes: put it into a file of the workspace and name the file", maxPrompt)
	case !utf8.ValidString(prompt):
		return "", fault.Usage("the prompt on the standard input is not UTF-8")
	case prompt == "":
		return "", fault.Usage("no prompt: give it as an argument, or on the standard input")
	default:
		return prompt, nil
	}
}
