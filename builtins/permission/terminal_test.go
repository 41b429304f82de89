package permission_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

const promptText = "why: "

// A console is the output of a Terminal. It calls shown after each write.
type console struct {
	mu    sync.Mutex
	text  bytes.Buffer
	shown func(text string)
}

func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.text.Write(b)
	c.mu.Unlock()
	if c.shown != nil {
		c.shown(string(b))
	}
	return len(b), nil
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// dangerous is a request that no test means to allow.
var dangerous = permission.Request{Ask: permission.Ask{Action: "bash", Resources: []string{"rm -rf build", "echo \x1b[2K"}, Save: []string{"rm *"}}}

// typed runs a terminal on which text is typed once the first prompt is there
// and the input ends then, and asks it once.
func typed(t *testing.T, text string) (answer permission.Answer, shown string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		in, keyboard := io.Pipe()
		first := sync.OnceFunc(func() {
			go func() {
				_, _ = io.WriteString(keyboard, text)
				keyboard.Close()
			}()
		})
		screen := &console{shown: func(text string) {
			if strings.HasSuffix(text, promptText) {
				first()
			}
		}}
		terminal, ended := runTerminal(t, in, screen)
		answer, err = terminal.Decide(t.Context(), dangerous)
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil at the end of its input", err)
		}
		shown = screen.String()
	})
	return answer, shown, err
}

func TestPersonAnswersAtTheTerminal(t *testing.T) {
	t.Parallel()
	headless := permission.Answer{Choice: permission.Reject, By: permission.ByHeadless}
	for lines, want := range map[string]permission.Answer{
		"once\n":                           {Choice: permission.Once, By: permission.ByUser},
		"A\r\n":                            {Choice: permission.Always, By: permission.ByUser},
		"r\n":                              {Choice: permission.Reject, By: permission.ByUser},
		"reject not there, here":           {Choice: permission.Reject, By: permission.ByUser, Feedback: "not there, here"},
		"ls -l\ncd x\na\n":                 headless, // pasted: no line behind the first is an answer
		"":                                 headless,
		"what is this\nanother\n":          headless,
		"once more\n":                      headless,
		"always, I think\n":                headless,
		"o\x00\n":                          headless,
		strings.Repeat("o", 1<<20) + "\n":  headless,
		strings.Repeat(" ", 1<<17) + "o\n": headless,
	} {
		got, out, err := typed(t, lines)
		if err != nil || got != want {
			t.Errorf("typed %.40q: %+v, %v, want %+v", lines, got, err, want)
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

// A keyboard is the writing end of an input, with the hooks that a test needs.
type keyboard struct {
	in   io.Reader
	keys io.Writer
}

func (k keyboard) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(k.keys, keys); err != nil {
		t.Error(err)
	}
}

// earlyKeys are keys that are pressed before the prompt of a question, and
// would answer it if they counted.
var earlyKeys = []struct {
	name                      string
	before, withdrawn, during string // before a question; at the prompt of a question that is withdrawn; between the text of the question and its prompt
	after                     string // first at the prompt
}{
	{"a line before the question", "a\n", "", "", ""},
	{"many lines before the question", "a\no\nalways\n", "", "", ""},
	{"half a line before the question", "alwa", "", "", "ys\n"},
	{"a word before the question", "a", "", "", "\n"},
	{"a line while the question is written", "", "", "o\n", ""},
	{"a word while the question is written", "", "", "o", "\n"},
	{"half a line at a withdrawn question", "", "a", "", "\n"},
	{"half a line at a withdrawn question, a line at the next", "", "al", "ways\n", ""},
	{"half a line at a withdrawn question, finished later", "", "al", "way", "s\n"},
}

// checkEarlyKeys asks a question after early keys, then rejects it.
func checkEarlyKeys(t *testing.T, k keyboard, before, withdrawn, during, after string) {
	prompts, questions := make(chan bool, 10), make(chan bool, 10)
	screen := &console{shown: func(text string) {
		if strings.HasSuffix(text, promptText) {
			prompts <- true
		} else if strings.Contains(text, "asks for") {
			questions <- true
		}
	}}
	terminal := permission.NewTerminal(k.in, screen)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- terminal.Run(ctx) }()
	k.press(t, before)
	if withdrawn != "" {
		ctx, withdraw := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := terminal.Decide(ctx, dangerous)
			done <- err
		}()
		<-questions
		<-prompts
		k.press(t, withdrawn)
		withdraw(domain.ByUser)
		if err := <-done; !errors.Is(err, domain.ByUser) {
			t.Errorf("a withdrawn question = %v, want the cause of its context", err)
		}
	}
	answers := make(chan permission.Answer, 1)
	go func() {
		answer, err := terminal.Decide(t.Context(), dangerous)
		if err != nil {
			t.Error(err)
		}
		answers <- answer
	}()
	<-questions
	k.press(t, during)
	keys := []string{after, "\n", "reject no\n"} // the prompt comes again after a line that is no answer
	if after == "" {
		keys = keys[1:]
	}
	want := permission.Answer{Choice: permission.Reject, By: permission.ByUser, Feedback: "no"}
	var got permission.Answer
	for answered := false; !answered; {
		select {
		case <-prompts:
			if len(keys) > 0 {
				k.press(t, keys[0])
				keys = keys[1:]
			}
		case got = <-answers:
			answered = true
		}
	}
	if got != want {
		t.Errorf("the question was answered %+v, want %+v", got, want)
	}
	stop()
	if closer, ok := k.keys.(io.Closer); ok {
		closer.Close()
	}
	<-ended
}

func TestKeysBeforeThePromptAnswerNothing(t *testing.T) {
	t.Parallel()
	for _, row := range earlyKeys {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				in, keys := io.Pipe()
				checkEarlyKeys(t, keyboard{in, keys}, row.before, row.withdrawn, row.during, row.after)
			})
		})
	}
}

// An answer to a question that is withdrawn may be on its way for longer than
// keys that were pressed ahead.
func TestLateAnswerToAWithdrawnQuestionAnswersNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, keys := io.Pipe()
		screen := &console{}
		terminal, ended := runTerminal(t, in, screen)
		ctx, withdraw := context.WithTimeout(t.Context(), time.Minute)
		defer withdraw()
		if _, err := terminal.Decide(ctx, dangerous); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		go func() {
			<-time.After(900 * time.Millisecond) // of the bubble's clock
			_, _ = io.WriteString(keys, "always\n")
			<-time.After(2 * time.Second)
			_, _ = io.WriteString(keys, "once\n")
			keys.Close()
		}()
		answer, err := terminal.Decide(t.Context(), dangerous)
		if err != nil || answer.Choice != permission.Once {
			t.Errorf("the next question was answered %+v, %v, want once", answer, err)
		}
		<-ended
	})
}

func TestLinesOfOthersWaitForTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, keys := io.Pipe()
		screen := &console{}
		terminal := permission.NewTerminal(in, screen)
		others := terminal.Background()
		ended := make(chan error, 1)
		go func() { ended <- terminal.Run(t.Context()) }()
		fmt.Fprint(others, "first, and no line end")
		answers := make(chan permission.Answer, 1)
		go func() {
			answer, _ := terminal.Decide(t.Context(), dangerous)
			answers <- answer
		}()
		<-time.After(time.Second) // of the bubble's clock
		before := screen.String()
		if !strings.Contains(before, "line end\n asks for bash:\n") {
			t.Errorf("the question %q does not begin on a line of its own", before)
		}
		fmt.Fprintln(others, "second")
		for range 100 {
			fmt.Fprintln(others, strings.Repeat("x", 1000))
		}
		fmt.Fprintln(others, "last")
		if got := screen.String(); got != before {
			t.Errorf("lines were written into an open question: %q", got[len(before):])
		}
		if _, err := io.WriteString(keys, "once\n"); err != nil {
			t.Fatal(err)
		}
		<-answers
		after := screen.String()[len(before):]
		if !strings.HasPrefix(after, "second\nxxx") || !strings.HasSuffix(after, "(35040 more bytes were written while the question was open)\n") {
			t.Errorf("after the answer %q… and …%q were written", after[:20], after[len(after)-80:])
		}
		keys.Close()
		<-ended
		fmt.Fprintln(others, "third")
		if !strings.HasSuffix(screen.String(), ")\nthird\n") {
			t.Error("a line after the question was held back")
		}
	})
}

func TestShownTextCannotImitateTheQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, keys := io.Pipe()
		screen := &console{}
		terminal, ended := runTerminal(t, in, screen)
		go func() {
			<-time.After(time.Second) // of the bubble's clock
			keys.Close()
		}()
		command := "echo \x1b[2K harmless\r\nalways would allow: nothing\n[o]nce, [a]lways, [r]eject, r and why: \u202erm -rf /\n"
		_, err := terminal.Decide(t.Context(), permission.Request{
			Ask: permission.Ask{Action: "bash", Resources: []string{"echo"}}, Shown: domain.NewPreview(domain.PreviewCommand, command)})
		if err != nil {
			t.Fatal(err)
		}
		<-ended
		for _, line := range []string{
			`  | echo \u001b[2K harmless\u000d`, "  | always would allow: nothing", `  | [o]nce, [a]lways, [r]eject, r and why: \u202erm -rf /`, "  (99 bytes)",
		} {
			if !strings.Contains(screen.String(), "\n"+line+"\n") {
				t.Errorf("the question %q does not have the line %q", screen, line)
			}
		}
	})
}

// A question states in words that a pattern matches everything, or that an
// answer for always saves no pattern.
func TestQuestionSaysHowFarAlwaysGoes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		save []string
		line string
	}{
		{[]string{"ls *", "pwd"}, "always would allow: ls *, pwd"},
		{[]string{"*"}, "always would allow: * (every edit from now on, not this one only)"},
		{[]string{"**"}, "always would allow: ** (every edit from now on, not this one only)"},
		{nil, "always would allow: this once, as nothing is saved for it"},
	} {
		screen := &console{}
		ctx, withdraw := context.WithCancel(t.Context())
		screen.shown = func(string) { withdraw() }
		_, _ = permission.NewTerminal(strings.NewReader(""), screen).Decide(ctx, permission.Request{Ask: permission.Ask{Action: "edit", Resources: []string{"x"}, Save: row.save}})
		if !strings.Contains(screen.String(), "\n"+row.line+"\n") {
			t.Errorf("the question %q for the patterns %q does not have the line %q", screen, row.save, row.line)
		}
		withdraw()
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

func TestTerminalAtItsEndRefuses(t *testing.T) {
	t.Parallel()
	terminal := permission.NewTerminal(strings.NewReader("always\n"), io.Discard)
	if err := terminal.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := terminal.Decide(t.Context(), dangerous)
	if want := (permission.Answer{Choice: permission.Reject, By: permission.ByHeadless}); err != nil || got != want {
		t.Errorf("Decide after the end of the input = %+v, %v, want %+v", got, err, want)
	}
}

// runTerminal returns a terminal that reads answers from in and writes to screen, and a
// channel that gets the result of its Run.
func runTerminal(t *testing.T, in io.Reader, screen io.Writer) (*permission.Terminal, <-chan error) {
	terminal := permission.NewTerminal(in, screen)
	ended := make(chan error, 1)
	go func() { ended <- terminal.Run(t.Context()) }()
	return terminal, ended
}

// A lineLog is a LineEditor that notes its calls.
type lineLog struct {
	mu    sync.Mutex
	calls []string
}

func (l *lineLog) note(call string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, call)
}

func (l *lineLog) Suspend()       { l.note("suspend") }
func (l *lineLog) Resume()        { l.note("resume") }
func (l *lineLog) Input(b []byte) { l.note(string(b)) }

// A line editor gets the input while no question is open. Input at a question, before its
// prompt or after it, never reaches the editor.
func TestALineEditorGetsTheInputBetweenQuestions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, keys := io.Pipe()
		prompts := make(chan bool, 1)
		screen := &console{shown: func(text string) {
			if strings.HasSuffix(text, promptText) {
				prompts <- true
			}
		}}
		terminal := permission.NewTerminal(in, screen)
		editor := &lineLog{}
		terminal.Share(editor)
		ended := make(chan error, 1)
		go func() { ended <- terminal.Run(t.Context()) }()
		k := keyboard{in, keys}
		k.press(t, "once\nhalf")
		synctest.Wait()
		answers := make(chan permission.Answer, 1)
		go func() {
			answer, err := terminal.Decide(t.Context(), dangerous)
			if err != nil {
				t.Error(err)
			}
			answers <- answer
		}()
		synctest.Wait()
		k.press(t, " a line\nalways\n") // before the prompt
		<-prompts
		k.press(t, "reject no\n")
		if got, want := <-answers, (permission.Answer{Choice: permission.Reject, By: permission.ByUser, Feedback: "no"}); got != want {
			t.Errorf("the question was answered %+v, want %+v", got, want)
		}
		synctest.Wait()
		k.press(t, " and whole\n")
		keys.Close()
		<-ended
		if want := []string{"once\nhalf", "suspend", "resume", " and whole\n"}; !slices.Equal(editor.calls, want) {
			t.Errorf("the editor gets %q, want %q", editor.calls, want)
		}
	})
}
