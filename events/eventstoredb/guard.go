package eventstoredb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/metadata"
)

// A guard lends clients to calls. At most one client is lent at a time; one
// whose connection broke is retired, and closed when the last call on it has
// ended. A client is lent only after its first discovery succeeded, which one
// goroutine waits for and all calls share.
type guard struct {
	config   esdb.Configuration
	log      *slog.Logger
	life     context.Context // ends when the store closes, with events.ErrClosed
	running  *sync.WaitGroup // what runs for the store
	patience time.Duration   // with a server that does not answer
	mu       struct {
		sync.Mutex
		client   *client
		opening  *opening
		finished bool               // the last client was retired, and there will be none
		version  esdb.ServerVersion // of the last client
	}
}

// An opening is a discovery under way.
type opening struct {
	done chan struct{} // closed when it has ended
	err  error         // why there is no client; set before done is closed
}

// client returns a client that a call may enter, and was entered. What waits
// for one waits until its context ends.
func (g *guard) client(ctx context.Context) (*client, error) {
	for {
		c, opening := g.lend()
		if c != nil {
			return c, nil
		}
		if opening == nil {
			return nil, context.Cause(g.life)
		}
		select {
		case <-opening.done:
			if opening.err != nil {
				return nil, opening.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// lend returns the client, entered, or else the discovery of one. It returns
// neither when the store is closed.
func (g *guard) lend() (*client, *opening) {
	g.mu.Lock()
	current := g.mu.client
	g.mu.Unlock()
	if current != nil && current.enter() {
		return current, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.client == current {
		g.mu.client = nil
	}
	switch {
	case g.mu.finished:
		return nil, nil
	case g.mu.client != nil: // found by another meanwhile
		return nil, &opening{done: closed}
	case g.mu.opening == nil:
		g.mu.opening = &opening{done: make(chan struct{})}
		g.running.Add(1)
		go g.open(g.mu.opening)
	}
	return nil, g.mu.opening
}

// closed is a channel that is closed.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// open discovers a node. The client ends by itself if it finds none, and
// nobody else waits for it then.
func (g *guard) open(o *opening) {
	defer g.running.Done()
	c, err := g.discover()
	g.mu.Lock()
	g.mu.opening, o.err = nil, err
	unwanted := err == nil && g.mu.finished
	if err == nil && !unwanted {
		g.mu.client, g.mu.version = c, c.version
	}
	g.mu.Unlock()
	if unwanted {
		c.retire()
	}
	close(o.done)
}

func (g *guard) discover() (*client, error) {
	c := &client{}
	config := g.config
	// One attempt, because a client that gives up for ever makes every other
	// call on it wait for ever: whoever needs a client asks for another.
	config.MaxDiscoverAttempts = 1
	config.Logger = func(level esdb.LogLevel, format string, args ...any) {
		g.tell(level, format, args)
		g.notice(c, format, args)
	}
	var version *esdb.ServerVersion
	err := protected(func() (err error) {
		if c.inner, err = esdb.NewClient(&config); err != nil {
			return err
		}
		version, err = c.inner.GetServerVersion()
		return err
	})
	if err != nil {
		if syntax, ok := errors.AsType[*strconv.NumError](err); ok {
			err = fmt.Errorf("%w: %w; the official client of its time can", ErrPreRelease, syntax)
		}
		return nil, err
	}
	if err := fitting(*version); err != nil {
		c.retire()
		return nil, err
	}
	c.version = *version
	return c, nil
}

// fitting returns an ErrTooOld for a version with a known fault that loses
// events or their places.
func fitting(v esdb.ServerVersion) error {
	line, patch := v.Major*100+v.Minor, v.Patch
	switch {
	case line > 2500, line == 2500 && patch >= 1, line == 2410 && patch >= 5, line == 2310 && patch >= 8:
		return nil
	case v == esdb.ServerVersion{}:
		return fmt.Errorf("%w: it does not tell its version; use 23.10.8, 24.10.5, 25.0.1 or one that follows these", ErrTooOld)
	}
	return fmt.Errorf("%w: it is %d.%d.%d; use 23.10.8, 24.10.5, 25.0.1 or one that follows these", ErrTooOld, v.Major, v.Minor, v.Patch)
}

// large reports whether the server is of a version that takes more at once
// than 1 MiB: one from 25.1 on.
func (g *guard) large() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.version.Major*100+g.mu.version.Minor > 2500
}

// finish retires the client, and lends no other.
func (g *guard) finish() {
	g.mu.Lock()
	c := g.mu.client
	g.mu.client, g.mu.finished = nil, true
	g.mu.Unlock()
	if c != nil {
		c.retire()
	}
}

// A line is the context of a call on the wire. It does not end with the
// context of the call at once, but when that has and the call is settled, or a
// moment after: the client reads, when a call that it opens or sends to breaks
// off, what its transport writes when a context ends.
type line struct {
	context.Context
	settle func() // says that the call is open, and only receives from now on
}

// moment is far longer than it takes to send what does not wait for the server.
const moment = 250 * time.Millisecond

// draw returns a line, and what frees it.
func draw(ctx context.Context) (line, func()) {
	wire, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	settled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(moment)
		defer timer.Stop()
		select {
		case <-settled:
		case <-timer.C:
		case <-wire.Done():
		}
		cancel(context.Cause(ctx))
	})
	return line{wire, sync.OnceFunc(func() { close(settled) })}, func() { stop(); cancel(nil) }
}

// errNoNode says that a call had no node to go to, and was not made.
var errNoNode = errors.New("no node was found")

// call lets do use a client that was entered, and has it leave when do has
// returned and what do opened was closed. The context ends the wait for a
// client at once, and do by its line.
func (g *guard) call(ctx context.Context, do func(line, *esdb.Client) error) error {
	c, err := g.client(ctx)
	if err != nil {
		return err
	}
	defer c.leave()
	turn := &turn{client: c}
	defer turn.end()
	l, free := draw(ctx)
	defer free()
	l.Context = entering{metadata.AppendToOutgoingContext(l.Context, "requires-leader", "true"), turn, free}
	err = protected(func() error {
		if err := c.fits(); err != nil {
			return err
		}
		return do(l, c.inner)
	})
	return c.judged(ctx, turn, err)
}
