package shared

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// A backendSearch is a search for the next backend in progress. All operations that
// need a backend wait until done is closed.
type backendSearch struct {
	done chan struct{}
	// err is nil if the search set a new current backend. It is set before done is
	// closed.
	err error
}

// setCurrent makes b the current backend. When b is lost, a Store that writes searches
// for the next backend at once, and does not wait for its next operation. The other
// processes thus soon have a holder again.
func (s *Store) setCurrent(b *backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.current = b
	if s.cfg.ReadOnly != nil || s.mu.closed {
		return
	}
	s.running.Go(func() {
		<-b.gone.Done()
		_, _ = s.backend(s.life) // operations get the error
	})
}

// replace closes the lost backend, finds the next one, and ends the search found. It
// closes the lost backend on a separate goroutine, because the requests in progress may
// take until drainTimeout. The lock of the folder is free only after that.
func (s *Store) replace(found *backendSearch) {
	s.mu.Lock()
	old := s.mu.current
	s.mu.Unlock()
	s.running.Go(func() { _ = old.close(s.life) }) // no operation uses it any more
	next, err := s.findBackend(s.life, false)
	if err == nil {
		s.setCurrent(next)
		if next.owned != nil && s.cfg.TookOver != nil {
			s.goUnlessClosed(func() { s.cfg.TookOver(s.life) })
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found.err = err
	if s.mu.closed && err != nil {
		found.err = events.ErrClosed
	}
	s.mu.search = nil
	close(found.done)
}

// findBackend takes the lock of the folder or connects to the holder. While another
// process begins to serve, ends or does not respond, findBackend repeats the attempt
// with growing pauses. After Config.Timeout it returns an UnresponsiveError.
//
// It returns an error at once if another attempt cannot change the result. Open sets
// first. A findBackend with first set also gives up after exclusiveWait, if the process
// with the lock does not share the folder.
func (s *Store) findBackend(ctx context.Context, first bool) (*backend, error) {
	began, notified := time.Now(), false
	for pause := firstPause; ; pause = min(pause*3/2, lastPause) {
		b, alone, err := s.tryBackend(ctx)
		if err == nil || ctx.Err() != nil || !inUse(err) && !errors.Is(err, ErrNoResponse) {
			return b, err
		}
		wait, since := currentWait(s.dir), time.Since(began)
		switch {
		case errors.Is(err, errOtherHost), alone && first && since > exclusiveWait:
			return nil, err
		case since > s.timeout():
			return nil, &UnresponsiveError{wait, err}
		case !notified && since > noticeAfter:
			notified = true
			s.waiting(wait)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// inUse reports whether another process has the lock of a store.
func inUse(err error) bool {
	return errors.Is(err, events.ErrInUse) || errors.Is(err, outputs.ErrInUse)
}

// tryBackend makes one attempt to get a backend. It takes the lock of the folder, or
// opens the folder by Config.ReadOnly if this process only reads. If another process
// has the lock, tryBackend connects to that process. The result alone is true if that
// process does not share the folder, or not with this user. After an events.ErrInUse,
// an outputs.ErrInUse or an ErrNoResponse another attempt may succeed.
func (s *Store) tryBackend(ctx context.Context) (b *backend, alone bool, err error) {
	// The lock decides and not the endpoint file: a copy of a folder has the endpoint of
	// the original's holder, and a killed process leaves its endpoint.
	err = events.ErrInUse
	switch {
	case s.cfg.ReadOnly != nil:
		b, err = s.readOnly(ctx)
	case !s.yields():
		b, err = s.acquire(ctx)
	}
	if !inUse(err) {
		return b, false, err
	}
	owner, known := readOwner(s.dir)
	at, failed := ReadEndpoint(s.dir)
	switch {
	case errors.Is(failed, fs.ErrPermission):
		return nil, true, fmt.Errorf("open %s: %w by %s, which serves it to its own user alone: %w", s.dir, events.ErrInUse, describe(owner), failed)
	case failed != nil || !known || !at.of(owner):
		return nil, known && !owner.Shares, err
	}
	b, connecting := s.connect(ctx, at)
	host, _ := os.Hostname()
	switch {
	case connecting == nil:
		return b, false, nil
	case at.Host != host:
		return nil, false, fmt.Errorf("open %s: %w by %s: %w", s.dir, events.ErrInUse, at, errOtherHost)
	}
	return nil, false, errors.Join(err, connecting)
}

// readOnly opens the folder in a process that only reads, by Config.ReadOnly.
func (s *Store) readOnly(ctx context.Context) (*backend, error) {
	opened, err := s.cfg.ReadOnly(ctx)
	if err != nil {
		return nil, err
	}
	return s.newBackend(opened), nil
}
