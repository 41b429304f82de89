package shared

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// A Backend is an open folder: the stores themselves, if this process has them open, or
// clients of the process that has them open.
type Backend struct {
	// Log is the log, Outputs the blob store and Checkpoints the checkpoints of the
	// folder.
	Log         events.Scanner
	Outputs     remote.BlobStore
	Checkpoints DurableCheckpoints
	// Close closes the stores. Nil: there is nothing to close.
	Close func() error
}

// A backend is a Backend that a Store uses. There are three kinds:
//
//   - In the holder, the process that has the lock of the folder, owned is set.
//   - In a client of the holder, client is set.
//   - In a process that only reads while there is no holder, neither is set.
//
// A backend can be used until its context gone ends. Then the Store searches for the
// next backend and closes the old one. Operations that failed because the old backend
// was lost are repeated with the next one.
type backend struct {
	Backend
	// owned is the folder of the holder. Nil: another process is the holder.
	owned *ownedFolder
	// client is the connection to the holder. Nil: this process is the holder, or reads
	// the folder while there is no holder.
	client *Client
	// gone is a context that ends, with the cause errGone, when the backend is lost,
	// and with the cause events.ErrClosed when the Store closes.
	gone context.Context
	// end ends gone. Only the first call has an effect.
	end context.CancelCauseFunc
	// joined counts the goroutines of a client.
	joined sync.WaitGroup
	// once makes close idempotent.
	once sync.Once
	// beats counts the heartbeats received.
	beats atomic.Int64
	mu    struct {
		sync.Mutex
		// waiting is the number of operations that wait for a response.
		waiting int
		// responsive ends with an *UnresponsiveError at the timeout of the holder.
		// renewTimeout replaces it.
		responsive context.Context
		// timeOut ends responsive.
		timeOut context.CancelCauseFunc
	}
}

// errGone ends a backend that can no longer be used and that another one can replace.
var errGone = errors.New("the process that had the folder open ended")

// newBackend returns a backend whose context ends when the Store closes. It starts no
// goroutine.
func (s *Store) newBackend(b Backend) *backend {
	next := &backend{Backend: b}
	next.gone, next.end = context.WithCancelCause(s.life)
	next.mu.responsive, next.mu.timeOut = context.WithCancelCause(next.gone)
	return next
}

// close ends the backend and joins its goroutines. The caller ensures that no operation
// uses the backend. In the process that is the holder, close first ends the Holder and
// then closes the stores. Later calls return nil.
func (b *backend) close(ctx context.Context) (err error) {
	b.once.Do(func() {
		b.end(errGone)
		b.joined.Wait()
		if b.owned != nil {
			err = b.owned.holder.Close(ctx)
		}
		if b.Close != nil {
			err = errors.Join(err, b.Close())
		}
	})
	return err
}

// withContext returns a context for one operation. The context ends with ctx and when
// the backend is lost. If limited is set, it also ends, with an UnresponsiveError, when
// the holder has been silent for the timeout. The caller calls the returned function at
// the end of the operation. In a process that only reads while there is no holder, the
// context is ctx itself.
func (b *backend) withContext(ctx context.Context, limited bool) (context.Context, func()) {
	if b.client == nil && b.owned == nil {
		return ctx, func() {}
	}
	until := b.gone
	if limited {
		b.mu.Lock()
		b.mu.waiting++
		until = b.mu.responsive
		b.mu.Unlock()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(until, func() { cancel(context.Cause(until)) })
	return ctx, func() {
		stop()
		cancel(nil)
		if limited {
			b.mu.Lock()
			b.mu.waiting--
			b.mu.Unlock()
		}
	}
}

// The state of the holder, running or silent, follows from the number of ticks without
// a heartbeat. The client counts ticks and does not compare times. A client that a
// signal has stopped counts no tick meanwhile, so it does not take the holder for
// unresponsive when it continues.
const (
	tick = heartbeatInterval / 2
	// stoppedTicks is the number of ticks without a heartbeat after which
	// Config.Waiting is called for a holder that a signal has stopped.
	stoppedTicks = 6
	// silentTicks is the number of ticks without a heartbeat after which Config.Waiting
	// is called for a holder that runs.
	silentTicks = 16
)

// connect opens the folder through the process at an endpoint. It opens the stream of
// heartbeats, a client of the log and a client of the outputs. It returns an
// ErrNoResponse if the process does not respond. After an error it leaves none of the
// three open.
func (s *Store) connect(ctx context.Context, at Endpoint) (_ *backend, err error) {
	client, err := NewClient(at)
	if err != nil {
		return nil, err
	}
	b := s.newBackend(Backend{Checkpoints: client})
	b.client = client
	defer func() {
		if err != nil {
			_ = b.close(ctx) // err has the reason
		}
	}()
	b.Close = client.Close
	heartbeat, err := b.openHeartbeat(ctx)
	if err != nil {
		return nil, err
	}
	b.joined.Go(func() { b.countBeats(heartbeat) })
	b.joined.Go(func() { s.monitor(b) })
	trusted, err := at.Pool()
	if err != nil {
		return nil, err
	}
	opening, free := b.withContext(ctx, true)
	defer free()
	log, err := eventstoredb.Open(opening, at.ConnectionString(), eventstoredb.Config{
		RootCAs: trusted, MaxAppend: server.DefaultMaxAppend, RetryTimeout: s.timeout(), Logger: s.cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoResponse, err)
	}
	blobs, err := client.Outputs(-1)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	b.Log, b.Outputs = log, blobs
	b.Close = func() error { return errors.Join(blobs.Close(), log.Close(), client.Close()) }
	return b, nil
}

// connectTimeout is how long a holder may take to respond to a new client.
const connectTimeout = 2 * time.Second

// openHeartbeat requests the stream of heartbeats of the holder. It returns an
// ErrNoResponse if the holder refuses, or does not respond within connectTimeout. The
// stream lasts until the backend ends. The caller closes the body of the response.
func (b *backend) openHeartbeat(ctx context.Context) (*http.Response, error) {
	// The request ends with the backend, and until the response with ctx.
	request, cancel := context.WithCancelCause(b.gone)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	timer := time.AfterFunc(connectTimeout, func() { cancel(fmt.Errorf("%w: %w", ErrNoResponse, errRequestTimeout)) })
	response, err := b.client.send(request, http.MethodGet, heartbeatPath, nil)
	timer.Stop()
	stop()
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		cancel(nil)
		_ = response.Body.Close()
		return nil, fmt.Errorf("%w: it says %s", ErrNoResponse, response.Status)
	}
	return response, nil
}

// countBeats counts the heartbeats of the holder until the stream of heartbeats ends.
// It then ends the backend: the holder has ended or was killed, or the connection
// broke.
func (b *backend) countBeats(heartbeat *http.Response) {
	defer heartbeat.Body.Close()
	defer b.end(errGone)
	buffer := make([]byte, 64)
	for {
		n, err := heartbeat.Body.Read(buffer)
		b.beats.Add(int64(n))
		if err != nil && (n == 0 || err != io.EOF) || err == io.EOF {
			return
		}
	}
}

// monitor checks at each tick, until the backend ends, whether the holder has sent a
// heartbeat. While the holder is silent and operations wait for it, monitor calls
// Config.Waiting, once in each period of silence. After the timeout it ends these
// operations with an UnresponsiveError. After the next heartbeat, operations can wait
// again. Silence does not end the backend.
func (s *Store) monitor(b *backend) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	lastBeats, silence, notified, timedOut := int64(0), 0, false, false
	for {
		select {
		case <-b.gone.Done():
			return
		case <-ticker.C:
		}
		if now := b.beats.Load(); now != lastBeats {
			lastBeats, silence, notified = now, 0, false
			if timedOut {
				b.renewTimeout()
				timedOut = false
			}
			continue
		}
		silence++
		if silence < stoppedTicks || timedOut {
			continue
		}
		wait := currentWait(s.dir)
		b.mu.Lock()
		waiting := b.mu.waiting
		b.mu.Unlock()
		if !notified && waiting > 0 && (wait.Stopped || silence >= silentTicks) {
			notified = true
			s.waiting(wait)
		}
		if time.Duration(silence)*tick >= s.timeout() {
			timedOut = true
			b.mu.Lock()
			b.mu.timeOut(&UnresponsiveError{wait, nil})
			b.mu.Unlock()
		}
	}
}

// renewTimeout lets operations wait for the holder again, after a heartbeat has ended a
// period of silence.
func (b *backend) renewTimeout() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.responsive, b.mu.timeOut = context.WithCancelCause(b.gone)
}

// clientLossErrors are the errors by which a client knows that the holder is ending or
// dead. The client then searches for the next backend.
var clientLossErrors = []error{
	events.ErrClosed, outputs.ErrClosed, ErrNoResponse, eventstoredb.ErrUnreachable, eventstoredb.ErrUnauthenticated, eventstoredb.ErrBroken,
	remote.ErrUnreachable, remote.ErrNotANode, remote.ErrDenied,
}

// lostBy reports whether the backend is lost, given err, the error of an operation. If
// it is, lostBy ends the backend, and the caller repeats the operation with the next
// backend. If the backend has already ended, lostBy ignores the kind of err, and
// returns true unless the Store was closed.
//
// It returns false for a nil err, after ctx has ended, and for an ErrUnresponsive. In
// the holder it returns false for every error, since the holder uses its own open
// stores.
func (b *backend) lostBy(ctx context.Context, err error) bool {
	switch {
	case err == nil || ctx.Err() != nil:
		return false
	case b.gone.Err() != nil:
		return errors.Is(context.Cause(b.gone), errGone)
	case errors.Is(err, ErrUnresponsive):
		return false
	}
	// After such an error a client connects again, to the same holder if it still
	// runs. A process that only reads connects to a holder that has started.
	lossErrors := clientLossErrors
	switch {
	case b.owned != nil:
		return false
	case b.client == nil:
		lossErrors = []error{events.ErrInUse, outputs.ErrInUse}
	}
	for _, lossError := range lossErrors {
		if errors.Is(err, lossError) {
			b.end(errGone)
			return true
		}
	}
	return false
}
