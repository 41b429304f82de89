package eventstoredb

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// The defaults of a Config.
const (
	DefaultMaxAppend    = 1 << 20 // what every server takes
	DefaultRetryTimeout = 10 * time.Second
)

// largeMaxAppend is what a server from 25.1 on takes, of one event as of many.
const largeMaxAppend = 16<<20 - 64<<10

// A Config says how to open a store. The zero Config is right for a database
// that holds one ledger.
type Config struct {
	// Namespace keeps ledgers in one database apart: it stands before the
	// name of each stream. It is letters, digits and underscores, and ends
	// with a full stop, which it has nowhere else. Empty: the ledger is all of
	// the database but the server's own streams.
	Namespace string
	// MaxAppend is how many bytes an append may have, as the server counts
	// them: data, metadata and two for each UTF-16 unit of a kind. 0: what the
	// version of the server takes where nobody changed that, 64 KiB less than
	// 16 MiB from 25.1 on and DefaultMaxAppend before.
	MaxAppend int
	// Patience is how long a call is tried again while no server answers it.
	// 0: DefaultPatience. A search for a node that is under way is waited for
	// beyond it: each node may take twice gossipTimeout. An append that may
	// have been made, and a follower, are tried until their context ends.
	RetryTimeout time.Duration
	// RootCAs are the certificates that are trusted in place of the system's and the
	// connection string's. Nil: the connection string's, or else the system's.
	RootCAs *x509.CertPool
	// Whole has Open return ErrForbidden for a user who may not read all streams of
	// the database and those of the ledger, before anything can be written. Without
	// it such a user can read and write what else the server lets them.
	RequireReadAll bool
	// Logger is told what the client of EventStoreDB complains about. Nil:
	// nothing is.
	Logger *slog.Logger
}

// A Store is an events.Store and an events.Scanner in an EventStoreDB
// database. It is safe for concurrent use.
type Store struct {
	namespace            string
	maxAppend            int // 0: by the version of the server
	retryTimeout         time.Duration
	subscriptionLifetime time.Duration // of one subscription
	recheckInterval      time.Duration // of the end, for a follower that waits behind a filter
	connector            *connector
	workers              *workerPool    // sends appends
	tasks                sync.WaitGroup // what runs for calls; added to under mu
	closed               context.Context
	cancel               context.CancelCauseFunc
	inFlight             inFlightAppends
	mu                   struct {
		sync.Mutex
		closed     bool
		end        events.Position // no record that was there before Open, or seen since, stands behind it
		endUnknown bool            // high is not known
	}
}

// The subscriptionLifetime of a subscription is bounded, because something between here
// and the server can keep one that is dead looking alive.
const (
	subscriptionLifetime = 10 * time.Minute
	recheckInterval      = time.Second
)

var namespaceGrammar = regexp.MustCompile(`^[A-Za-z0-9_]+\.$`)

// ErrBadNamespace says that a namespace would not keep ledgers apart.
var ErrBadNamespace = errors.New("namespace is not letters, digits and underscores with a full stop behind")

// Open opens the ledger in the database that a connection string names:
// esdb:// or kurrentdb://, with or without +discover, one node or several, and
// the settings of the official client. The caller closes it. It returns when
// the server has answered. One that does not within Patience is
// ErrUnreachable, one that does not accept the credentials is
// ErrUnauthenticated, one that cannot keep the promises of a store is
// ErrTooOld.
func Open(ctx context.Context, connectionString string, cfg Config) (*Store, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if cfg.Namespace != "" && !namespaceGrammar.MatchString(cfg.Namespace) {
		return nil, fmt.Errorf("open EventStoreDB: %w: it is %q", ErrBadNamespace, cfg.Namespace)
	}
	config, err := parseConnectionString(connectionString, log)
	if err != nil {
		return nil, fmt.Errorf("open EventStoreDB: %w", err)
	}
	if cfg.RootCAs != nil {
		config.RootCAs = cfg.RootCAs
	}
	s := &Store{
		namespace:            cfg.Namespace,
		maxAppend:            cfg.MaxAppend,
		retryTimeout:         cmp.Or(cfg.RetryTimeout, DefaultRetryTimeout),
		subscriptionLifetime: subscriptionLifetime,
		recheckInterval:      recheckInterval,
	}
	s.closed, s.cancel = context.WithCancelCause(context.Background())
	s.workers = newWorkerPool(s.closed, &s.tasks)
	s.connector = &connector{config: *config, log: log, closed: s.closed, tasks: &s.tasks, retryTimeout: s.retryTimeout}
	err = s.loadEnd(ctx, cfg.RequireReadAll)
	if err == nil && cfg.RequireReadAll {
		err = forbiddenError("read the ledger's streams", s.mayRead(ctx))
	}
	if err != nil {
		_ = s.Close() // what failed is told
		return nil, fmt.Errorf("open EventStoreDB at %s: %w", describeNodes(config), err)
	}
	return s, nil
}

// describeNodes tells where a configuration leads, without credentials.
func describeNodes(c *esdb.Configuration) string {
	address, security := c.Address, "with TLS"
	if len(c.GossipSeeds) > 0 {
		address = fmt.Sprint(c.GossipSeeds)
	}
	if c.DisableTLS {
		security = "without TLS"
	}
	return address + " " + security
}

// loadEnd finds the end of the log. A user who may not read all streams can
// still read and write single ones, unless the whole log is wanted.
func (s *Store) loadEnd(ctx context.Context, requireReadAll bool) error {
	end, err := s.lastPosition(ctx)
	if requireReadAll {
		err = forbiddenError("read $all", err)
	} else if errors.Is(err, ErrRefused) {
		s.mu.endUnknown, err = true, nil
	}
	s.advanceEnd(end)
	return err
}

// maxAppendBytes returns how many bytes an append may have.
func (s *Store) maxAppendBytes() int {
	switch {
	case s.maxAppend > 0:
		return s.maxAppend
	case s.connector.acceptsLargeAppends():
		return largeMaxAppend
	}
	return DefaultMaxAppend
}

// advanceEnd raises what is known of the end of the log.
func (s *Store) advanceEnd(p events.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Compare(s.mu.end) > 0 {
		s.mu.end = p
	}
}

// knownEnd returns what is known of the end of the log, and whether something is.
func (s *Store) knownEnd() (events.Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.end, !s.mu.endUnknown
}

// startTask counts something in that runs for a call, unless the store is closed.
func (s *Store) startTask() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.tasks.Add(1)
	return true
}

// withStoreLifetime returns a context that also ends when the store closes, with
// events.ErrClosed, and what frees it.
func (s *Store) withStoreLifetime(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.closed, func() { cancel(context.Cause(s.closed)) })
	return ctx, func() { stop(); cancel(nil) }
}

// closeTimeout is how long Close waits for what runs. Only the client's wait for a
// server that is silent can take longer; it ends with its own timeout.
const closeTimeout = time.Second

// Close ends every append, loop and follower with events.ErrClosed. An append
// that was under way is open: it may have been made. Closing again is
// events.ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	again := s.mu.closed
	s.mu.closed = true
	s.mu.Unlock()
	if again {
		return events.ErrClosed
	}
	s.cancel(events.ErrClosed)
	s.connector.close()
	done := make(chan struct{})
	go func() { s.tasks.Wait(); close(done) }()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	return nil
}
