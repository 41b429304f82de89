package permission

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/settlement-ledger/ledger/domain"
)

// A Terminal is an Approver that asks a person, one request at a time.
// NewTerminal makes one. Somebody must call Run.
type Terminal struct {
	in    *bufio.Reader
	out   io.Writer
	turn  chan struct{} // holds one token while nobody asks
	lines chan string
	ended chan struct{}
}

// NewTerminal returns a Terminal that reads answers from in, one on each line,
// and writes questions to out. Both are its own from here on.
func NewTerminal(in io.Reader, out io.Writer) *Terminal {
	t := &Terminal{in: bufio.NewReader(in), out: out, turn: make(chan struct{}, 1), lines: make(chan string), ended: make(chan struct{})}
	t.turn <- struct{}{}
	return t
}

// Run reads answers until in ends, which is no error, or ctx does. It is
// called once. While it is blocked in a read, the end of ctx does not free it:
// whoever owns in closes that. When it returns, every request is refused, as
// there is no one to ask.
func (t *Terminal) Run(ctx context.Context) error {
	defer close(t.ended)
	for {
		line, err := t.in.ReadString('\n')
		if line != "" {
			select {
			case t.lines <- line:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read an answer: %w", err)
		}
	}
}

// Decide asks the person and waits for one of the answers once, always, reject,
// or reject and what the model should read, each by its first letter too. It
// asks again after any other. It returns the cause of ctx if that ends before.
func (t *Terminal) Decide(ctx context.Context, r Request) (Answer, error) {
	select {
	case <-t.turn:
		defer func() { t.turn <- struct{}{} }()
	case <-ctx.Done():
		return Answer{}, context.Cause(ctx)
	}
	if ctx.Err() != nil {
		return Answer{}, context.Cause(ctx)
	}
	if _, err := io.WriteString(t.out, question(r)); err != nil {
		return Answer{}, fmt.Errorf("write a question: %w", err)
	}
	for {
		if _, err := io.WriteString(t.out, "[o]nce, [a]lways, [r]eject, r and why: "); err != nil {
			return Answer{}, fmt.Errorf("write a question: %w", err)
		}
		select {
		case line := <-t.lines:
			if answer, ok := read(line); ok {
				return answer, nil
			}
		case <-t.ended:
			return Answer{Scope: Reject, By: ByHeadless}, nil
		case <-ctx.Done():
			_, _ = io.WriteString(t.out, "\n(not needed any more)\n") // the question is settled, whether or not it can be said
			return Answer{}, context.Cause(ctx)
		}
	}
}

// question renders a request. What a model wrote cannot move the cursor or
// pass for a line of the question.
func question(r Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s asks for %s:\n", plain(string(r.Invocation.Agent)), plain(r.Action))
	for _, resource := range r.Resources {
		fmt.Fprintf(&b, "  %s\n", plain(resource))
	}
	b.WriteString(shown(r.Shown))
	if len(r.Save) > 0 {
		saved := make([]string, len(r.Save))
		for i, s := range r.Save {
			saved[i] = plain(s)
		}
		fmt.Fprintf(&b, "always would allow: %s\n", strings.Join(saved, ", "))
	}
	return b.String()
}

// shown renders the text that a question shows: each line behind a bar, which
// no line of the question begins with, and below them the size of the whole.
func shown(s domain.Shown) string {
	if s.IsZero() {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s:\n", plain(s.Kind))
	for line := range strings.SplitSeq(strings.TrimSuffix(s.Text, "\n"), "\n") {
		fmt.Fprintf(&b, "  | %s\n", plain(line))
	}
	fmt.Fprintf(&b, "  (%d bytes", s.Bytes)
	if s.Cut > 0 {
		fmt.Fprintf(&b, ", %d of them not shown", s.Cut)
	}
	b.WriteString(")\n")
	return b.String()
}

// plain replaces what is not printable by its escape.
func plain(text string) string {
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

func read(line string) (Answer, bool) {
	word, feedback, _ := strings.Cut(strings.TrimSpace(line), " ")
	feedback = strings.TrimSpace(feedback)
	switch strings.ToLower(word) {
	case "o", "once":
		return Answer{Scope: Once, By: ByUser}, feedback == ""
	case "a", "always":
		return Answer{Scope: Always, By: ByUser}, feedback == ""
	case "r", "reject":
		return Answer{Scope: Reject, Feedback: feedback, By: ByUser}, true
	}
	return Answer{}, false
}
