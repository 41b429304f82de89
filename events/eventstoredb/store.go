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
	// DefaultMaxAppend is the limit of an append in bytes that every server accepts.
	DefaultMaxAppend = 1 << 20
	// DefaultRetryTimeout is the retry timeout where Config.RetryTimeout is 0.
	DefaultRetryTimeout = 10 * time.Second
)

// largeMaxAppend is the limit of an append, in bytes, from server version 25.1.
const largeMaxAppend = 16<<20 - 64<<10

// A Config configures Open. The zero Config is right for a database that holds one
// ledger.
type Config struct {
	// Namespace is the prefix of the stream names of the ledger and keeps ledgers of
	// one database apart. It consists of letters, digits and underscores and one full
	// stop at the end. Empty: the ledger owns every stream except the server's own.
	Namespace string
	// MaxAppend is the limit of an append in bytes, as the server counts them: data,
	// metadata and two for each UTF-16 unit of a kind. 0: the default limit of the
	// server version, which is 64 KiB less than 16 MiB from 25.1 and DefaultMaxAppend
	// before.
	MaxAppend int
	// RetryTimeout limits the retries of a call while no server answers. 0:
	// DefaultRetryTimeout. If a search for a node is in progress, a call waits until
	// the search ends, which takes up to twice gossipTimeout for each node. Followers,
	// and appends that may have been stored, retry until their context ends.
	RetryTimeout time.Duration
	// RootCAs replace the certificates of the connection string. Nil: the
	// certificates of the connection string, or the system's certificates.
	RootCAs *x509.CertPool
	// RequireReadAll makes Open return ErrForbidden for a user who may not read all
	// streams and the streams of the ledger. Without it, such a user can still read
	// and append to single streams.
	RequireReadAll bool
	// Logger receives the warnings of Open and the messages of the client. Nil: they
	// are discarded.
	Logger *slog.Logger
}

// A Store is an events.Store and events.Scanner in an EventStoreDB database. It is
// safe for concurrent use. Open returns it, and the caller closes it.
type Store struct {
	namespace string
	// maxAppend is Config.MaxAppend in bytes. 0: the limit depends on the version of
	// the server.
	maxAppend    int
	retryTimeout time.Duration
	// subscriptionLifetime is the time after which a follower subscribes again.
	subscriptionLifetime time.Duration
	// recheckInterval is the time after which a filtered follower reads the end of
	// the log.
	recheckInterval time.Duration
	connector       *connector
	// workers run the requests of appends.
	workers *workerPool
	// tasks counts the goroutines of the store. Goroutines are added while mu is held,
	// so that Close does not miss one.
	tasks sync.WaitGroup
	// closed ends with events.ErrClosed, by cancel, when the store closes.
	closed   context.Context
	cancel   context.CancelCauseFunc
	inFlight inFlightAppends
	mu       struct {
		sync.Mutex
		closed bool
		// end is the end of the log at Open, or of the records seen since. It never
		// decreases.
		end events.Position
		// endUnknown is set if end is not valid, because the user may not read all
		// streams.
		endUnknown bool
	}
}

const (
	// subscriptionLifetime is the age at which a follower renews its subscription: a
	// proxy can keep a dead one open.
	subscriptionLifetime = 10 * time.Minute
	// recheckInterval bounds the time after which a filtered follower reports
	// excluded records as seen.
	recheckInterval = time.Second
)

// namespaceGrammar is the grammar of Config.Namespace.
var namespaceGrammar = regexp.MustCompile(`^[A-Za-z0-9_]+\.$`)

// ErrBadNamespace is the error of Open for a Namespace that does not follow its
// grammar.
var ErrBadNamespace = errors.New("namespace is not letters, digits and underscores followed by a full stop")

// Open opens the ledger in the database that a connection string names: esdb:// or
// kurrentdb://, with or without +discover, one node or several, with the settings of
// the official client. It returns when the server has responded. The caller closes the
// Store. The errors of Open are:
//
//   - ErrBadAddress and ErrBadNamespace for invalid arguments
//   - ErrUnreachable after RetryTimeout
//   - ErrUnauthenticated if the server rejects the credentials
//   - ErrTooOld and ErrPreRelease for a version that the store cannot use
//   - ErrForbidden for a missing right that the Config requires
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
		_ = s.Close() // Open returns the first error
		return nil, fmt.Errorf("open EventStoreDB at %s: %w", describeNodes(config), err)
	}
	return s, nil
}

// describeNodes returns the addresses of a configuration for error texts, without
// credentials, and whether it uses TLS.
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

// loadEnd reads the end of the log. If the user may not read all streams, loadEnd
// returns ErrForbidden when requireReadAll is set; otherwise it leaves the end unknown
// and returns nil. Only Open calls it.
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

// maxAppendBytes returns the limit of an append in bytes: Config.MaxAppend, or the
// default of the server's version.
func (s *Store) maxAppendBytes() int {
	switch {
	case s.maxAppend > 0:
		return s.maxAppend
	case s.connector.acceptsLargeAppends():
		return largeMaxAppend
	}
	return DefaultMaxAppend
}

// advanceEnd raises the known end of the log to p. A smaller p has no effect.
func (s *Store) advanceEnd(p events.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Compare(s.mu.end) > 0 {
		s.mu.end = p
	}
}

// knownEnd returns the known end of the log. It returns false if the end is unknown
// because the user may not read all streams. Every append then reads its stream back.
func (s *Store) knownEnd() (events.Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.end, !s.mu.endUnknown
}

// startTask counts a goroutine of the store in tasks and returns true; the goroutine
// calls tasks.Done. It returns false if the store is closed.
func (s *Store) startTask() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.tasks.Add(1)
	return true
}

// withStoreLifetime returns a context and a function that releases it. The context ends
// with ctx. It also ends, with the cause events.ErrClosed, when the store closes.
func (s *Store) withStoreLifetime(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.closed, func() { cancel(context.Cause(s.closed)) })
	return ctx, func() { stop(); cancel(nil) }
}

// closeTimeout limits how long Close waits for the goroutines of the store. Only a
// client that waits for a server runs longer, up to the setting gossipTimeout of the
// connection string.
const closeTimeout = time.Second

// Close ends every append, loop and follower with events.ErrClosed, and closes the
// connection. Whether the server stored an append in progress is unknown. Close
// returns nil, and events.ErrClosed if it was called before.
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
