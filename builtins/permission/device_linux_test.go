package permission_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/settlement-ledger/ledger/builtins/permission"
)

// newTerminalDevice returns the two ends of a pseudo terminal: the input of a
// program, and the keyboard. They are closed with the test.
func newTerminalDevice(t *testing.T) keyboard {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	device, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { device.Close() })
	return keyboard{device, struct{ io.Writer }{master}}
}

func TestKeysBeforeThePromptOfADeviceAnswerNothing(t *testing.T) {
	t.Parallel()
	for _, row := range earlyKeys {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			checkEarlyKeys(t, newTerminalDevice(t), row.before, row.withdrawn, row.during, row.after)
		})
	}
}

// An end of file that is typed rejects the question that is open, and a terminal
// can be read again after it. A terminal that is gone refuses every question.
func TestEndOfFileAtADeviceRejectsOneQuestion(t *testing.T) {
	t.Parallel()
	k := newTerminalDevice(t)
	prompts := make(chan bool, 10)
	screen := &console{shown: func(text string) {
		if strings.HasSuffix(text, promptText) {
			prompts <- true
		}
	}}
	terminal := permission.NewTerminal(k.in, screen)
	ended := make(chan error, 1)
	go func() { ended <- terminal.Run(t.Context()) }()
	answered := func(keys ...string) permission.Answer {
		answers := make(chan permission.Answer, 1)
		go func() {
			answer, err := terminal.Decide(t.Context(), dangerous)
			if err != nil {
				t.Error(err)
			}
			answers <- answer
		}()
		select {
		case <-prompts:
			for _, key := range keys {
				k.press(t, key)
			}
			return <-answers
		case answer := <-answers: // the terminal has ended
			return answer
		}
	}
	reject := permission.Answer{Choice: permission.Reject, By: permission.ByUser}
	if got := answered("\x04"); got != reject {
		t.Errorf("the question at which an end of file was typed is answered %+v, want %+v", got, reject)
	}
	if got := answered("alwa", "\x04", "\x04", "ys\n"); got != reject {
		t.Errorf("the question at which an end of file ended a word is answered %+v, want %+v", got, reject)
	}
	if got := answered("once\n"); got.Choice != permission.Once {
		t.Errorf("the question after an end of file is answered %+v, want once", got)
	}
	k.keys.(struct{ io.Writer }).Writer.(*os.File).Close()
	<-ended
	answer, err := terminal.Decide(t.Context(), dangerous)
	if want := (permission.Answer{Choice: permission.Reject, By: permission.ByHeadless}); err != nil || answer != want {
		t.Errorf("a question at a terminal that is gone is answered %+v, %v, want %+v", answer, err, want)
	}
}

// Looking for an unfinished line changes the mode of the device for a moment.
func TestTerminalDeviceKeepsItsMode(t *testing.T) {
	t.Parallel()
	k := newTerminalDevice(t)
	mode := modeOf(t, k.in.(*os.File))
	questions, prompts := make(chan bool, 1), make(chan bool, 1)
	screen := &console{shown: func(text string) {
		if text == "[o]nce, [a]lways, [r]eject, r and why: " {
			prompts <- true
		} else {
			questions <- true
		}
	}}
	terminal := permission.NewTerminal(k.in, screen)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- terminal.Run(ctx) }()
	answers := make(chan permission.Answer, 1)
	go func() {
		answer, _ := terminal.Decide(t.Context(), dangerous)
		answers <- answer
	}()
	<-questions
	k.press(t, "ls -l")
	<-prompts
	k.press(t, "a\n")
	if got := <-answers; got.Choice != permission.Always {
		t.Errorf("the answer at the prompt is %+v, want always", got)
	}
	if got := modeOf(t, k.in.(*os.File)); got != mode {
		t.Errorf("the mode of the terminal is %+v, and was %+v", got, mode)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want the cause of its context", err)
	}
}

func modeOf(t *testing.T, device *os.File) unix.Termios {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(device.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *mode
}

// An end of file that is typed dismisses the questions that are open.
func TestEndOfFileAtADeviceDismissesQuestions(t *testing.T) {
	t.Parallel()
	k := newTerminalDevice(t)
	prompts := make(chan bool, 10)
	screen := &console{shown: func(text string) {
		if strings.HasSuffix(text, promptText) {
			prompts <- true
		}
	}}
	terminal := permission.NewTerminal(k.in, screen)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- terminal.Run(ctx) }()
	for _, keys := range [][]string{{"1\n", "\x04"}, {"1\n", "half", "\x04", "\x04"}} {
		replies := make(chan permission.QuestionReply, 1)
		go func() {
			reply, err := terminal.AskQuestions(t.Context(), asking(port, free))
			if err != nil {
				t.Error(err)
			}
			replies <- reply
		}()
		<-prompts
		k.press(t, keys[0])
		<-prompts
		for _, key := range keys[1:] {
			k.press(t, key)
		}
		if got := <-replies; !got.Dismissed || got.By != permission.ByUser || got.Answers != nil || got.Feedback != "" {
			t.Errorf("after %q the questions are answered %+v, want a dismissal by the person", keys, got)
		}
	}
	cancel()
	<-ended
}
