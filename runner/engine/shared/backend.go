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

// A Backend is a way to a folder: open in this process, or through another one.
type Backend struct {
	Log         events.Scanner
	Outputs     remote.Outputs
	Checkpoints Checkpoints
	Close       func() error // nil: nothing is to be closed
}

// A backend is a Backend in use.
type backend struct {
	Backend
	held   *held           // nil: another process holds the folder
	client *Client         // nil: this process holds the folder, or reads it while no process does
	gone   context.Context // ends with errGone when the backend can be used no more, and with the Store
	end    context.CancelCauseFunc
	joined sync.WaitGroup // the goroutines of a client
	once   sync.Once      // of close
	beats  atomic.Int64   // signs of life that the holder sent
	mu     struct {
		sync.Mutex
		waiting   int             // operations that wait for an answer
		patient   context.Context // ends with a *Silent when the holder was silent for too long
		impatient context.CancelCauseFunc
	}
}

// errGone says that a backend can be used no more, and that another one can.
var errGone = errors.New("the process that had the folder open is gone")

// newBackend returns a backend that ends with the store.
func (s *Store) newBackend(b Backend) *backend {
	next := &backend{Backend: b}
	next.gone, next.end = context.WithCancelCause(s.life)
	next.mu.patient, next.mu.impatient = context.WithCancelCause(next.gone)
	return next
}

// close ends the backend and its goroutines. The operations on it have been ended.
func (b *backend) close(ctx context.Context) (err error) {
	b.once.Do(func() {
		b.end(errGone)
		b.joined.Wait()
		if b.held != nil {
			err = b.held.holder.Close(ctx)
		}
		if b.Close != nil {
			err = errors.Join(err, b.Close())
		}
	})
	return err
}

// bound returns a context that also ends when the backend can be used no more, and
// a function that frees it. With patience it also ends when the holder is silent for
// too long.
func (b *backend) bound(ctx context.Context, patience bool) (context.Context, func()) {
	if b.client == nil && b.held == nil {
		return ctx, func() {}
	}
	until := b.gone
	if patience {
		b.mu.Lock()
		b.mu.waiting++
		until = b.mu.patient
		b.mu.Unlock()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(until, func() { cancel(context.Cause(until)) })
	return ctx, func() {
		stop()
		cancel(nil)
		if patience {
			b.mu.Lock()
			b.mu.waiting--
			b.mu.Unlock()
		}
	}
}

// The signs by which a holder is judged. They are counted and not timed, so that a
// process that was stopped itself does not take the holder for silent when it
// continues.
const (
	tick        = beat / 2
	stoppedTold = 6  // ticks without a sign, after which a stopped holder is waited for
	silentTold  = 16 // and one that is not stopped
)

// connect opens the folder through the process at an endpoint. An error says that
// this process does not answer.
func (s *Store) connect(ctx context.Context, at Endpoint) (_ *backend, err error) {
	near, err := NewClient(at)
	if err != nil {
		return nil, err
	}
	b := s.newBackend(Backend{Checkpoints: near})
	b.client = near
	defer func() {
		if err != nil {
			_ = b.close(ctx) // err has the reason
		}
	}()
	b.Close = near.Close
	alive, err := b.attend(ctx)
	if err != nil {
		return nil, err
	}
	b.joined.Go(func() { b.listen(alive) })
	b.joined.Go(func() { s.watch(b) })
	trusted, err := at.Pool()
	if err != nil {
		return nil, err
	}
	opening, free := b.bound(ctx, true)
	defer free()
	log, err := eventstoredb.Open(opening, at.ConnectionString(), eventstoredb.Config{
		RootCAs: trusted, MaxAppend: server.DefaultMaxAppend, RetryTimeout: s.patience(), Logger: s.cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	kept, err := near.Outputs(-1)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	b.Log, b.Outputs = log, kept
	b.Close = func() error { return errors.Join(kept.Close(), log.Close(), near.Close()) }
	return b, nil
}

// answerWait is how long a holder may take to answer a new client.
const answerWait = 2 * time.Second

// attend asks the holder for its signs of life.
func (b *backend) attend(ctx context.Context) (*http.Response, error) {
	// The request ends with the backend, and while it is not answered with ctx.
	asking, cancel := context.WithCancelCause(b.gone)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	timer := time.AfterFunc(answerWait, func() { cancel(fmt.Errorf("%w: %w", ErrAway, errSlow)) })
	answer, err := b.client.send(asking, http.MethodGet, alivePath, nil)
	timer.Stop()
	stop()
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		cancel(nil)
		_ = answer.Body.Close()
		return nil, fmt.Errorf("%w: it says %s", ErrAway, answer.Status)
	}
	return answer, nil
}

// listen counts the signs of life. Their end is the end of the holder.
func (b *backend) listen(alive *http.Response) {
	defer alive.Body.Close()
	defer b.end(errGone)
	buffer := make([]byte, 64)
	for {
		n, err := alive.Body.Read(buffer)
		b.beats.Add(int64(n))
		if err != nil && (n == 0 || err != io.EOF) || err == io.EOF {
			return
		}
	}
}

// watch calls Config.Waiting for a holder that does not answer, and ends the operations
// that wait for it after the patience.
func (s *Store) watch(b *backend) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	seen, silence, told, impatient := int64(0), 0, false, false
	for {
		select {
		case <-b.gone.Done():
			return
		case <-ticker.C:
		}
		if now := b.beats.Load(); now != seen {
			seen, silence, told = now, 0, false
			if impatient {
				b.renewPatience()
				impatient = false
			}
			continue
		}
		silence++
		if silence < stoppedTold || impatient {
			continue
		}
		wait := waitOn(s.dir)
		b.mu.Lock()
		waiting := b.mu.waiting
		b.mu.Unlock()
		if !told && waiting > 0 && (wait.Stopped || silence >= silentTold) {
			told = true
			s.waiting(wait)
		}
		if time.Duration(silence)*tick >= s.patience() {
			impatient = true
			b.mu.Lock()
			b.mu.impatient(&Silent{wait, nil})
			b.mu.Unlock()
		}
	}
}

// renewPatience lets operations wait again for a holder that answers again.
func (b *backend) renewPatience() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.patient, b.mu.impatient = context.WithCancelCause(b.gone)
}

// doubtful are the errors that a client gets from a holder that ends or is gone.
var doubtful = []error{
	events.ErrClosed, outputs.ErrClosed, ErrAway, eventstoredb.ErrUnreachable, eventstoredb.ErrUnauthenticated, eventstoredb.ErrBroken,
	remote.ErrUnreachable, remote.ErrNotANode, remote.ErrDenied,
}

// left reports whether an error of an operation means that the backend can be used
// no more. If so the operation is made again on the next one.
func (b *backend) left(ctx context.Context, err error) bool {
	switch {
	case err == nil || ctx.Err() != nil:
		return false
	case b.gone.Err() != nil:
		return errors.Is(context.Cause(b.gone), errGone)
	case errors.Is(err, ErrSilent):
		return false
	}
	// A client connects again to a holder that is there all the same. A process that
	// only reads looks again for a holder where one has come.
	signs := doubtful
	switch {
	case b.held != nil:
		return false
	case b.client == nil:
		signs = []error{events.ErrInUse, outputs.ErrInUse}
	}
	for _, sign := range signs {
		if errors.Is(err, sign) {
			b.end(errGone)
			return true
		}
	}
	return false
}
