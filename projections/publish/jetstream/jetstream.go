package jetstream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// The errors of Open. Callers match them with errors.Is.
var (
	ErrBadURL      = errors.New("URL of a NATS server is not valid")
	ErrRefused     = errors.New("server refuses the connection")
	ErrNoJetStream = errors.New("server has no JetStream")
	ErrStream      = errors.New("stream cannot be used")
)

// Lanes is how many streams may well be handed over side by side: each waits
// for the server, and the server for its disk.
const Lanes = 16

const (
	connectTimeout = 5 * time.Second
	ackTimeout     = 5 * time.Second
	reconnectWait  = 250 * time.Millisecond
	// window is how long the server remembers the ID of a message, in a stream
	// that is made here.
	window = 10 * time.Minute
)

// A Publisher is a message.Publisher to a JetStream. Close ends its connection.
type Publisher struct {
	*wnats.Publisher
	shown string
}

// Open connects to the server of a URL, the target, and finds the stream that keeps the
// subjects of a topic. Where there is none it makes one, kept in files. The
// name is told to the server. The caller closes the Publisher.
func Open(ctx context.Context, target string, topic publish.Topic, name string) (*Publisher, error) {
	a, err := parse(target)
	if err != nil {
		return nil, err
	}
	options := append(a.options(),
		nats.Name("ledger publish "+name), nats.Timeout(connectTimeout), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, reconnectWait), nats.ReconnectBufSize(-1),
		// Wrong credentials now are wrong credentials at Open; later they may be
		// put right at the server.
		nats.IgnoreAuthErrorAbort(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	)
	conn, err := nats.Connect(a.server, options...)
	if err != nil {
		return nil, a.refused(err)
	}
	if err := a.provide(ctx, conn, topic); err != nil {
		conn.Close()
		return nil, err
	}
	p, err := wnats.NewPublisherWithNatsConn(conn, wnats.PublisherPublishConfig{
		Marshaler:         marshaler{},
		SubjectCalculator: wnats.DefaultSubjectCalculator,
		JetStream:         wnats.JetStreamConfig{TrackMsgId: true, ConnectOptions: []nats.JSOpt{nats.MaxWait(ackTimeout)}},
	}, watermill.NopLogger{})
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("publish to %s: %w", a.shown, err)
	}
	return &Publisher{p, a.shown}, nil
}

// provide finds or makes the stream that keeps the subjects of a topic.
func (a address) provide(ctx context.Context, conn *nats.Conn, topic publish.Topic) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	js, err := conn.JetStream()
	if err != nil {
		return fmt.Errorf("connect to %s: %w: %w", a.shown, ErrNoJetStream, err)
	}
	subject := subjects(topic)
	found, err := js.StreamNameBySubject(subject, nats.Context(ctx))
	switch {
	case err == nil && a.stream != "" && found != a.stream:
		return fmt.Errorf("publish to %s: %w: the subjects %s are kept by the stream %s, not by %s", a.shown, ErrStream, subject, found, a.stream)
	case err == nil:
		return a.keeps(ctx, js, found, subject)
	case errors.Is(err, nats.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("publish to %s: %w: start it with -js", a.shown, ErrNoJetStream)
	case !errors.Is(err, nats.ErrNoMatchingStream):
		return fmt.Errorf("publish to %s: %w: ask which keeps %s: %w", a.shown, ErrStream, subject, err)
	}
	name := a.stream
	if name == "" {
		name = streamName(subject)
	}
	_, err = js.AddStream(&nats.StreamConfig{
		Name: name, Description: "Records of a ledger", Subjects: []string{subject}, Storage: nats.FileStorage, Duplicates: window,
	}, nats.Context(ctx))
	if err != nil {
		return fmt.Errorf("publish to %s: %w: make the stream %s for %s: %w", a.shown, ErrStream, name, subject, err)
	}
	return nil
}

// subjects returns what matches all subjects of a topic, as NATS writes it.
func subjects(topic publish.Topic) string {
	tokens := strings.Split(topic.Pattern("*"), ".")
	for i, token := range tokens {
		if strings.Contains(token, "*") {
			tokens[i] = "*" // an asterisk beside other text would stand for itself
		}
	}
	return strings.Join(tokens, ".")
}

// keeps returns an ErrStream unless one of the subjects of a stream covers all
// subjects of a topic.
func (a address) keeps(ctx context.Context, js nats.JetStreamContext, stream, subject string) error {
	about, err := js.StreamInfo(stream, nats.Context(ctx))
	if err != nil {
		return fmt.Errorf("publish to %s: %w: ask what %s keeps: %w", a.shown, ErrStream, stream, err)
	}
	for _, kept := range about.Config.Subjects {
		if covers(strings.Split(kept, "."), strings.Split(subject, ".")) {
			return nil
		}
	}
	return fmt.Errorf("publish to %s: %w: %s keeps %s, which are not all of %s", a.shown, ErrStream, stream, strings.Join(about.Config.Subjects, ", "), subject)
}

// covers reports whether every subject that matches some tokens matches kept.
func covers(kept, tokens []string) bool {
	switch {
	case len(kept) == 0 || len(tokens) == 0:
		return len(kept) == len(tokens)
	case kept[0] == ">":
		return true
	}
	return (kept[0] == "*" || kept[0] == tokens[0]) && covers(kept[1:], tokens[1:])
}

// streamName returns what a stream for subjects is called: the tokens that they
// have in common.
func streamName(subject string) string {
	var tokens []string
	for token := range strings.SplitSeq(subject, ".") {
		if token != "" && !strings.Contains(token, "*") {
			tokens = append(tokens, token)
		}
	}
	if len(tokens) == 0 {
		return "ledger"
	}
	return strings.Join(tokens, "_")
}

// Publish hands messages to the stream, one after the other, and returns when
// it has them all.
func (p *Publisher) Publish(subject string, messages ...*message.Message) error {
	if err := p.Publisher.Publish(subject, messages...); err != nil {
		return fmt.Errorf("publish %s to %s: %w", subject, p.shown, judged(err))
	}
	return nil
}

// The server's codes for a message that it will never take.
const (
	codeTooLarge       = 10054
	codeHeaderTooLarge = 10097
)

// judged says what an error says of the message.
func judged(err error) error {
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

// A marshaler is watermill's, for headers that carry every value.
type marshaler struct{ wnats.NATSMarshaler }

// Marshal returns a message as it is sent.
func (m marshaler) Marshal(topic string, from *message.Message) (*nats.Msg, error) {
	to, err := m.NATSMarshaler.Marshal(topic, from)
	if err != nil {
		return nil, err
	}
	for key, values := range to.Header {
		if value := values[0]; !carried(value) {
			to.Header.Del(key)
			to.Header.Set(key+"*", "UTF-8''"+url.PathEscape(value))
		}
	}
	return to, nil
}

// carried reports whether a header gives a value back as it is.
func carried(value string) bool {
	return value == strings.TrimSpace(value) && !strings.ContainsAny(value, "\r\n\x00")
}
