package serve

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

// leaseDuration is the lease of a serving process. A serving process holds no
// session, so no other process waits for its lease to expire: the lease is long, so
// that a renewal adds an event to the log only every five minutes.
const leaseDuration = 15 * time.Minute

// A processRegistration records in the log that a process serves: its address for
// requests for outputs from other nodes, and a lease that it renews. If the lease is
// lost, the processRegistration records the process again under a new ID and serving
// goes on. register, renewLease and recordEnd run one after another, so that the fields
// need no lock.
type processRegistration struct {
	ledger     *events.Ledger
	version    string // of this program
	address    string // http://HOST:PORT or https://HOST:PORT
	log        *slog.Logger
	registered func(domain.ProcessID) // called by register with each ID under which it recorded the process
	firstID    domain.ProcessID       // the ID that the first register uses; zero: a new one
	process    domain.ProcessID       // the current ID; set by register
	writer     *events.Writer         // of the stream of process
}

// register appends ProcessStarted, under p.firstID at the first call and under a new ID
// at each later call.
func (p *processRegistration) register(ctx context.Context) error {
	id := p.firstID
	// A process ID is used once: registerAgain gets a new one.
	if p.firstID = (domain.ProcessID{}); id.IsZero() {
		id = p.ledger.Mint().Process()
	}
	writer := p.ledger.Writer(events.ProcessStream(id), 0)
	started := events.ProcessStarted{
		Process: id, Host: hostName(), PID: os.Getpid(), Program: stores.ServeCommand, Version: p.version,
		Until: p.ledger.Now().Add(leaseDuration), Address: p.address,
	}
	if _, err := writer.Append(ctx, p.ledger.Draft(started, domain.EventID{})); err != nil {
		return fmt.Errorf("record the start of the server process: %w", err)
	}
	p.process, p.writer = id, writer
	p.registered(id)
	return nil
}

// renewLease renews the lease until ctx is done. The caller calls register before
// renewLease, and recordEnd after renewLease has returned.
func (p *processRegistration) renewLease(ctx context.Context) {
	for {
		lease := runner.KeepLease(ctx, p.ledger, p.writer, p.process, leaseDuration)
		<-lease.Alive().Done()
		cause := context.Cause(lease.Alive())
		lease.Close()
		if ctx.Err() != nil {
			return
		}
		p.log.Warn("lease of this process lost: recording the process again", "process", p.process.String(), "error", cause)
		if !p.registerAgain(ctx) {
			return
		}
	}
}

// The bounds of the backoff of registerAgain.
const (
	minBackoff = time.Second
	maxBackoff = time.Minute
)

// registerAgain records the process under a new ID, and then the end of the process
// under the ID whose lease was lost. It retries with exponential backoff. It returns
// false if ctx is done first.
func (p *processRegistration) registerAgain(ctx context.Context) bool {
	lost := p.process
	for wait := minBackoff; ; wait = min(2*wait, maxBackoff) {
		err := p.register(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil || stores.Sleep(ctx, wait) != nil {
			return false
		}
		p.log.Warn("record the start of the server process again", "error", err)
	}
	if err := endProcess(ctx, p.ledger, lost); err != nil {
		p.log.Warn("end of the process with the lost lease not recorded: ledger recover records it", "process", lost.String(), "error", err)
	}
	return true
}

// recordEnd appends ProcessStopped, also after ctx is done, within the grace period. If
// the log cannot be reached it logs a warning and returns: the lease expires by
// itself.
func (p *processRegistration) recordEnd(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), registry.DefaultGrace)
	defer cancel()
	_, err := p.writer.Append(ctx, p.ledger.Draft(events.ProcessStopped{Process: p.process, Reason: events.ProcessEnded}, domain.EventID{}))
	if err != nil && !errors.Is(err, events.ErrConflict) { // a conflict: another process recorded the end
		p.log.Warn("end of the server process not recorded: its lease expires", "process", p.process.String(), "error", err)
	}
}

// endProcess appends ProcessStopped with the reason lost to the stream of the process
// with this ID. It appends nothing if the stream is empty or ends with a ProcessStopped.
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
		if !errors.Is(err, events.ErrConflict) { // after a conflict, look at the stream again
			return err
		}
	}
}

// hostName returns the name of this machine, or localhost if the system has none.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}
