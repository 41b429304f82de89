package jetstream_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	wnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/projections/publish/jetstream"
)

// serve starts a server on loopback with JetStream in a temporary folder, which syncs
// each message. change may alter its options.
func serve(t *testing.T, change ...func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, NoLog: true, NoSigs: true,
	}
	for _, c := range change {
		c(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	t.Cleanup(func() { stop(s) })
	return s
}

// stop shuts a server down and waits until it has ended.
func stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// topic parses a topic.
func topic(t *testing.T, text string) publish.Topic {
	t.Helper()
	parsed, err := publish.ParseTopic(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// open opens a publisher, which the end of the test closes.
func open(t *testing.T, url, text string) *jetstream.Publisher {
	t.Helper()
	p, err := jetstream.Open(t.Context(), url, topic(t, text), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// stored returns the messages in the stream of a subject, in order.
func stored(t *testing.T, s *server.Server, subject string) (all []*nats.Msg) {
	t.Helper()
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	name, err := js.StreamNameBySubject(subject)
	if err != nil {
		t.Fatal(err)
	}
	about, err := js.StreamInfo(name)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := js.SubscribeSync(subject, nats.OrderedConsumer())
	if err != nil {
		t.Fatal(err)
	}
	for range about.State.Msgs {
		m, err := sub.NextMsg(30 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// A message arrives with its UUID, payload and metadata, also values that a header
// cannot carry, and a repeated UUID is dropped.
func TestAMessageArrivesWithEveryValue(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := open(t, s.ClientURL(), "ledger.{category}.{kind}")
	m := message.NewMessage("evt_1", []byte("\x00 as it is \xff"))
	m.Metadata = message.Metadata{"tool": "a\nb% ", "kind": "Käse", "metadata": "{\n \"a\": 1}", "stream": "thing-1"}
	if err := p.Publish("ledger.thing.K_se", m, m.Copy()); err != nil {
		t.Fatal(err)
	}
	all := stored(t, s, "ledger.*.*")
	if len(all) != 1 {
		t.Fatalf("the stream has %d messages, want 1: the second has the same ID", len(all))
	}
	got, err := (&wnats.NATSMarshaler{}).Unmarshal(all[0])
	if err != nil {
		t.Fatal(err)
	}
	if got.UUID != m.UUID || string(got.Payload) != string(m.Payload) || all[0].Subject != "ledger.thing.K_se" {
		t.Errorf("arrived as %s %q on %s", got.UUID, got.Payload, all[0].Subject)
	}
	for key, want := range m.Metadata {
		value := got.Metadata.Get(key)
		if escaped, ok := strings.CutPrefix(got.Metadata.Get(key+"*"), "UTF-8''"); ok {
			if value, err = url.PathUnescape(escaped); err != nil {
				t.Fatal(err)
			}
		}
		if value != want {
			t.Errorf("%s arrived as %q, want %q", key, value, want)
		}
	}
}

// Open returns the sentinel and the advice for each invalid URL or unusable server,
// and no error contains the password.
func TestAWrongURLIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, func(o *server.Options) { o.Username, o.Password = "ada", "s3cret" })
	none := serve(t, func(o *server.Options) { o.JetStream = false })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	address := s.Addr().String()
	for target, want := range map[string]struct {
		is   error
		says string
	}{
		"":                                    {jetstream.ErrBadURL, "scheme"},
		"http://" + address:                   {jetstream.ErrBadURL, "not nats or tls"},
		"nats://":                             {jetstream.ErrBadURL, "no host"},
		"nats://ada:s3cret@" + address + "/a": {jetstream.ErrBadURL, "path"},
		"nats://ada:s3cret%zz@" + address:     {jetstream.ErrBadURL, "no URL"},
		"nats://ada:s3cret@" + address + "?streem=s3cret": {jetstream.ErrBadURL, "streem"},
		"nats://ada:s3cret-wrong@" + address:              {jetstream.ErrRefused, "password"},
		"nats://" + address:                               {jetstream.ErrRefused, "password"},
		"tls://ada:s3cret@" + address:                     {jetstream.ErrRefused, "nats://"},
		"nats://ada:s3cret@" + closed.Addr().String():     {publish.ErrUnavailable, "no server answers"},
		none.ClientURL():                                  {jetstream.ErrNoJetStream, "-js"},
	} {
		_, err := jetstream.Open(t.Context(), target, topic(t, "t"), "test")
		if !errors.Is(err, want.is) || !strings.Contains(err.Error(), want.says) {
			t.Errorf("Open(%q) = %v, want %v that says %q", target, err, want.is, want.says)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("Open(%q) tells the password: %v", target, err)
		}
	}
	p := open(t, "nats://ada:s3cret@"+address, "t")
	if err := p.Publish("t", message.NewMessage("evt_1", nil)); err != nil {
		t.Error(err)
	}
}

// Open uses the stream that stores every subject of the topic. It returns an
// ErrStream if another stream than the named one does, or if a stream stores some of
// the subjects.
func TestAnExistingStreamIsUsed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "MINE", Subjects: []string{"mine.>"}}); err != nil {
		t.Fatal(err)
	}
	if err := open(t, s.ClientURL(), "mine.{kind}").Publish("mine.X", message.NewMessage("evt_1", nil)); err != nil {
		t.Fatal(err)
	}
	if about, err := js.StreamInfo("MINE"); err != nil || about.State.Msgs != 1 {
		t.Errorf("MINE has %+v (%v), want the message", about, err)
	}
	for target, text := range map[string]string{
		s.ClientURL() + "?stream=OTHER": "mine.{kind}",         // MINE stores these subjects
		s.ClientURL():                   "{category}.x-{kind}", // MINE stores some of these subjects
	} {
		if _, err := jetstream.Open(t.Context(), target, topic(t, text), "test"); !errors.Is(err, jetstream.ErrStream) {
			t.Errorf("Open(%q) for %s = %v, want ErrStream", target, text, err)
		}
	}
}

// Publish returns an ErrUnavailable while the server is down, and succeeds after its
// restart.
func TestAServerThatIsAwayIsUnavailableUntilItIsBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, func(o *server.Options) { o.StoreDir = dir })
	port := s.Addr().(*net.TCPAddr).Port
	p := open(t, s.ClientURL(), "t")
	stop(s)
	if err := p.Publish("t", message.NewMessage("evt_1", nil)); !errors.Is(err, publish.ErrUnavailable) {
		t.Errorf("Publish = %v, want ErrUnavailable", err)
	}
	serve(t, func(o *server.Options) { o.StoreDir, o.Port = dir, port })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		err := p.Publish("t", message.NewMessage("evt_1", nil))
		if err == nil {
			break
		}
		if !errors.Is(err, publish.ErrUnavailable) || ctx.Err() != nil {
			t.Fatalf("Publish = %v, want ErrUnavailable until it is taken", err)
		}
	}
}
