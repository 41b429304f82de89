package lsp

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/workspace"
)

// The errors of this package. Callers match them with errors.Is.
var (
	ErrIncomplete    = errors.New("incomplete configuration of the language servers")
	ErrServersClosed = errors.New("the language servers are closed")
)

// A Config configures the language servers. Workspace, Permission and Environment are
// required.
type Config struct {
	Workspace  *workspace.Root
	Permission permission.Evaluator
	// Environment is the environment of the servers, as KEY=VALUE. Its PATH is searched
	// for them. The caller leaves out credentials.
	Environment []string
	// StartTimeout is how long a server may take to reply to initialize. Zero: 30
	// seconds.
	StartTimeout time.Duration
	// RequestTimeout is how long a server may take to reply to one request, including
	// the time to load the project. Zero: 1 minute.
	RequestTimeout time.Duration
	// IdleTimeout is how long a server runs without a call. Zero: 10 minutes.
	IdleTimeout time.Duration
	// Now is the clock by which servers that fail are restarted. Nil: time.Now.
	Now func() time.Time
}

// withDefaults returns the Config with zero fields replaced by their defaults, or an
// ErrIncomplete that names the invalid field.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Workspace == nil:
		return c, fmt.Errorf("%w: Workspace is not set", ErrIncomplete)
	case c.Permission == nil:
		return c, fmt.Errorf("%w: Permission is not set", ErrIncomplete)
	case c.Environment == nil:
		return c, fmt.Errorf("%w: Environment is not set", ErrIncomplete)
	case c.StartTimeout < 0 || c.RequestTimeout < 0 || c.IdleTimeout < 0:
		return c, fmt.Errorf("%w: a timeout is negative: %v, %v, %v", ErrIncomplete, c.StartTimeout, c.RequestTimeout, c.IdleTimeout)
	}
	for _, d := range []struct {
		timeout *time.Duration
		value   time.Duration
	}{{&c.StartTimeout, 30 * time.Second}, {&c.RequestTimeout, time.Minute}, {&c.IdleTimeout, 10 * time.Minute}} {
		if *d.timeout == 0 {
			*d.timeout = d.value
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c, nil
}

// Servers is the pool of language servers of one workspace. It runs at most one server
// for each folder and language, and starts it at the first call that needs it. It is safe
// for concurrent use. The caller closes it.
type Servers struct {
	config  Config
	closing chan struct{} // closed by Close
	// goroutines are the supervisors, the starts and the operations of calls.
	goroutines sync.WaitGroup
	mu         struct {
		sync.Mutex
		closed bool
		slots  map[serverKey]*serverSlot
	}
}

// A serverKey identifies a server of the pool.
type serverKey struct {
	folder   string
	language *language
}

// A serverSlot is the state of one server of the pool. The mutex of Servers guards it.
type serverSlot struct {
	running  *pooledServer // nil: it does not run
	starting *serverStart  // nil: it is not being started
	// failures counts the failed starts and the ends that the pool did not ask for, in a
	// row. A server that has replied to a request ends the row. fault is the last failure.
	// No server is started before retry.
	failures int
	fault    error
	retry    time.Time
}

// A pooledServer is a running server and its users. The mutex of Servers guards the fields
// below key.
type pooledServer struct {
	*languageServer
	key     serverKey
	uses    int // calls that use the server
	lastUse time.Time
	idle    *time.Timer // dismisses the server; nil while it is in use
	dead    bool        // the server has ended
}

// A serverStart is one start of a server. Each call that waits for the start becomes a
// user of the server. server and err are set before done is closed.
type serverStart struct {
	done    chan struct{}
	server  *pooledServer // nil if err is set
	err     error
	waiting int // calls that wait; the mutex of Servers guards it
}

// New returns the pool without starting a server. It returns an ErrIncomplete that names the
// invalid field.
func New(c Config) (*Servers, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("make language servers: %w", err)
	}
	p := &Servers{config: c, closing: make(chan struct{})}
	p.mu.slots = map[serverKey]*serverSlot{}
	return p, nil
}

// Close ends every server with all its processes and returns when they have ended and no
// goroutine of the pool is left. Calls in progress fail. A second Close waits for the same
// and returns nil.
func (p *Servers) Close() error {
	p.mu.Lock()
	if !p.mu.closed {
		p.mu.closed = true
		close(p.closing)
		for _, slot := range p.mu.slots {
			if slot.running != nil {
				slot.running.stopIdleTimer()
			}
		}
	}
	p.mu.Unlock()
	p.goroutines.Wait()
	return nil
}
