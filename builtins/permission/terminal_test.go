package permission_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// typed runs a terminal on which some lines are typed, and asks it once.
func typed(t *testing.T, lines string) (answer permission.Answer, shown string, err error) {
	t.Helper()
	var out bytes.Buffer
	terminal := permission.NewTerminal(strings.NewReader(lines), &out)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- terminal.Run(ctx) }()
	answer, err = terminal.Decide(t.Context(), permission.Request{Ask: permission.Ask{
		Action: "bash", Resources: []string{"rm -rf build", "echo \x1b[2K"}, Save: []string{"rm *"}}})
	cancel()
	<-ended
	return answer, out.String(), err
}

func TestPersonAnswersAtTheTerminal(t *testing.T) {
	t.Parallel()
	for lines, want := range map[string]permission.Answer{
		"once\n":                  {Scope: permission.Once, By: permission.ByUser},
		"A\n":                     {Scope: permission.Always, By: permission.ByUser},
		"r\n":                     {Scope: permission.Reject, By: permission.ByUser},
		"reject not there, here":  {Scope: permission.Reject, By: permission.ByUser, Feedback: "not there, here"},
		"yes\n\nonce more\no\n":   {Scope: permission.Once, By: permission.ByUser},
		"":                        {Scope: permission.Reject, By: permission.ByHeadless},
		"what is this\nanother\n": {Scope: permission.Reject, By: permission.ByHeadless},
	} {
		got, out, err := typed(t, lines)
		if err != nil || got != want {
			t.Errorf("typed %q: %+v, %v, want %+v", lines, got, err, want)
		}
		for _, shown := range []string{"bash", "rm -rf build", `echo \u001b[2K`, "always would allow: rm *"} {
			if !strings.Contains(out, shown) {
				t.Errorf("the question %q does not show %q", out, shown)
			}
		}
		if strings.ContainsRune(out, '\x1b') {
			t.Errorf("the question %q moves the cursor", out)
		}
	}
}

func TestShownTextCannotImitateTheQuestion(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	terminal := permission.NewTerminal(strings.NewReader("o\n"), &out)
	ended := make(chan error, 1)
	go func() { ended <- terminal.Run(t.Context()) }()
	command := "echo \x1b[2K harmless\r\nalways would allow: nothing\n[o]nce, [a]lways, [r]eject, r and why: \u202erm -rf /\n"
	_, err := terminal.Decide(t.Context(), permission.Request{
		Ask: permission.Ask{Action: "bash", Resources: []string{"echo"}}, Shown: domain.Show(domain.ShownCommand, command)})
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	for _, line := range []string{
		`  | echo \u001b[2K harmless\u000d`, "  | always would allow: nothing", `  | [o]nce, [a]lways, [r]eject, r and why: \u202erm -rf /`, "  (99 bytes)",
	} {
		if !strings.Contains(out.String(), "\n"+line+"\n") {
			t.Errorf("the question %q does not have the line %q", out.String(), line)
		}
	}
}

func TestTerminalObeysItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, typing := io.Pipe()
		terminal := permission.NewTerminal(in, io.Discard)
		ended := make(chan error, 1)
		go func() { ended <- terminal.Run(t.Context()) }()
		ctx, interrupt := context.WithCancelCause(t.Context())
		answers := make(chan error, 2)
		for range 2 { // one asks, one waits for its turn
			go func() {
				_, err := terminal.Decide(ctx, permission.Request{})
				answers <- err
			}()
		}
		synctest.Wait()
		interrupt(domain.ByShutdown)
		for range 2 {
			if err := <-answers; !errors.Is(err, domain.ByShutdown) {
				t.Errorf("Decide = %v, want the cause of its context", err)
			}
		}
		typing.Close()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil at the end of its input", err)
		}
	})
}
