package toolfiles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/process"
	"github.com/settlement-ledger/ledger/domain"
)

// The limits of a conversation that a manifest does not set.
const (
	// maxErrorOutput is the kept size of the standard error, in bytes.
	maxErrorOutput = 64 << 10
	// gracePeriod is how long a program may take to end after SIGTERM.
	gracePeriod = 2 * time.Second
	// lingerPeriod is how long a program may run on after its result, and after its output
	// is closed. brokenPeriod is how long it may run on after a line that is no answer, so
	// that it can write the reason to its standard error.
	lingerPeriod = time.Second
	brokenPeriod = 250 * time.Millisecond
	// maxAsks is the number of permission questions of one call.
	maxAsks = 100
)

// errTimeout is the cause of a context that ends because the time of a call is over.
var errTimeout = errors.New("the time of the tool has run out")

// A conversation is one call of a program: lines to its standard input and lines from its
// standard output. The goroutine of the call owns it.
type conversation struct {
	tool    *fileTool
	inv     domain.Invocation
	process *process.PipedProcess
	lines   *programLines
	// input has the lines for the standard input. Its capacity holds all lines of a call,
	// so that a send never blocks.
	input chan []byte
	clock *callClock
	// asks and progress count the lines of these kinds.
	asks, progress int
	// refusal is the first refused permission. It ends the call if the program returns
	// no output.
	refusal error
}

// newConversation returns the conversation with a started program.
func newConversation(t *fileTool, inv domain.Invocation, p *process.PipedProcess) *conversation {
	return &conversation{
		tool: t, inv: inv, process: p, input: make(chan []byte, maxAsks+1),
		lines: newProgramLines(&exitReader{file: p.Stdout}, t.manifest.Limits),
	}
}

// run sends the input, follows the lines of the program, and ends its process group. It
// returns the output, a *domain.Failure, the refusal of a permission, the cause of ctx, or
// a *domain.Defect with the standard error of the program.
func (c *conversation) run(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
	limited, cancel := context.WithCancelCause(ctx)
	var joined sync.WaitGroup
	over := make(chan struct{})
	defer joined.Wait()
	defer close(over)
	defer cancel(nil)
	c.clock = startClock(c.tool.manifest.timeout, func() { cancel(errTimeout) })
	defer c.clock.pause()
	defer c.process.Stop()
	joined.Go(func() { c.writeInput(over) })
	joined.Go(func() { c.watchEnd(limited, over) })

	out, err := c.follow(limited, in)
	period := lingerPeriod
	if !c.lines.ended {
		period = brokenPeriod
	}
	byItself := c.linger(limited, period)
	end := programEnd{c.process.Stop(), byItself}
	return c.conclude(ctx, limited, out, err, end)
}

// conclude returns the result of the call after the process group has ended: the output,
// else the cause of ctx if ctx has ended, else a refused permission. Without a refusal it
// returns the failure of the program, of its timeout, or of its protocol. It returns any
// other error unchanged.
func (c *conversation) conclude(ctx, limited context.Context, out json.RawMessage, err error, end programEnd) (json.RawMessage, error) {
	_, failed := errors.AsType[*domain.Failure](err)
	_, broke := errors.AsType[*protocolError](err)
	late := context.Cause(limited) == errTimeout
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case c.refusal != nil && (failed || broke || late):
		return nil, c.refusal
	case failed:
		return nil, err
	case late:
		return nil, domain.Fail("The tool %s was ended: it gave no result within %v.", c.tool.name, c.tool.manifest.timeout)
	case broke:
		return nil, c.defect(err, end)
	}
	return nil, err
}

// A protocolError says how a program broke the protocol of its lines.
type protocolError struct{ text string }

// Error returns the text.
func (e *protocolError) Error() string { return e.text }

// broken returns a protocolError.
func broken(format string, args ...any) error { return &protocolError{fmt.Sprintf(format, args...)} }

// A programEnd says how a program ended.
type programEnd struct {
	process.RunResult
	byItself bool // and not because the conversation stopped it
}

// String returns the end in words.
func (e programEnd) String() string {
	switch {
	case !e.byItself:
		return "it was running, and was stopped"
	case e.Signal != 0:
		return "it was ended by the signal " + e.Signal.String()
	}
	return fmt.Sprintf("its exit status is %d", e.Exit)
}

// defect returns the end of a call whose program broke the protocol. The model reads the
// reason and how the program ended; the operator also reads its standard error.
func (c *conversation) defect(reason error, end programEnd) error {
	d := &domain.Defect{Value: fmt.Sprintf("tool %s: %v (%s)", c.tool.name, reason, end)}
	if output := end.Output; len(output.Head) > 0 {
		text := string(output.Head)
		if output.Lost > 0 {
			text += fmt.Sprintf("\n[%d bytes lost here]\n%s", output.Lost, output.Tail)
		}
		d.Stack = []byte("standard error of the program:\n" + strings.ToValidUTF8(text, "\uFFFD"))
	}
	return d
}

// writeInput writes the lines of c.input until the conversation is over. If the program
// closes its input early, writeInput drops the remaining lines.
func (c *conversation) writeInput(over <-chan struct{}) {
	for {
		select {
		case line := <-c.input:
			if _, err := c.process.Stdin.Write(line); err != nil {
				return
			}
		case <-over:
			return
		}
	}
}

// watchEnd ends the reading of lines. When the program ends, the lines that it has written
// are still read. When ctx ends, watchEnd stops the process group at once.
func (c *conversation) watchEnd(ctx context.Context, over <-chan struct{}) {
	select {
	case <-c.process.Exited():
		// exitReader then reads the bytes in the pipe and ends. A process that the program
		// left running could hold the pipe open.
		_ = c.process.Stdout.SetReadDeadline(time.Unix(1, 0))
	case <-ctx.Done():
		c.process.Stop()
	case <-over:
	}
}

// linger waits for a program to end by itself, at most for period, and reports whether it
// has ended.
func (c *conversation) linger(ctx context.Context, period time.Duration) bool {
	_ = c.process.Stdin.Close() // a program that waits for more input ends
	timer := time.NewTimer(period)
	defer timer.Stop()
	select {
	case <-c.process.Exited():
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// follow sends the input, handles the lines of the program, and returns the result. The
// result must be the last line of the output.
func (c *conversation) follow(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
	if err := c.send(c.request(in)); err != nil {
		return nil, err
	}
	for {
		a, more, err := c.next()
		switch {
		case err != nil:
			return nil, err
		case !more && c.lines.number == 0:
			return nil, broken("it ended without writing a line")
		case !more:
			return nil, broken("it ended after line %d without an output or a failure", c.lines.number)
		case a.isResult():
			return c.finish(ctx, a)
		}
		if err := c.handle(ctx, a); err != nil {
			return nil, err
		}
	}
}

// finish returns the result of the call, or an error if another line follows the result.
// If the program keeps its output open, finish returns the result after lingerPeriod.
func (c *conversation) finish(ctx context.Context, result answerLine) (json.RawMessage, error) {
	c.clock.pause()
	_ = c.process.Stdin.Close()
	_ = c.process.Stdout.SetReadDeadline(time.Now().Add(lingerPeriod))
	at := c.lines.number
	if line, err := c.lines.next(); err == nil && line != nil {
		return nil, broken("line %d follows the result in line %d: %s", at+1, at, excerpt(line))
	} else if err != nil && ctx.Err() == nil {
		return nil, err
	}
	if result.Failure != nil {
		return nil, domain.Fail("%s", *result.Failure)
	}
	return json.RawMessage(result.Output), nil
}

// next returns the next line of the program, and false at the end of its output.
func (c *conversation) next() (a answerLine, more bool, err error) {
	line, err := c.lines.next()
	if err != nil || line == nil {
		return a, false, err
	}
	if a, err = parseAnswer(line); err != nil {
		return a, false, broken("line %d is no answer: %v: %s", c.lines.number, err, excerpt(line))
	}
	return a, true, nil
}

// handle handles one line that is not a result: it reports progress or asks a question.
func (c *conversation) handle(ctx context.Context, a answerLine) error {
	if a.Ask != nil {
		return c.ask(ctx, *a.Ask)
	}
	if c.progress++; c.progress > c.tool.manifest.Limits.Progress {
		return broken("line %d is over the limit of %d progress lines", c.lines.number, c.tool.manifest.Limits.Progress)
	}
	var text string
	if json.Unmarshal(a.Progress, &text) == nil {
		c.inv.Report(domain.Progress{Content: domain.Contents{domain.Text(text)}})
		return nil
	}
	c.inv.Report(domain.Progress{Structured: json.RawMessage(a.Progress)})
	return nil
}

// ask asks for a permission and sends the answer to the program. The time of the call does
// not run meanwhile. If the program ends before the answer, ask withdraws the question.
func (c *conversation) ask(ctx context.Context, a askLine) error {
	if c.asks++; c.asks > maxAsks {
		return broken("line %d is over the limit of %d questions", c.lines.number, maxAsks)
	}
	if len(a.Save) > 0 && c.tool.config.Placement == domain.Location {
		return broken("line %d: a tool of a project cannot ask for an approval that is saved", c.lines.number)
	}
	err := c.assert(ctx, a)
	denied, isDenied := errors.AsType[*domain.Denied](err)
	declined, isDeclined := errors.AsType[*domain.Declined](err)
	switch {
	case err == nil:
		return c.send(permissionAnswer{Answer: "allow"})
	case c.refusal == nil && (isDenied || isDeclined):
		c.refusal = err
	}
	switch {
	case isDenied:
		return c.send(permissionAnswer{Answer: "deny", Reason: denied.Error()})
	case isDeclined:
		return c.send(permissionAnswer{Answer: "deny", Reason: declined.Error()})
	}
	return err
}

// errGone is the cause of a context that ends because the program that asked has ended.
var errGone = errors.New("the program that asked has ended")

// assert waits for the decision about a question. It returns a protocolError if the
// program ends first.
func (c *conversation) assert(ctx context.Context, a askLine) error {
	c.clock.pause()
	defer c.clock.resume()
	asking, cancel := context.WithCancelCause(ctx)
	var joined sync.WaitGroup
	defer joined.Wait()
	defer cancel(nil)
	joined.Go(func() {
		select {
		case <-c.process.Exited():
			cancel(errGone)
		case <-asking.Done():
		}
	})
	request := permission.Ask{Action: a.Action, Resources: a.Resources, Save: a.Save}
	if a.Preview != "" {
		request.Preview = permission.TextPreview(domain.PreviewContent, a.Preview)
	}
	err := c.tool.at.Permission.Assert(asking, c.inv, request)
	if err != nil && context.Cause(asking) == errGone {
		return broken("it ended while its question in line %d was open", c.lines.number)
	}
	return err
}

// A programRequest is the first line for a program.
type programRequest struct {
	Input    json.RawMessage `json:"input"`
	Call     programCall     `json:"call"`
	Location string          `json:"location"` // the folder in which the session works
	Folder   string          `json:"folder"`   // the folder of the manifest
}

// A programCall identifies a call for a program.
type programCall struct {
	Session string `json:"session"`
	Agent   string `json:"agent"`
	Message string `json:"message"`
	Call    string `json:"call"`
}

// A permissionAnswer is the line that answers a question of a program.
type permissionAnswer struct {
	Answer string `json:"answer"` // allow or deny
	Reason string `json:"reason,omitempty"`
}

// request returns the first line of the call.
func (c *conversation) request(in json.RawMessage) programRequest {
	return programRequest{
		Input: in, Location: c.tool.at.Folder, Folder: c.tool.config.Folder,
		Call: programCall{c.inv.Session.String(), string(c.inv.Agent), c.inv.Message.String(), string(c.inv.Call)},
	}
}

// send queues a line for the standard input of the program.
func (c *conversation) send(value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("send to tool %s: %w", c.tool.name, err)
	}
	c.input <- append(line, '\n')
	return nil
}

// excerpt returns the beginning of a line for an error text.
func excerpt(line []byte) string {
	const most = 200
	if len(line) <= most {
		return fmt.Sprintf("%q", line)
	}
	return fmt.Sprintf("%q and %d more bytes", line[:most], len(line)-most)
}
