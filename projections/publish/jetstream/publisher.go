package jetstream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// The errors of Open. Callers match them with errors.Is.
var (
	// ErrBadURL: the target is not a URL of the documented form.
	ErrBadURL = errors.New("URL of a NATS server is not valid")
	// ErrRefused: the server refuses the credentials or the kind of connection, or
	// answers with an error that has no sentinel of its own.
	ErrRefused = errors.New("server refuses the connection")
	// ErrNoJetStream: the server or the account runs without JetStream.
	ErrNoJetStream = errors.New("server has no JetStream")
	// ErrStream: the stream cannot be found or created, or does not store every
	// subject of the topic.
	ErrStream = errors.New("stream cannot be used")
)

// Workers is the recommended publish.Policy.Workers: each worker waits for the
// server, which waits for its disk.
const Workers = 16

// The limits of waiting. connectTimeout also bounds the search for the stream in
// Open.
const (
	connectTimeout = 5 * time.Second
	ackTimeout     = 5 * time.Second
	reconnectWait  = 250 * time.Millisecond
	// dedupWindow is the time for which the server recognizes a repeated message ID, in
	// a stream that this package creates.
	dedupWindow = 10 * time.Minute
)

// A Publisher is a message.Publisher to a JetStream stream. The NATS client
// reconnects by itself; the Publisher connects anew when the client has given up.
// Close ends its connection.
type Publisher struct {
	server serverURL
	// name is the name that the server shows for the connection.
	name string
	mu   struct {
		sync.Mutex
		// mu is held while a new connection replaces a closed one, and not during
		// Publish.
		conn *nats.Conn
		// publisher publishes over conn.
		publisher *wnats.Publisher
		closed    bool
	}
}

// Open connects to the server of target and finds the JetStream stream that
// stores the subjects of topic, or creates one on files. The server lists the
// connection under name. The caller closes the Publisher.
func Open(ctx context.Context, target string, topic publish.Topic, name string) (*Publisher, error) {
	a, err := parseURL(target)
	if err == nil {
		err = checkTopic(topic)
	}
	if err != nil {
		return nil, err
	}
	p := &Publisher{server: a, name: name}
	if err := p.connectLocked(); err != nil {
		return nil, err
	}
	if err := a.ensureStream(ctx, p.mu.conn, topic); err != nil {
		p.mu.conn.Close()
		return nil, err
	}
	return p, nil
}

// connectLocked connects to the server and replaces the connection of p. The caller
// holds mu, except for Open, which has the only reference.
func (p *Publisher) connectLocked() error {
	options := append(p.server.options(),
		nats.Name("ledger publish "+p.name), nats.Timeout(connectTimeout), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, reconnectWait), nats.ReconnectBufSize(-1),
		// At Open, refused credentials are an error of the caller. Later an operator
		// may correct them at the server, so the client keeps trying.
		nats.IgnoreAuthErrorAbort(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	)
	conn, err := nats.Connect(p.server.server, options...)
	if err != nil {
		return p.server.connectError(err)
	}
	to, err := wnats.NewPublisherWithNatsConn(conn, wnats.PublisherPublishConfig{
		Marshaler:         marshaler{},
		SubjectCalculator: wnats.DefaultSubjectCalculator,
		JetStream:         wnats.JetStreamConfig{TrackMsgId: true, ConnectOptions: []nats.JSOpt{nats.MaxWait(ackTimeout)}},
	}, watermill.NopLogger{})
	if err != nil {
		conn.Close()
		return fmt.Errorf("publish to %s: %w", p.server.redacted, err)
	}
	p.mu.conn, p.mu.publisher = conn, to
	return nil
}

// connection returns a connection that is open or reconnecting, and its publisher. It
// connects anew if the client closed its connection, as after a protocol error. A
// failure to connect is a publish.ErrUnavailable. After Close it returns the closed
// connection.
func (p *Publisher) connection() (*nats.Conn, *wnats.Publisher, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.conn.IsClosed() && !p.mu.closed {
		if err := p.connectLocked(); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", publish.ErrUnavailable, err)
		}
	}
	return p.mu.conn, p.mu.publisher, nil
}

// Close ends the connection and its goroutines. It may be called again.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return nil
	}
	p.mu.closed = true
	return p.mu.publisher.Close()
}

// maxSubject bounds the bytes of a subject. A server closes the connection of
// a client whose subject does not fit into the control line of 4,096 bytes.
const maxSubject = 2048

// Publish sends messages to the stream, one after the other, and returns when the
// stream has acknowledged all. After an error, the messages before the failed one are
// stored. Errors are a publish.ErrUnacceptable, a publish.ErrUnavailable or another
// error of the server, as the package documents.
func (p *Publisher) Publish(subject string, messages ...*message.Message) error {
	if len(subject) > maxSubject {
		return fmt.Errorf("publish %.40s… to %s: %w: a subject is at most %d bytes, not %d", subject, p.server.redacted, publish.ErrUnacceptable, maxSubject, len(subject))
	}
	conn, to, err := p.connection()
	if err != nil {
		return fmt.Errorf("publish %s: %w", subject, err)
	}
	if err := to.Publish(subject, messages...); err != nil {
		return fmt.Errorf("publish %s to %s: %w", subject, p.server.redacted, classify(withServerError(conn, err)))
	}
	return nil
}

// withServerError adds the last permission error of the server to a timeout. A server
// that forbids a subject does not answer the request, and reports the reason
// separately.
func withServerError(conn *nats.Conn, err error) error {
	if last := conn.LastError(); errors.Is(last, nats.ErrPermissionViolation) && (errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)) {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}

// The JetStream error codes for a message that the stream will never accept, because
// the message or its headers are too large.
const (
	codeTooLarge       = 10054
	codeHeaderTooLarge = 10097
)

// classify wraps an error as publish.ErrUnacceptable if the message is at fault, or
// as publish.ErrUnavailable if the connection or the server is. It returns any other
// error unchanged.
func classify(err error) error {
	api, isAPI := errors.AsType[*nats.APIError](err)
	switch {
	case isAPI && (api.ErrorCode == codeTooLarge || api.ErrorCode == codeHeaderTooLarge),
		errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg):
		return fmt.Errorf("%w: %w", publish.ErrUnacceptable, err)
	case isAPI && api.Code >= 500,
		errors.Is(err, nats.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrTimeout),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrReconnectBufExceeded),
		errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrStaleConnection), errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%w: %w", publish.ErrUnavailable, err)
	}
	return err
}

// A marshaler is watermill's marshaler with one addition: it encodes each value that
// a header cannot carry, in the form that the package documents.
type marshaler struct{ wnats.NATSMarshaler }

// Marshal encodes a message for a subject.
func (m marshaler) Marshal(topic string, from *message.Message) (*nats.Msg, error) {
	to, err := m.NATSMarshaler.Marshal(topic, from)
	if err != nil {
		return nil, err
	}
	for key, values := range to.Header {
		if value := values[0]; !isHeaderSafe(value) {
			to.Header.Del(key)
			to.Header.Set(key+"*", "UTF-8''"+url.PathEscape(value))
		}
	}
	return to, nil
}

// isHeaderSafe reports whether a header transmits a value unchanged: NATS trims white
// space, and a line end would end the header.
func isHeaderSafe(value string) bool {
	return value == strings.TrimSpace(value) && !strings.ContainsAny(value, "\r\n\x00")
}
