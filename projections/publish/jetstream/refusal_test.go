package jetstream_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/projections/publish/jetstream"
)

// serial returns a message with the ID of a number, so that the server drops no
// message as a repeat.
func serial(n int, data []byte) *message.Message {
	return message.NewMessage(fmt.Sprintf("evt_%d", n), data)
}

// administered returns a JetStream client with every right on a server.
func administered(t *testing.T, s *server.Server) nats.JetStreamContext {
	t.Helper()
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// keep creates a stream.
func keep(t *testing.T, js nats.JetStreamContext, cfg nats.StreamConfig) {
	t.Helper()
	if _, err := js.AddStream(&cfg); err != nil {
		t.Fatal(err)
	}
}

// Open returns an ErrBadTopic for a topic that is no subject, or a pattern, and
// creates no stream. Any other text can be published to.
func TestATopicThatIsNoSubjectIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, text := range []string{
		"a b", "a\tb", "a\nb", "a\x00b", " ", "a..b", ".a", "a.", "a.>", "a.*", "a.{kind}*", "{kind}>", "*", ">", "$JS.API.x", "$SYS.{kind}", "_INBOX.x",
	} {
		if _, err := jetstream.Open(t.Context(), s.ClientURL(), topic(t, text), "test"); !errors.Is(err, publish.ErrBadTopic) {
			t.Errorf("Open for %q = %v, want ErrBadTopic", text, err)
		}
	}
	for name := range administered(t, s).StreamNames() {
		t.Errorf("the stream %s was made", name)
	}
	if err := open(t, s.ClientURL(), "ä-$.{kind}").Publish("ä-$.X", serial(1, nil)); err != nil {
		t.Errorf("Publish = %v, want that any other text is a subject", err)
	}
}

// A message over a limit of the server or stream is an ErrUnacceptable that names the
// limit, and the connection remains usable.
func TestWhatTheServerNeverTakesIsUnacceptable(t *testing.T) {
	t.Parallel()
	s := serve(t)
	keep(t, administered(t, s), nats.StreamConfig{Name: "SMALL", Subjects: []string{"small.*"}, MaxMsgSize: 1000})
	p, small := open(t, s.ClientURL(), "t.{tool}"), open(t, s.ClientURL(), "small.{tool}")
	headed := func(n, header, data int) *message.Message {
		m := serial(n, make([]byte, data))
		m.Metadata.Set("metadata", strings.Repeat("x", header))
		return m
	}
	for what, c := range map[string]struct {
		to      *jetstream.Publisher
		subject string
		m       *message.Message
		says    string
	}{
		"larger than the server takes":   {p, "t.a", headed(1, 1, 1<<20+1), "maximum payload exceeded"},
		"that with its headers":          {p, "t.a", headed(2, 2000, 1<<20-1000), "maximum payload exceeded"},
		"headers over 64 KiB":            {p, "t.a", headed(3, 70_000, 1), "header size exceeds maximum"},
		"larger than the stream takes":   {small, "small.a", serial(4, make([]byte, 2000)), "message size exceeds maximum"},
		"a subject longer than any line": {p, "t." + strings.Repeat("a", 5000), serial(5, nil), "at most 2048 bytes, not 5002"},
	} {
		if err := c.to.Publish(c.subject, c.m); !errors.Is(err, publish.ErrUnacceptable) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: Publish = %.300v, want ErrUnacceptable that says %q", what, err, c.says)
		}
		if err := c.to.Publish(strings.Split(c.subject, ".")[0]+".b", serial(9, nil)); err != nil {
			t.Errorf("after %s: Publish = %v, want none", what, err)
		}
	}
}

// A message for a full or removed stream is an ErrUnavailable, and the stream accepts
// it once it has room.
func TestAStreamWithoutRoomIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := serve(t)
	js := administered(t, s)
	for name, cfg := range map[string]nats.StreamConfig{
		"messages": {MaxMsgs: 1}, "bytes": {MaxBytes: 2000}, "subject": {MaxMsgsPerSubject: 1, DiscardNewPerSubject: true},
	} {
		cfg.Name, cfg.Subjects, cfg.Discard = name, []string{name + ".*"}, nats.DiscardNew
		keep(t, js, cfg)
		p := open(t, s.ClientURL(), name+".{kind}")
		if err := p.Publish(name+".a", serial(1, make([]byte, 1000))); err != nil {
			t.Fatal(err)
		}
		if err := p.Publish(name+".a", serial(2, make([]byte, 1000))); !errors.Is(err, publish.ErrUnavailable) || !strings.Contains(err.Error(), "exceeded") {
			t.Errorf("%s: Publish = %v, want ErrUnavailable that says what is exceeded", name, err)
		}
		if err := js.PurgeStream(name); err != nil {
			t.Fatal(err)
		}
		if err := p.Publish(name+".a", serial(2, make([]byte, 1000))); err != nil {
			t.Errorf("%s: with room again: Publish = %v", name, err)
		}
	}
	if err := js.DeleteStream("bytes"); err != nil {
		t.Fatal(err)
	}
	if err := open(t, s.ClientURL(), "messages.{kind}").Publish("bytes.a", serial(3, nil)); !errors.Is(err, publish.ErrUnavailable) {
		t.Errorf("without a stream: Publish = %v, want ErrUnavailable", err)
	}
}

// After a protocol error, the server closes the connection and the NATS client does
// not reconnect. The Publisher connects anew, unless it is closed.
func TestAClosedConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	s := serve(t, func(o *server.Options) { o.MaxControlLine = 1024 })
	p := open(t, s.ClientURL(), "t.{tool}")
	if err := p.Publish("t."+strings.Repeat("a", 2000), serial(1, nil)); !errors.Is(err, publish.ErrUnavailable) {
		t.Fatalf("Publish of a line that is too long here = %.300v, want ErrUnavailable", err)
	}
	if err := p.Publish("t.a", serial(2, nil)); err != nil {
		t.Errorf("Publish = %v, want that it connects again", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish("t.a", serial(3, nil)); err == nil {
		t.Error("a publisher that is closed publishes")
	}
}

// Missing rights are reported with the server's reason, which names the subject, and
// without the password.
func TestMissingPermissionsAreReported(t *testing.T) {
	t.Parallel()
	deny := func(subject string) *server.Permissions {
		return &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{subject}}}
	}
	s := serve(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "ada", Password: "s3cret", Permissions: deny("closed.>")}, {Username: "eve", Password: "s3cret", Permissions: deny("$JS.>")}}
	})
	as := func(name string) string { return "nats://" + name + ":s3cret@" + s.Addr().String() }
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := jetstream.Open(t.Context(), as("eve"), topic(t, "t.{kind}"), "test")
		if !errors.Is(err, jetstream.ErrStream) || !strings.Contains(err.Error(), "ermissions violation") {
			t.Errorf("Open = %v, want ErrStream that says what is not permitted", err)
		}
	}()
	p := open(t, as("ada"), "closed.{kind}")
	err := p.Publish("closed.a", serial(1, nil))
	if !errors.Is(err, publish.ErrUnavailable) || !strings.Contains(err.Error(), "ermissions violation") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("Publish = %v, want ErrUnavailable that says what is not permitted", err)
	}
	<-done
}

// certificate returns a new certificate for 127.0.0.1 and the path of a file with its
// authority.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bus"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, path
}

// A TLS connection succeeds only with the authority of the server in ca. Any other
// URL is an ErrRefused without credentials.
func TestTLSIsCheckedAgainstTheAuthorityThatIsNamed(t *testing.T) {
	t.Parallel()
	pair, ca := certificate(t)
	_, other := certificate(t)
	s := serve(t, func(o *server.Options) {
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		o.Username, o.Password = "ada", "s3cret"
	})
	at := "://ada:s3cret@" + s.Addr().String()
	p := open(t, "tls"+at+"?ca="+url.QueryEscape(ca), "t")
	if err := p.Publish("t", serial(1, nil)); err != nil {
		t.Error(err)
	}
	for what, target := range map[string]string{
		"no authority": "tls" + at, "another": "tls" + at + "?ca=" + other, "a file that is not there": "tls" + at + "?ca=" + ca + ".not",
		"credentials that are not there": "tls" + at + "?ca=" + ca + "&creds=" + ca + ".not", "no scheme of TLS, and no authority": "nats" + at,
	} {
		_, err := jetstream.Open(t.Context(), target, topic(t, "t"), "test")
		if !errors.Is(err, jetstream.ErrRefused) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: Open = %v, want ErrRefused, without credentials", what, err)
		}
	}
}
