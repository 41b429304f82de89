package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// servingLease is how long a process that serves is taken to live without a word
// from it. It carries no session, so that nobody waits for its end: the lease is
// long, and a line of the log in five minutes.
const servingLease = 15 * time.Minute

// A presence keeps a process that serves on record: where other nodes reach the
// outputs that it serves, and that it lives. Losing its lease ends nothing: it goes
// on record again.
type presence struct {
	ledger  *events.Ledger
	address string // http://HOST:PORT or https://HOST:PORT
	log     *slog.Logger
	noted   func(domain.ProcessID) // is told under which ID the process is on record
	first   domain.ProcessID       // the ID under which begin puts the process on record the first time; zero: a new one
	process domain.ProcessID
	writer  *events.Writer
}

// begin puts the process on record.
func (p *presence) begin(ctx context.Context) error {
	id := p.first
	if p.first = (domain.ProcessID{}); id.IsZero() {
		id = p.ledger.Mint().Process()
	}
	writer := p.ledger.Writer(events.ProcessStream(id), 0)
	started := events.ProcessStarted{
		Process: id, Host: hostName(), PID: os.Getpid(), Program: stores.ServeCommand, Version: version(),
		Until: p.ledger.Now().Add(servingLease), Address: p.address,
	}
	if _, err := writer.Append(ctx, p.ledger.Draft(started, domain.EventID{})); err != nil {
		return fmt.Errorf("put on record that this process serves: %w", err)
	}
	p.process, p.writer = id, writer
	p.noted(id)
	return nil
}

// keep keeps the lease until ctx ends. It is called after begin, and end after it.
func (p *presence) keep(ctx context.Context) {
	for {
		lease := runner.KeepLease(ctx, p.ledger, p.writer, p.process, servingLease)
		<-lease.Alive().Done()
		cause := context.Cause(lease.Alive())
		lease.Close()
		if ctx.Err() != nil {
			return
		}
		p.log.Warn("the lease of this process is lost: it goes on record again", "process", p.process.String(), "error", cause)
		if !p.again(ctx) {
			return
		}
	}
}

// The pauses between two tries to go on record again.
const (
	firstAgain = time.Second
	lastAgain  = time.Minute
)

// again puts the process on record under another ID, and the end of the one whose
// lease it lost. It tries until that is so, and returns false if ctx ends before.
func (p *presence) again(ctx context.Context) bool {
	lost := p.process
	for wait := firstAgain; ; wait = min(2*wait, lastAgain) {
		err := p.begin(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil || stores.Sleep(ctx, wait) != nil {
			return false
		}
		p.log.Warn("not on record", "error", err)
	}
	if err := endProcess(ctx, p.ledger, lost); err != nil {
		p.log.Warn("the process whose lease was lost is not on record as ended: ledger recover ends it", "process", lost.String(), "error", err)
	}
	return true
}

// end puts the end of the process on record. What ctx asks for no longer matters.
// A log that cannot be reached keeps nobody from ending: the lease runs out.
func (p *presence) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), registry.DefaultGrace)
	defer cancel()
	_, err := p.writer.Append(ctx, p.ledger.Draft(events.ProcessStopped{Process: p.process, Reason: events.ProcessEnded}, domain.EventID{}))
	if err != nil && !errors.Is(err, events.ErrConflict) { // somebody has ended it
		p.log.Warn("the end is not on record: the lease runs out by itself", "process", p.process.String(), "error", err)
	}
}

// endProcess puts on record that a process was lost, if it is on record and its end
// is not.
func endProcess(ctx context.Context, ledger *events.Ledger, id domain.ProcessID) error {
	stream := events.ProcessStream(id)
	for {
		last := events.Header{}
		for h, err := range ledger.Headers(ctx, events.Query{Stream: stream, Backward: true}) {
			if err != nil {
				return err
			}
			last = h
			break
		}
		if last.Revision == 0 || last.Kind == (events.ProcessStopped{}).Kind() {
			return nil
		}
		_, err := ledger.Append(ctx, stream, last.Revision, ledger.Draft(events.ProcessStopped{Process: id, Reason: events.ProcessLost}, domain.EventID{}))
		if !errors.Is(err, events.ErrConflict) { // one that goes on meanwhile is looked at again
			return err
		}
	}
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}
