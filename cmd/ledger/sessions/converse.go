package sessions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/promptline"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner"
)

// A PromptLine is the terminal at which a person has a conversation.
type PromptLine struct {
	*promptline.Console
	// OnInterrupt passes each SIGINT to a function, until the returned function is
	// called. A SIGINT for which the function returns false ends the program.
	OnInterrupt func(func() bool) (restore func())
}

// errTerminalLost is returned if the terminal of a conversation is closed.
var errTerminalLost = fmt.Errorf("the terminal was closed: %w", domain.ByShutdown)

// exitWord is the line that leaves an idle prompt line.
const exitWord = "/exit"

// Converse has a conversation with a person at a prompt line. It answers each line, and
// admits a line that is typed meanwhile to the run that goes on. It first runs the session
// if that lacks a reply. A SIGINT interrupts the run; the prompt line then returns. It
// returns nil when the person leaves. A second SIGINT, before the end of the interruption or
// within interruptTwice, ends ctx, and Converse returns its cause. The last lines that it
// prints are those of the session.
//
// An error of the model is printed, and the conversation goes on. Converse returns any other
// error of the run.
func (r *SessionRunner) Converse(ctx context.Context, session domain.SessionID, line PromptLine) error {
	l := r.launcher
	w := l.newProgress(l.Err, session)
	w.texts, w.layer = l.newStream(), r.Layer.ID()
	r.progress.Store(w)
	defer r.progress.Store(nil)
	d := &dialogue{SessionRunner: r, line: line, session: session, progress: w}
	talked := w.during(ctx, r.Store, func() error {
		defer line.OnInterrupt(d.interrupt)()
		return d.talk(ctx)
	})
	line.Close()
	return errors.Join(talked, l.showSession(context.WithoutCancel(ctx), r.Store, session))
}

// A dialogue is a conversation at a prompt line.
type dialogue struct {
	*SessionRunner
	line     PromptLine
	session  domain.SessionID
	progress *progressPrinter
	mu       struct {
		sync.Mutex
		cancel      context.CancelCauseFunc // ends the run; nil: no run goes on
		interrupted bool                    // cancel was called
		last        time.Time               // of the last SIGINT
	}
}

// interruptTwice is the time within which a second SIGINT ends the program.
const interruptTwice = time.Second

// interrupt handles a SIGINT. It returns false if the SIGINT ends the program. It never
// blocks.
func (d *dialogue) interrupt() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.launcher.Now()
	again := d.mu.interrupted || now.Sub(d.mu.last) < interruptTwice
	d.mu.last = now
	if again {
		return false
	}
	d.line.Interrupt() // before the end of the run, so that steer says what happens
	if d.mu.cancel != nil {
		d.mu.interrupted = true
		d.mu.cancel(domain.ByUser)
	}
	return true
}

// talk reads and answers lines until the person leaves.
func (d *dialogue) talk(ctx context.Context) error {
	d.say("Type a prompt. Ctrl-c interrupts a run, ctrl-d or %s leaves.", exitWord)
	if err := d.answer(ctx); err != nil {
		return err
	}
	for {
		text, err := d.line.Next(ctx)
		switch {
		case errors.Is(err, promptline.ErrInterrupted):
			d.line.Clear()
			d.say("Ctrl-c again ends the program; ctrl-d or %s leaves.", exitWord)
			continue
		case errors.Is(err, promptline.ErrLineTooLong):
			d.sayTooLong()
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF) && d.line.Ended():
			return errTerminalLost
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if text == exitWord {
			return nil
		}
		if err := d.admit(ctx, text); err != nil {
			return err
		}
		if err := d.answer(ctx); err != nil {
			return err
		}
	}
}

// say prints a line for the person.
func (d *dialogue) say(format string, args ...any) {
	d.progress.say(d.launcher.Styled(render.Dim, fmt.Sprintf(format, args...)))
}

// sayTooLong says that a line was too long.
func (d *dialogue) sayTooLong() {
	d.say("The line has more than %s: put the text into a file of the workspace and name the file.", render.Bytes(promptline.MaxLine))
}

// admit admits a prompt.
func (d *dialogue) admit(ctx context.Context, text string) error {
	return d.Runner.Admit(ctx, d.session, d.Ledger.Mint().Message(), text)
}

// answer runs the session until the model has answered all prompts, or the person interrupts
// it. It prints an error of the model.
func (d *dialogue) answer(ctx context.Context) error {
	d.line.SetBusy(true)
	defer d.line.SetBusy(false)
	for {
		admitted, err := d.run(ctx)
		_ = d.progress.readLog() // an error here loses no line: the rest is read at the end
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, domain.ErrInterrupted):
			return nil
		case err != nil && modelFailed(err):
			d.progress.report(err)
			return nil
		case err != nil || admitted == 0:
			return err
		}
		// The run may have ended before the last prompt was admitted.
	}
}

// modelFailed reports whether a run failed because of the model, so that the next prompt may
// succeed.
func modelFailed(err error) bool {
	if _, ok := errors.AsType[*runner.ProviderError](err); ok {
		return true
	}
	_, incompatible := errors.AsType[*runner.IncompatibleError](err)
	return incompatible || errors.Is(err, runner.ErrBadReply) || errors.Is(err, runner.ErrBroken)
}

// run runs the session, and meanwhile admits the lines that the person types. It returns the
// number of them.
func (d *dialogue) run(ctx context.Context) (admitted int, err error) {
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.setRun(cancel)
	defer d.setRun(nil)
	waiting, ended := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		defer ended()
		defer d.restoreAtPanic()
		err = d.Run(running, d.session)
	})
	steered := d.steer(ctx, waiting, &admitted)
	if steered != nil {
		cancel(domain.ByShutdown)
	}
	work.Wait()
	return admitted, errors.Join(steered, err)
}

// restoreAtPanic restores the mode of the terminal if the goroutine panics, which ends the
// program.
func (d *dialogue) restoreAtPanic() {
	if p := recover(); p != nil {
		d.line.RestoreMode()
		panic(p)
	}
}

// setRun notes the run that a SIGINT interrupts, or nil.
func (d *dialogue) setRun(cancel context.CancelCauseFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.cancel, d.mu.interrupted = cancel, false
}

// steer admits the lines that the person types until the context waiting ends. If the
// input ends, it returns an error that ends the conversation.
func (d *dialogue) steer(ctx, waiting context.Context, admitted *int) error {
	for {
		text, err := d.line.Next(waiting)
		switch {
		case errors.Is(err, promptline.ErrInterrupted):
			d.say("Interrupting the run; ctrl-c again ends the program.")
			continue
		case errors.Is(err, promptline.ErrLineTooLong):
			d.sayTooLong()
			continue
		case errors.Is(err, io.EOF) && d.line.Ended():
			return errTerminalLost
		case errors.Is(err, io.EOF):
			d.sayBusy()
			continue
		case waiting.Err() != nil && err != nil:
			return nil
		case err != nil:
			return err
		}
		switch text = strings.TrimSpace(text); text {
		case "":
		case exitWord:
			d.sayBusy()
		default:
			if err := d.admit(ctx, text); err != nil {
				return err
			}
			*admitted++
			d.say("The model reads it with the next request.")
		}
	}
}

// sayBusy says how to leave while a run goes on.
func (d *dialogue) sayBusy() {
	d.say("A run goes on: ctrl-c interrupts it, ctrl-c twice ends the program.")
}

// report prints an error of the model with its hint.
func (w *progressPrinter) report(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts.endLine()
	w.WriteFault(fault.Of(err))
}

// say prints a line that is not of the log.
func (w *progressPrinter) say(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.printLine("%s", text)
}
