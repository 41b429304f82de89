package permission

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/settlement-ledger/ledger/domain"
)

// The quiet time is the pause in typing that must precede a prompt. It is longer after a
// withdrawn question, because the person may still be typing the answer to that question.
const (
	quietTime      = 250 * time.Millisecond
	quietWithdrawn = time.Second
)

// A Terminal is an Approver and a Questioner that asks a person, one request at a time.
// NewTerminal makes one. The owner calls Run.
//
// An answer counts only if it was typed after its prompt was written. The
// Terminal discards earlier input in the buffers of the process and of the
// terminal device, including an unfinished line. The prompt follows the
// question once nothing was typed for a quarter of a second, or for a second if
// the question before was withdrawn. After an invalid line the
// Terminal discards input up to the next prompt: only the first line of
// a pasted block of text can answer.
type Terminal struct {
	input       *input
	screen      *screen
	token       chan struct{} // holds one token while no question is open
	quietPeriod time.Duration // before the next prompt; owned by the holder of the token
}

// NewTerminal returns a Terminal that reads answers from in, one on each line, and writes
// questions to out. From then on only the Terminal uses in and out; the caller writes its
// own lines to Background.
func NewTerminal(in io.Reader, out io.Writer) *Terminal {
	t := &Terminal{input: newInput(in), screen: &screen{out: out, atLineStart: true}, token: make(chan struct{}, 1), quietPeriod: quietTime}
	t.token <- struct{}{}
	return t
}

// A LineEditor has the terminal while no question is open: it sets the mode of the device,
// shows a prompt line and edits it. Input is called with a lock of the Terminal held, so
// the methods must not call the Terminal.
type LineEditor interface {
	// Suspend leaves the terminal to a question: it removes the prompt line and sets the
	// mode in which the device edits lines.
	Suspend()
	// Resume takes the terminal back after a question.
	Resume()
	// Input receives bytes that were typed while no question is open. It does not retain
	// them.
	Input(b []byte)
}

// Share gives the terminal to a line editor while no question is open. Input that is typed
// at a question never reaches the editor. Share is called at most once, before Run.
func (t *Terminal) Share(e LineEditor) {
	t.input.mu.Lock()
	defer t.input.mu.Unlock()
	t.input.mu.editor = e
}

// beginAsking takes the terminal from the line editor, if there is one, and returns the
// function that gives it back.
func (t *Terminal) beginAsking() (end func()) {
	t.input.mu.Lock()
	editor := t.input.mu.editor
	t.input.mu.Unlock()
	if editor == nil {
		return func() {}
	}
	t.input.setAsking(true)
	editor.Suspend()
	return func() {
		t.input.setAsking(false)
		editor.Resume()
	}
}

// Run reads answers until in ends or ctx ends. It returns nil at the end of in, the cause
// of ctx, or a read error. It is called once. The end of ctx interrupts a blocked read of
// a terminal device. It does not interrupt a read of any other input, so the owner of in
// closes that input. After Run has returned, the Terminal rejects every request.
func (t *Terminal) Run(ctx context.Context) error { return t.input.run(ctx) }

// Background returns a Writer to the same screen, for lines that belong to no question.
// While a question is open the Writer buffers up to 64 KiB of lines, and writes them when
// the question is closed. It drops further lines and writes the number of dropped bytes.
// It is safe for concurrent use.
func (t *Terminal) Background() io.Writer { return t.screen }

// Decide asks the person and waits for an answer. The answers are once, always, reject,
// and reject with a text for the model, each in full or by its first letter. After an
// invalid line Decide prompts again. An end of file typed at a terminal device counts as
// reject. Decide returns the cause of ctx if ctx ends first.
func (t *Terminal) Decide(ctx context.Context, r Request) (Answer, error) {
	answer := Answer{Choice: Reject, By: ByHeadless}
	err := t.occupy(ctx, func() error {
		given, answered, err := askLine(ctx, t, renderQuestion(r), promptText, parseAnswer)
		if answered {
			answer = given
		}
		return err
	})
	if err != nil {
		return Answer{}, err
	}
	return answer, nil
}

// occupy waits until no question is open and calls put, which asks the questions of one
// request. It does not call put if the input has ended. It returns the error of put, or the
// cause of ctx if ctx ends first.
func (t *Terminal) occupy(ctx context.Context, put func() error) error {
	select {
	case <-t.token:
		defer func() { t.token <- struct{}{} }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if t.input.ended() {
		return nil
	}
	defer t.beginAsking()()
	t.screen.beginQuestion()
	defer t.screen.endQuestion()
	err := put()
	t.quietPeriod = quietTime
	if err != nil && ctx.Err() != nil {
		t.quietPeriod = quietWithdrawn
		_ = t.screen.writeQuestion("\n(not needed any more)\n") // the question is withdrawn even if this write fails
	}
	return err
}

// askLine writes a question and a prompt, and returns the first line that parse accepts. It
// prompts again after a line that parse refuses. It returns false if the input ends first.
// The caller holds the token of t.
func askLine[A any](ctx context.Context, t *Terminal, question, prompt string, parse func(line string) (A, bool)) (answer A, answered bool, err error) {
	defer t.input.stopAccepting()
	if err := t.screen.writeQuestion(question); err != nil {
		return answer, false, err
	}
	if err := t.prompt(ctx, prompt); err != nil {
		return answer, false, err
	}
	for {
		for line, ok := t.input.nextLine(); ok; line, ok = t.input.nextLine() {
			if answer, ok := parse(line); ok {
				return answer, true, nil
			}
			// The lines after an invalid one may belong to the same pasted text, so
			// they must not answer this question.
			t.input.stopAccepting()
			if err := t.prompt(ctx, prompt); err != nil {
				return answer, false, err
			}
		}
		switch {
		case t.input.ended():
			return answer, false, nil
		case ctx.Err() != nil:
			return answer, false, context.Cause(ctx)
		}
		select {
		case <-t.input.notify:
		case <-ctx.Done():
		}
	}
}

// promptText follows every permission request and every invalid answer to one.
const promptText = "[o]nce, [a]lways, [r]eject, r and why: "

// prompt discards input until no input has arrived for the quiet time. It then accepts
// input and writes the prompt, text. If the write blocked, the screen was stopped and did not
// show the question, so input during the write is no answer. prompt then starts again.
func (t *Terminal) prompt(ctx context.Context, text string) error {
	t.input.discard()
	timer := time.NewTimer(t.quietPeriod)
	defer timer.Stop()
	for !t.input.ended() {
		select {
		case <-t.input.notify:
			t.input.discard()
			timer.Reset(t.quietPeriod)
		case <-timer.C:
			if t.input.discard() {
				timer.Reset(t.quietPeriod)
				continue
			}
			before := time.Now()
			t.input.startAccepting()
			if err := t.screen.writeQuestion(text); err != nil {
				return err
			}
			if time.Since(before) < quietTime {
				return nil
			}
			t.input.stopAccepting()
			timer.Reset(t.quietPeriod)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// renderQuestion renders a request. Text of a model cannot move the cursor or imitate
// a line of the question.
func renderQuestion(r Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s asks for %s:\n", escape(string(r.Invocation.Agent)), escape(r.Action))
	for _, resource := range r.Resources {
		fmt.Fprintf(&b, "  %s\n", escape(resource))
	}
	b.WriteString(renderPreview(r.Shown))
	saved := make([]string, len(r.Save))
	for i, pattern := range r.Save {
		saved[i] = escape(pattern)
		if strings.Trim(pattern, "*") == "" {
			saved[i] += fmt.Sprintf(" (every %s from now on, not this one only)", escape(r.Action))
		}
	}
	if len(saved) == 0 {
		saved = []string{"this once, as nothing is saved for it"}
	}
	fmt.Fprintf(&b, "always would allow: %s\n", strings.Join(saved, ", "))
	return b.String()
}

// renderPreview renders the preview text of a question, followed by its size. It puts a
// bar before each line. No line of the question itself begins with a bar.
func renderPreview(s domain.Preview) string {
	if s.IsZero() {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s:\n", escape(s.Kind))
	for line := range strings.SplitSeq(strings.TrimSuffix(s.Text, "\n"), "\n") {
		fmt.Fprintf(&b, "  | %s\n", escape(line))
	}
	fmt.Fprintf(&b, "  (%d bytes", s.Bytes)
	if s.Cut > 0 {
		fmt.Fprintf(&b, ", %d of them not shown", s.Cut)
	}
	b.WriteString(")\n")
	return b.String()
}

// escape replaces each rune that is not printable by its escape.
func escape(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}

// parseAnswer parses a line as an answer and reports whether it is a valid one.
func parseAnswer(line string) (Answer, bool) {
	if line == endOfFile {
		return Answer{Choice: Reject, By: ByUser}, true
	}
	word, feedback, _ := strings.Cut(strings.TrimSpace(line), " ")
	feedback = strings.TrimSpace(feedback)
	switch strings.ToLower(word) {
	case "o", "once":
		return Answer{Choice: Once, By: ByUser}, feedback == ""
	case "a", "always":
		return Answer{Choice: Always, By: ByUser}, feedback == ""
	case "r", "reject":
		return Answer{Choice: Reject, Feedback: feedback, By: ByUser}, true
	}
	return Answer{}, false
}
