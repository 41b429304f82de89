//go:build linux

package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// promptShown matches an empty prompt line with the cursor behind the prompt.
const promptShown = `> \x1b7\x1b8\x1b\[\?7h$`

// A prompt line answers one prompt after the other in one session, until ctrl-d or /exit.
func TestAPromptLineAnswersPrompts(t *testing.T) {
	t.Parallel()
	for leave, keys := range map[string]string{"ctrl-d": "\x04", "exit": "/exit\r"} {
		t.Run(leave, func(t *testing.T) {
			t.Parallel()
			format := modelFormats()[0]
			r := newModelRun(t, format, format.steps(
				modelStep{"I write.", [][3]string{{"call_1", "write", `{"path":"a.txt","content":"hello\n"}`}}},
				modelStep{text: "It is written."}, modelStep{text: "You are welcome."})...)
			run := r.onTerminal("run")
			at := run.await(0, promptShown)
			run.press("write a file\r")
			at = run.await(at, `> write a file\n`)
			at = run.await(at, `(?s)I write\.\n  ✓ succeeded +write .*It is written\.\n.*`+promptShown)
			run.press("thank you\r")
			run.await(at, `(?s)You are welcome\.\n.*`+promptShown)
			run.press(keys)
			code, shown := run.exit()
			if code != 0 || !regexp.MustCompile(`\x1b\[\?2004l.*ses_\S+: 1 call, 1 succeeded; 69 input tokens .* ledger session show \S+\n$`).MatchString(shown) {
				t.Errorf("run exits with %d and shows %q", code, shown)
			}
			if n := len(r.server.Requests()); n != 3 {
				t.Errorf("the server has %d requests, want 3", n)
			}
			r.wantClean()
		})
	}
}

// waitingCall returns a reply with a call of bash that opens the named pipe "begun" of the
// workspace, and then waits until the named pipe "end" is closed.
func (r modelRun) waitingCall() modelStep {
	r.Helper()
	for _, name := range []string{"begun", "end"} {
		noError(r.T, syscall.Mkfifo(filepath.Join(r.workspace, name), 0o600))
	}
	return modelStep{"I wait.", [][3]string{{"call_1", "bash", `{"command":"echo > begun; cat end"}`}}}
}

// awaitCall waits until the call of waitingCall has begun.
func (r modelRun) awaitCall() {
	r.Helper()
	f, err := os.OpenFile(filepath.Join(r.workspace, "begun"), os.O_RDWR, 0) // O_RDWR: does not wait for the other end
	noError(r.T, err)
	defer f.Close()
	noError(r.T, f.SetDeadline(time.Now().Add(time.Minute)))
	_, err = f.Read(make([]byte, 1))
	noError(r.T, err)
}

// endCall ends the call of waitingCall, as soon as it has opened the pipe.
func (r modelRun) endCall() {
	r.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		fd, err := syscall.Open(filepath.Join(r.workspace, "end"), syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != syscall.ENXIO || time.Now().After(deadline) {
			noError(r.T, err)
			noError(r.T, syscall.Close(fd))
			return
		}
	}
}

// A line that is typed while a call runs is admitted at once, and the next request has it.
func TestATypedLineSteersARun(t *testing.T) {
	t.Parallel()
	for _, format := range modelFormats() {
		t.Run(format.name, func(t *testing.T) {
			t.Parallel()
			var wait modelStep
			r := newAnsweredRun(t, format, func(m providerstest.ModelRequest) providerstest.ModelAnswer {
				return format.steps(wait, modelStep{text: "Both are done."})[min(m.Number, 1)]
			})
			wait = r.waitingCall()
			run := r.onTerminal("run")
			at := run.await(0, promptShown)
			run.press("first this\r")
			r.awaitCall()
			run.press("and then that")
			run.await(at, `> and then that`)
			run.press("\x1b[H\x1b[C\x1b[C\x7fN\x1b[Fs\r") // replaces the second letter, and adds one at the end
			at = run.await(at, `> aNd then thats\n.*The model reads it with the next request\.`)
			r.endCall()
			run.await(at, `(?s)Both are done\.\n.*`+promptShown)
			run.press("\x04")
			if code, shown := run.exit(); code != 0 {
				t.Errorf("run exits with %d and shows %q", code, shown)
			}
			requests := r.server.Requests()
			if len(requests) != 2 || bytes.Contains(requests[0].Body, []byte("aNd then")) || !bytes.Contains(requests[1].Body, []byte("aNd then thats")) {
				t.Errorf("the server has %d requests, want two, and the typed line in the second", len(requests))
			}
			r.wantClean()
		})
	}
}

// Ctrl-c ends a call as interrupted and gives the prompt line back. The next prompt is
// answered in the same session.
func TestCtrlCOnceInterruptsTheRun(t *testing.T) {
	t.Parallel()
	for _, format := range modelFormats() {
		t.Run(format.name, func(t *testing.T) {
			t.Parallel()
			var wait modelStep
			r := newAnsweredRun(t, format, func(m providerstest.ModelRequest) providerstest.ModelAnswer {
				return format.steps(wait, modelStep{text: "I go on."})[min(m.Number, 1)]
			})
			wait = r.waitingCall()
			run := r.onTerminal("run")
			at := run.await(0, promptShown)
			run.press("wait\r")
			r.awaitCall()
			run.press("\x03")
			at = run.await(at, `(?s)Interrupting the run; .*interrupted +bash .*■ interrupted by user\n.*`+promptShown)
			run.press("go on\r")
			run.await(at, `(?s)I go on\.\n.*`+promptShown)
			run.press("\x04")
			if code, shown := run.exit(); code != 0 || !strings.Contains(shown, ": 1 call, 1 interrupted;") {
				t.Errorf("run exits with %d and shows %q", code, shown)
			}
			r.wantClean()
		})
	}
}

// interruptTwice presses ctrl-c until the command ends. Each ctrl-c waits for the message of
// the one before.
func (t *terminalRun) interruptTwice(at int) {
	t.Helper()
	for {
		t.press("\x03")
		said := regexp.MustCompile(`[Cc]trl-c again ends the program`)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			select {
			case <-t.closed:
				return
			default:
			}
			if found := said.FindStringIndex(t.text()[at:]); found != nil {
				at += found[1]
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("ctrl-c shows %q", t.text()[at:])
			}
		}
	}
}

// Ctrl-c twice ends the program in order: during the interruption of a call that ignores
// signals, at an empty prompt line, and at a line that is half typed.
func TestCtrlCTwiceEndsTheProgram(t *testing.T) {
	t.Parallel()
	format := modelFormats()[0]
	for name, typed := range map[string]string{"call": "wait\r", "prompt line": "", "typed": "half a li"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var wait modelStep
			r := newAnsweredRun(t, format, func(providerstest.ModelRequest) providerstest.ModelAnswer {
				return format.steps(wait)[0]
			})
			wait = r.waitingCall()
			wait.calls[0][2] = `{"command":"trap '' INT TERM; echo > begun; cat end"}`
			run := r.onTerminal("run")
			at := run.await(0, promptShown)
			run.press(typed)
			if name == "call" {
				r.awaitCall()
			} else {
				run.await(0, "> "+typed)
			}
			run.interruptTwice(at)
			if code, shown := run.exit(); code != fault.ExitInterrupted || strings.Count(shown, "error: interrupted: user") != 1 {
				t.Errorf("run exits with %d and shows %q, want %d", code, shown, fault.ExitInterrupted)
			}
			if name == "call" {
				events, _, _ := r.command("", "event", "ls", "-o", "jsonl")
				if !strings.Contains(events, `"outcome":"interrupted"`) || !strings.Contains(events, `"kind":"SessionInterrupted"`) {
					t.Errorf("the log has no interruption: %s", events)
				}
			}
			r.wantClean()
		})
	}
}

// A question has the terminal for itself: a line that was typed before it does not answer
// it, and returns behind it. Ctrl-c withdraws a question.
func TestAQuestionSharesTheTerminal(t *testing.T) {
	t.Parallel()
	format := modelFormats()[0]
	held := make(chan struct{})
	r := newAnsweredRun(t, format, func(m providerstest.ModelRequest) providerstest.ModelAnswer {
		if m.Number == 0 {
			<-held
		}
		return format.steps(
			modelStep{"May I?", [][3]string{{"call_1", "bash", `{"command":"echo hello"}`}}},
			modelStep{"", [][3]string{{"call_2", "question", `{"questions":[{"question":"Which colour?","header":"Colour","options":[]}]}`}}},
			modelStep{text: "Thank you."},
			modelStep{"And this?", [][3]string{{"call_3", "bash", `{"command":"echo again"}`}}},
			modelStep{text: "Then not."},
		)[m.Number]
	})
	rules := filepath.Join(t.TempDir(), "asking.rules")
	noError(t, os.WriteFile(rules, []byte("allow * *\nask bash *\n"), 0o600))
	run := r.onTerminal("run", "--rules", rules)
	at := run.await(0, promptShown)
	run.press("go\r")
	at = run.await(at, `> go\n`)
	run.press("once al")
	at = run.await(at, `> once al`)
	close(held)
	at = run.await(at, `(?s)May I\?\n.*asks for bash:\n.* and why: $`)
	run.press("once\r")
	at = run.await(at, `(?s)Which colour\?.* and why: $`)
	run.press("blue, I think\r")
	at = run.await(at, `(?s)Thank you\.\n.*> once al\x1b7`)
	run.press("ways\r")
	at = run.await(at, `(?s)> once always\n.*And this\?\n.*asks for bash:\n.* and why: $`)
	run.press("\x03")
	at = run.await(at, `(?s)not needed any more.*■ interrupted by user\n.*`+promptShown)
	run.press("no\r")
	run.await(at, `(?s)Then not\.\n.*`+promptShown)
	run.press("\x04")
	if code, shown := run.exit(); code != 0 || !strings.Contains(shown, ": 3 calls, 2 succeeded, 1 interrupted;") {
		t.Errorf("run exits with %d and shows %q", code, shown)
	}
	requests := r.server.Requests()
	if len(requests) != 5 || !bytes.Contains(requests[2].Body, []byte("blue, I think")) || !bytes.Contains(requests[3].Body, []byte("once always")) {
		t.Errorf("the server has %d requests, want five, with the answer in the third and the line in the fourth", len(requests))
	}
	r.wantClean()
}

// A pasted text is one prompt with its line ends, and a line of a MiB is a prompt, too.
func TestAPasteIsOnePrompt(t *testing.T) {
	t.Parallel()
	format := modelFormats()[0]
	r := newModelRun(t, format, format.steps(modelStep{text: "One."}, modelStep{text: "Two."})...)
	run := r.onTerminal("run")
	at := run.await(0, promptShown)
	run.press("\x1b[200~first\r\nsecond\x1b[31m\x00\n\tthird\rfourth\n\x1b[201~")
	at = run.await(at, `> first␊second␊␉third␊fourth␊`)
	run.press("\r")
	at = run.await(at, `(?s)One\.\n.*`+promptShown)
	long := strings.Repeat("a long line, 漢字 ", 1<<20/20)
	run.press(long + "\r")
	run.await(at, `(?s)Two\.\n.*`+promptShown)
	run.press("\x04")
	if code, shown := run.exit(); code != 0 {
		t.Errorf("run exits with %d and shows %q", code, shown)
	}
	requests := r.server.Requests()
	if len(requests) != 2 || !bytes.Contains(requests[0].Body, []byte(`first\nsecond\n\tthird\nfourth"`)) || !bytes.Contains(requests[1].Body, []byte(strings.TrimSpace(long)+`"`)) {
		t.Errorf("the server has %d requests, want two with the pasted and the long text", len(requests))
	}
	r.wantClean()
}

// After a resize the prompt line is drawn again in the new width.
func TestAPromptLineFitsTheTerminal(t *testing.T) {
	t.Parallel()
	format := modelFormats()[0]
	r := newModelRun(t, format, format.steps(modelStep{text: "Done."})...)
	run := r.onTerminal("run")
	at := run.await(0, promptShown)
	run.press(strings.Repeat("漢字", 30) + "end")
	at = run.await(at, `> 字(漢字){18}end\x1b7`) // of 77 columns
	noError(t, pty.Setsize(run.master, &pty.Winsize{Rows: 24, Cols: 20}))
	at = run.await(at, `> 字(漢字){3}end\x1b7`) // of 17 columns
	run.press("\x01")
	at = run.await(at, `> \x1b7(漢字){4}\x1b8`)
	run.press("\x0b")
	run.await(at, promptShown)
	run.press("\x04")
	if code, shown := run.exit(); code != 0 {
		t.Errorf("run exits with %d and shows %q", code, shown)
	}
}

// A terminal that is closed, and SIGTERM, interrupt the call and end the program; the log
// is whole.
func TestALostTerminalEndsTheProgram(t *testing.T) {
	t.Parallel()
	format := modelFormats()[0]
	for name, end := range map[string]func(*terminalRun) error{
		"closed":  (*terminalRun).hangUp,
		"SIGTERM": func(run *terminalRun) error { return run.cmd.Process.Signal(syscall.SIGTERM) },
	} {
		for _, idle := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " idle ", idle), func(t *testing.T) {
				t.Parallel()
				var wait modelStep
				r := newAnsweredRun(t, format, func(providerstest.ModelRequest) providerstest.ModelAnswer {
					return format.steps(wait)[0]
				})
				wait = r.waitingCall()
				run := r.onTerminal("run")
				run.await(0, promptShown)
				if !idle {
					run.press("wait\r")
					r.awaitCall()
				}
				noError(t, end(run))
				if code, shown := run.exit(); code != fault.ExitInterrupted {
					t.Errorf("run exits with %d and shows %q, want %d", code, shown, fault.ExitInterrupted)
				}
				events, _, _ := r.command("", "event", "ls", "-o", "jsonl")
				if !idle && !strings.Contains(events, `"outcome":"interrupted"`) || !strings.Contains(events, `"kind":"ProcessStopped"`) {
					t.Errorf("the log does not have the end of the call and of the process: %s", events)
				}
				r.wantClean()
			})
		}
	}
}

// An error of the model leaves the prompt line open, with its hint. resume on a terminal
// answers what the session lacks, and goes on at a prompt line.
func TestAPromptLineOutlivesAnErrorOfTheModel(t *testing.T) {
	t.Parallel()
	format := modelFormats()[0]
	refused := providerstest.AnthropicFailure(http.StatusUnauthorized, "authentication_error", "no")
	r := newModelRun(t, format, append([]providerstest.ModelAnswer{refused, refused}, format.steps(modelStep{text: "Now."}, modelStep{text: "Later."})...)...)
	run := r.onTerminal("run")
	at := run.await(0, promptShown)
	run.press("one\r")
	at = run.await(at, `(?s)error: .*status 401.*\nhint: .*`+promptShown)
	run.press("two\r")
	run.await(at, `(?s)error: .*status 401.*\nhint: .*`+promptShown)
	run.press("\x04")
	if code, shown := run.exit(); code != 0 {
		t.Errorf("run exits with %d and shows %q", code, shown)
	}
	run = r.onTerminal("resume", "@last")
	at = run.await(0, `(?s)Now\.\n.*`+promptShown)
	run.press("three\r")
	run.await(at, `(?s)Later\.\n.*`+promptShown)
	run.press("\x04")
	if code, shown := run.exit(); code != 0 {
		t.Errorf("resume exits with %d and shows %q", code, shown)
	}
	r.wantClean()
}

// A second SIGTERM ends the program at once, and the terminal has its mode back. The call is
// lost for the next process.
func TestAForcedEndRestoresTheTerminal(t *testing.T) {
	t.Parallel()
	format := modelFormats()[0]
	var wait modelStep
	r := newAnsweredRun(t, format, func(providerstest.ModelRequest) providerstest.ModelAnswer {
		return format.steps(wait)[0]
	})
	wait = r.waitingCall()
	wait.calls[0][2] = `{"command":"trap '' INT TERM; echo > begun; cat end"}`
	run := r.onTerminal("run")
	run.await(0, promptShown)
	run.press("wait\r")
	r.awaitCall()
	for ended := false; !ended; {
		_ = run.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
		select {
		case <-run.closed:
			ended = true
		case <-time.After(5 * time.Millisecond): // signals that arrive together count once
		}
	}
	if code, shown := run.exit(); code != fault.ExitInterrupted {
		t.Errorf("run exits with %d and shows %q, want %d", code, shown, fault.ExitInterrupted)
	}
	if out, errs, code := r.command("", "recover"); code != 0 {
		t.Errorf("recover exits with %d: %s%s", code, out, errs)
	}
	r.wantClean()
}

// hostileMiB is the size of the reply in TestAHostileReplyIsShownHarmless.
var hostileMiB = repeats(1, 10)

// A reply of megabytes with control characters, wide characters and rows without an end is
// shown whole, while a line is typed and after it, and controls nothing.
func TestAHostileReplyIsShownHarmless(t *testing.T) {
	t.Parallel()
	format := modelFormats()[0]
	row := "\x1b[2J\x1b]0;title\x07\x1b[?2004h\r\b\u009b31m\u202e漢字👩\u200d👩e\u0301"
	text := "Begin.\n" + strings.Repeat(row, hostileMiB<<20/len(row)) + "\nEnd."
	r := newModelRun(t, format, format.steps(modelStep{text: text})...)
	run := r.onTerminal("run")
	at := run.await(0, promptShown)
	run.press("go\r")
	run.await(at, `Begin\.`)
	run.press("typed")
	at = run.await(at, `> typed\x1b7`)
	run.await(at, `(?s)End\.\n.*> typed\x1b7\x1b8\x1b\[\?7h$`)
	run.press("\x15")
	run.await(at, promptShown)
	run.press("\x04")
	code, shown := run.exit()
	if code != 0 {
		t.Errorf("run exits with %d", code)
	}
	want := strings.NewReplacer("\x1b", "␛", "\x07", "␇", "\r", "␍", "\b", "␈", "\u009b", "\ufffd", "\u202e", "\ufffd").Replace(row)
	if got, whole := strings.Count(shown, want), hostileMiB<<20/len(row); got < whole-5 { // typing may break a few rows
		t.Errorf("the terminal shows %d of %d rows", got, whole)
	}
	for _, control := range []string{"\x1b[2J", "\x1b]0", "\x07", "\b", "\u009b", "\u202e"} {
		if strings.Contains(shown, control) {
			t.Errorf("the terminal gets %q", control)
		}
	}
	if n := strings.Count(shown, "\x1b[?2004h"); n != 1 {
		t.Errorf("the terminal gets %d times what turns bracketed paste on, want once", n)
	}
	r.wantClean()
}
