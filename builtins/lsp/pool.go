package lsp

import (
	"context"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// The limits of the pool.
const (
	maxServers    = 8                // that run at the same time
	maxFailures   = 3                // restarts without a pause
	firstPause    = 30 * time.Second // after maxFailures; each further failure doubles it
	maxPause      = 10 * time.Minute
	maxPauseShift = 5 // doublings, after which maxPause is reached
)

// acquire returns the server for a folder and a language, starts it if necessary, and
// counts the caller as a user. The caller calls release after its last request. acquire
// returns the cause of ctx, a failure if the server does not start or has failed too
// often, or ErrServersClosed. The end of ctx does not stop a start.
func (p *Servers) acquire(ctx context.Context, key serverKey) (*pooledServer, error) {
	running, start, err := p.use(key)
	if running != nil || err != nil {
		return running, err
	}
	select {
	case <-start.done:
		return start.server, start.err
	case <-ctx.Done():
		p.abandon(start)
		return nil, context.Cause(ctx)
	}
}

// abandon removes a call that no longer waits from a start.
func (p *Servers) abandon(start *serverStart) {
	p.mu.Lock()
	defer p.mu.Unlock()
	start.waiting--
	if start.server != nil {
		p.releaseLocked(start.server)
	}
}

// use returns the running server of a key and counts the caller as a user. If the server
// does not run, use begins its start if necessary, counts the caller as waiting, and
// returns the start.
func (p *Servers) use(key serverKey) (*pooledServer, *serverStart, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return nil, nil, ErrServersClosed
	}
	slot := p.mu.slots[key]
	if slot == nil {
		slot = &serverSlot{}
	}
	switch {
	case slot.running != nil:
		slot.running.uses++
		slot.running.stopIdleTimer()
		return slot.running, nil, nil
	case slot.starting != nil:
		slot.starting.waiting++
		return nil, slot.starting, nil
	}
	if wait := slot.retry.Sub(p.config.Now()); wait > 0 {
		return nil, nil, domain.Fail("the language server for %s failed %d times in a row and is started again after %v; the last failure: %s",
			key.language.name, slot.failures, wait.Round(time.Second), slot.fault)
	}
	if err := p.makeRoomLocked(); err != nil {
		return nil, nil, err
	}
	p.mu.slots[key] = slot
	slot.starting = &serverStart{done: make(chan struct{}), waiting: 1}
	start := slot.starting
	p.goroutines.Go(func() { p.start(key, slot, start) })
	return nil, start, nil
}

// makeRoomLocked ends the least recently used idle server if maxServers run. It removes
// slots that have neither a server nor a failure. It returns a failure if all servers are
// in use.
func (p *Servers) makeRoomLocked() error {
	count := 0
	var oldest *pooledServer
	for key, slot := range p.mu.slots {
		switch {
		case slot.starting != nil:
			count++
		case slot.running != nil:
			count++
			if slot.running.uses == 0 && (oldest == nil || slot.running.lastUse.Before(oldest.lastUse)) {
				oldest = slot.running
			}
		case slot.failures == 0:
			delete(p.mu.slots, key)
		}
	}
	if count < maxServers {
		return nil
	}
	if oldest == nil {
		return domain.Fail("%d language servers are in use: wait for their calls to end", count)
	}
	p.dismissLocked(oldest)
	return nil
}

// start starts the server of a slot, and sets the result that the waiting calls read.
func (p *Servers) start(key serverKey, slot *serverSlot, start *serverStart) {
	server, err := p.launch(key, slot)
	if err == nil {
		err = server.initialize(p.config.StartTimeout)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(start.done)
	slot.starting, start.err = nil, err
	if err != nil {
		return
	}
	start.server = server
	if !server.dead { // otherwise the first request of a call returns the fault
		slot.running = server
	}
	if server.uses = start.waiting; server.uses == 0 && !server.dead {
		p.setIdleLocked(server)
	}
}

// launch starts the process of a server and a goroutine of the pool that supervises it. A
// start that fails counts as a failure of the slot; a server that is not installed does
// not.
func (p *Servers) launch(key serverKey, slot *serverSlot) (*pooledServer, error) {
	program, path := key.language.installed(p.config.Environment)
	if path == "" {
		return nil, missingServer(key.language)
	}
	server, err := launchServer(p.config, path, program, key.language, key.folder)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.countFailureLocked(slot, err)
		return nil, err
	}
	pooled := &pooledServer{languageServer: server, key: key}
	p.goroutines.Go(func() {
		asked := server.supervise(p.closing)
		p.remove(slot, pooled, asked)
		close(server.ended)
	})
	return pooled, nil
}

// remove removes an ended server from its slot. It counts a failure of the slot unless the
// pool asked the server to end.
func (p *Servers) remove(slot *serverSlot, server *pooledServer, asked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	server.dead = true
	server.stopIdleTimer()
	if slot.running == server {
		slot.running = nil
	}
	if asked {
		return
	}
	if server.replied.Load() {
		slot.failures = 0
	}
	p.countFailureLocked(slot, server.fault)
}

// countFailureLocked counts a failure of a slot. From the failure number maxFailures in a
// row on, it sets the pause until the next start.
func (p *Servers) countFailureLocked(slot *serverSlot, fault error) {
	slot.failures++
	slot.fault = fault
	if over := slot.failures - maxFailures; over >= 0 {
		slot.retry = p.config.Now().Add(min(firstPause<<min(over, maxPauseShift), maxPause))
	}
}

// release removes the caller of acquire from the users of a server.
func (p *Servers) release(server *pooledServer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releaseLocked(server)
}

// releaseLocked removes a user of a server. When the last user is removed, the idle
// timeout begins.
func (p *Servers) releaseLocked(server *pooledServer) {
	if server.uses--; server.uses == 0 && !server.dead {
		p.setIdleLocked(server)
	}
}

// setIdleLocked starts the idle timeout, after which a server that has no new user is
// dismissed.
func (p *Servers) setIdleLocked(server *pooledServer) {
	server.lastUse = p.config.Now()
	if p.mu.closed {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(p.config.IdleTimeout, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if server.idle == timer { // otherwise it was used after the timer had fired
			p.dismissLocked(server)
		}
	})
	server.idle = timer
}

// stopIdleTimer stops the idle timeout of a server. The caller holds the mutex of Servers.
func (s *pooledServer) stopIdleTimer() {
	if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
}

// dismissLocked asks a server to end and takes it out of its slot, so that the next call
// starts another one.
func (p *Servers) dismissLocked(server *pooledServer) {
	server.stopIdleTimer()
	if slot := p.mu.slots[server.key]; slot != nil && slot.running == server {
		slot.running = nil
		close(server.leave)
	}
}

// An operation performs the requests of one call at a server. It runs on a goroutine of
// the pool and can outlive its cancelled call, so it must not use values that the call
// changes.
type operation func(context.Context, *languageServer) ([]rawResult, error)

// An operationEnd is the return of an operation.
type operationEnd struct {
	results []rawResult
	server  *languageServer
	err     error
}

// run performs an operation at the server of a key, and starts the server if necessary. If
// ctx ends, run returns the cause at once.
func (p *Servers) run(ctx context.Context, key serverKey, do operation) operationEnd {
	server, err := p.acquire(ctx, key)
	if err != nil {
		return operationEnd{err: err}
	}
	ended := make(chan operationEnd, 1)
	perform := func() {
		defer p.release(server)
		results, err := do(ctx, server.languageServer)
		ended <- operationEnd{results, server.languageServer, err}
	}
	p.mu.Lock()
	closed := p.mu.closed
	if !closed {
		p.goroutines.Go(perform)
	}
	p.mu.Unlock()
	if closed {
		p.release(server)
		return operationEnd{err: ErrServersClosed}
	}
	select {
	case end := <-ended:
		return end
	case <-ctx.Done():
		return operationEnd{err: context.Cause(ctx)}
	}
}

// missingServer returns the failure of a language whose servers are not installed.
func missingServer(l *language) error {
	return domain.Fail("No language server for %s is installed: install %s and put it into PATH", l.name, l.programNames())
}
