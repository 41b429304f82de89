package eventstoredb_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
	"golang.org/x/crypto/bcrypt"
)

// The error for an invalid connection string gives the reason and quotes no part of
// it that may be a password.
func TestConnectionStringsThatAreNotValidSayWhyAndNotWhat(t *testing.T) {
	t.Parallel()
	for address, why := range map[string]string{
		"":                                          "does not begin with esdb://",
		"./ledger":                                  "does not begin with esdb://",
		"http://u:secret@h:1":                       "does not begin with esdb://",
		"esdb://":                                   "host",
		"esdb://u:secret@":                          "host",
		"esdb://u:secret@h:port":                    "port",
		"esdb://u:sec%zzret@h:1":                    "escape",
		"esdb://u:se,cret@h:1":                      "%2C",
		"esdb://:secret@h:1":                        "empty username",
		"esdb://u:secret@h:1/path":                  "path",
		"esdb://u:secret@h:1?tsl=false":             `no setting "tsl"; there are`,
		"esdb://u:secret@h:1?tls=no":                "not true or false",
		"esdb://u:secret@h:1?defaultDeadline=-4":    "not a number from 1",
		"esdb://u:secret@h:1?gossipTimeout=soon":    "not a number from 1",
		"esdb://u:secret@h:1?nodePreference=me":     "NodePreference",
		"esdb://u:secret@h:1?tlsCaFile=/nothing":    "no such file",
		"esdb://u:secret@h:1?userCertFile=/a":       "userKeyFile",
		"esdb://u:secret@h:1?a=%zz":                 "name=value",
		"esdb://u:12/secret@h:1":                    "%2F",
		"esdb://u:12?secret@h:1":                    "%3F",
		"esdb://u:12#secret@h:1":                    "%23",
		"esdb://u:p@12?secret@h:1":                  "%40",
		"esdb://h:1?tls=true&tls=false":             "given twice",
		"esdb://h:1?tls=true&TLS=false":             "given twice",
		"esdb://h:1?userCertFile=/a&userKeyFile=/b": "certificate: open /a",
		"esdb://u:secret@h:1,,g:2":                  "",
	} {
		_, err := eventstoredb.Open(t.Context(), address, eventstoredb.Config{})
		if !errors.Is(err, eventstoredb.ErrBadAddress) || !strings.Contains(err.Error(), why) {
			t.Errorf("Open(%q) = %v, want ErrBadAddress with %q", address, err, why)
		}
		if err != nil && strings.Contains(err.Error(), "ecret") {
			t.Errorf("Open(%q) = %v, which has the password", address, err)
		}
	}
}

// Open returns ErrBadNamespace for a namespace that does not follow its grammar.
func TestNamespacesThatKeepNothingApartAreRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	for _, namespace := range []string{"acme", ".", "a.b.", "a-b.", "$a.", "a b."} {
		if _, err := eventstoredb.Open(t.Context(), d.url(), eventstoredb.Config{Namespace: namespace}); !errors.Is(err, eventstoredb.ErrBadNamespace) {
			t.Errorf("Open in namespace %q = %v, want ErrBadNamespace", namespace, err)
		}
	}
}

// Every scheme and form of a connection string opens a store.
func TestEveryFormOfConnectionStringOpens(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	r := record(newMint(), "Kind", 1)
	if err := d.open().Append(t.Context(), "forms-1", 0, r); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{
		"esdb://" + d.address + "?tls=false",
		"esdb://" + d.address + "/?tls=false&connectionName=ledger",
		"kurrentdb://" + d.address + "?tls=false&nodePreference=follower",
		"kurrent://" + d.address + "?TLS=False&keepAliveInterval=1000",
		"kdb://" + d.address + "?tls=false&keepAliveInterval=-1",
		"esdb+discover://" + d.address + "?tls=false",
		"kurrentdb+discover://" + d.address + "?tls=false",
		"esdb://127.0.0.1:1," + d.address + "?tls=false&nodePreference=leader",
		"esdb://admin:changeit@" + d.address + "?tls=false",
	} {
		s, err := eventstoredb.Open(t.Context(), address, eventstoredb.Config{})
		if err != nil {
			t.Errorf("Open(%q): %v", address, err)
			continue
		}
		holds(t, s, "forms-1", r)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Open returns ErrUnreachable for a server that does not respond within the retry
// timeout, and for one with which it cannot agree on TLS or the certificate.
func TestServerThatDoesNotAnswerIsUnreachable(t *testing.T) {
	t.Parallel()
	silent := newSilentServer(t)
	plain, secure := newDatabase(t), newSecureDatabase(t)
	_, another := newCertificate(t)
	for name, address := range map[string]string{
		"nobody":              "esdb://127.0.0.1:1?tls=false",
		"silence":             "esdb://" + silent + "?tls=false&gossipTimeout=1",
		"TLS where none is":   "esdb://" + plain.address,
		"no TLS where it is":  "esdb://" + secure.address + "?tls=false",
		"another CA":          "esdb://" + secure.address + "?tlsCaFile=" + another,
		"a CA, another name":  "esdb://" + strings.Replace(secure.address, "127.0.0.1", "localhost", 1) + "?tlsCaFile=" + secure.authority,
		"an unknown CA":       "esdb://" + secure.address,
		"nobody of several":   "esdb://127.0.0.1:1,127.0.0.1:2?tls=false",
		"a name that is none": "esdb://ledger.invalid:2113?tls=false",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := eventstoredb.Open(t.Context(), address, eventstoredb.Config{RetryTimeout: 50 * time.Millisecond})
			if !errors.Is(err, eventstoredb.ErrUnreachable) {
				t.Errorf("Open = %v, want ErrUnreachable", err)
			}
			if strings.Contains(name, "TLS") && !strings.Contains(strings.ToLower(err.Error()), "tls") && !strings.Contains(err.Error(), "closed") {
				t.Errorf("Open = %v, want it to speak of TLS", err)
			}
			if strings.Contains(name, "CA") && !strings.Contains(err.Error(), "x509") {
				t.Errorf("Open = %v, want it to speak of the certificate", err)
			}
		})
	}
}

// newSilentServer returns an address that accepts connections and sends no byte.
func newSilentServer(t testing.TB) string {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = at.Close() })
	return at.Addr().String()
}

// Open returns ErrUnauthenticated for refused credentials, and the error does not
// contain them.
func TestCredentialsAreCheckedAndNeverTold(t *testing.T) {
	t.Parallel()
	d := newSecureDatabase(t)
	var told bytes.Buffer
	cfg := eventstoredb.Config{RetryTimeout: 200 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&told, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for user, want := range map[string]error{
		"ana:correct@": nil,
		"bob:correct@": nil, // who may only read
		"ana:wrong@":   eventstoredb.ErrUnauthenticated,
		"eve:correct@": eventstoredb.ErrUnauthenticated,
		"":             eventstoredb.ErrUnauthenticated,
	} {
		s, err := eventstoredb.Open(t.Context(), "kurrentdb://"+user+d.address+"?tlsCaFile="+d.authority, cfg)
		if !errors.Is(err, want) {
			t.Errorf("Open as %q = %v, want %v", user, err, want)
		}
		if err != nil {
			told.WriteString(err.Error())
			continue
		}
		r := record(newMint(), "Kind", 1)
		err = s.Append(t.Context(), events.Stream("by-"+user[:3]), 0, r)
		if user == "bob:correct@" {
			if !errors.Is(err, eventstoredb.ErrRefused) {
				t.Errorf("Append as one who may read = %v, want ErrRefused", err)
			}
		} else if err != nil {
			t.Errorf("Append as %q: %v", user, err)
		}
		_ = s.Close()
	}
	if _, err := eventstoredb.Open(t.Context(), "esdb://ana:correct@"+newDatabase(t).address+"?tls=false", cfg); err != nil {
		t.Error(err)
	}
	for _, secret := range []string{"correct", "wrong", "Basic "} {
		if strings.Contains(told.String(), secret) {
			t.Errorf("%q was told:\n%s", secret, told.String())
		}
	}
	if !strings.Contains(told.String(), "credentials are never sent without TLS") {
		t.Errorf("nothing was told of credentials without TLS:\n%s", told.String())
	}
}

// A secureDatabase requires TLS and a user.
type secureDatabase struct {
	*database
	authority string // the file of its certificate
}

func newSecureDatabase(t testing.TB) *secureDatabase {
	t.Helper()
	certificate, file := newCertificate(t)
	hash, err := bcrypt.GenerateFromPassword([]byte("correct"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	users, err := auth.ParseUsers(strings.NewReader("ana:" + string(hash) + ":ledger\nbob:" + string(hash) + ":read\n"))
	if err != nil {
		t.Fatal(err)
	}
	d := newDatabase(t)
	d.served = server.Config{TLS: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}}, Users: users}
	d.restart()
	return &secureDatabase{d, file}
}

// newCertificate returns a certificate for the loopback address, and the file of its
// authority.
func newCertificate(t testing.TB) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ledger"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pemOf("CERTIFICATE", der), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// Open returns the cause of its context when that ends.
func TestOpenObeysItsContext(t *testing.T) {
	t.Parallel()
	silent := newSilentServer(t)
	errStop := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := time.AfterFunc(20*time.Millisecond, func() { cancel(errStop) })
	defer stop.Stop()
	if _, err := eventstoredb.Open(ctx, "esdb://"+silent+"?tls=false&gossipTimeout=1", eventstoredb.Config{}); !errors.Is(err, errStop) {
		t.Errorf("Open = %v, want the cause", err)
	}
}

// No error text and no log message contains a password, for every connection string
// that has one.
func TestPasswordIsNeverTold(t *testing.T) {
	t.Parallel()
	d, plain := newSecureDatabase(t), newDatabase(t)
	_, another := newCertificate(t)
	password := rand.Text()
	ok, where := "?tlsCaFile="+d.authority, "@"+d.address
	var told bytes.Buffer
	log := slog.New(slog.NewTextHandler(&told, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg := eventstoredb.Config{RetryTimeout: 20 * time.Millisecond, Logger: log}
	tries := []string{
		where + ok, where, where + "?tls=false", where + "?tlsCaFile=" + another, where + ok + "&tsl=1", where + ok + "&tls=" + "perhaps", where + ok + "&a=%zz",
		"@" + plain.address, "@127.0.0.1:1" + ok, "@127.0.0.1:1,127.0.0.1:2" + ok, "@" + plain.address + "?tls=false", "@h:x", "@h:1/path", "@[::1]:1", "@", "@ :1", "@h\x7f:1", "@ledger.invalid:1" + ok,
		"@,h:1", "@h:1,h:x", where + ok + "&userCertFile=/a", where + ok + "&nodePreference=none", where + "?tlsCaFile=/nothing", where + ok + "&gossipTimeout=0",
	}
	for i, before := range []string{"", "/", "?", "#", "@", ":", "%", "1/", "1?", "1#", "1@", ",", "%zz", "[", " ", "?a=", "&", "?tls=false&b="} {
		for j, rest := range tries {
			if i > 0 && (i+j)%repeats(3, 1) > 0 {
				continue
			}
			s, err := eventstoredb.Open(t.Context(), "esdb://ana:"+before+password+rest, cfg)
			if err == nil {
				_ = s.Close()
				continue
			}
			told.WriteString(err.Error() + "\n")
		}
	}
	// And while a store is used whose user is not known any more. It has the
	// time to connect again.
	cfg.RetryTimeout = 0
	s, err := eventstoredb.Open(t.Context(), "esdb://ana:correct"+where+ok, cfg)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	if d.served.Users, err = auth.ParseUsers(strings.NewReader("eve:" + string(hash) + ":read\n")); err != nil {
		t.Fatal(err)
	}
	d.restart()
	for what, loop := range loops(t.Context(), s) {
		_, err := collect(loop)
		if !errors.Is(err, eventstoredb.ErrUnauthenticated) {
			t.Errorf("%s = %v, want ErrUnauthenticated", what, err)
		}
		told.WriteString(err.Error() + "\n")
	}
	_ = s.Close()
	for _, secret := range []string{password, "correct", base64.StdEncoding.EncodeToString([]byte("ana:" + password)), base64.StdEncoding.EncodeToString([]byte("ana:correct"))} {
		if before, _, found := strings.Cut(told.String(), secret); found {
			t.Errorf("a secret was told behind\n%s", before[strings.LastIndexByte(before, '\n')+1:])
		}
	}
}

// A password may contain every character, also in the connection string of a cluster.
func TestPasswordsOfAnyLettersAreSent(t *testing.T) {
	t.Parallel()
	const password = `p@ss:w/ö?r#d%&=+, "[]<>\\` + "`"
	d := newSecureDatabase(t)
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	if d.served.Users, err = auth.ParseUsers(strings.NewReader("ana:" + string(hash) + ":ledger\n")); err != nil {
		t.Fatal(err)
	}
	d.restart()
	user := strings.ReplaceAll(url.UserPassword("ana", password).String(), ",", "%2C")
	for _, address := range []string{
		"esdb://" + user + "@" + d.address + "?tlsCaFile=" + d.authority,
		"kurrentdb+discover://" + user + "@" + d.address + "?tlsCaFile=" + d.authority,
		"esdb://" + user + "@" + d.address + "," + d.address + "?tlsCaFile=" + url.QueryEscape(d.authority),
		"kdb+discover://" + user + "@" + d.address + "/?tlsVerifyCert=false",
		"kurrent+discover://" + user + "@" + strings.Replace(d.address, "127.0.0.1", "localhost", 1) + "?tlsVerifyCert=False&keepAliveTimeout=-1",
	} {
		s, err := eventstoredb.Open(t.Context(), address, eventstoredb.Config{})
		if err != nil {
			t.Errorf("Open(%q): %v", address, err)
			continue
		}
		if err := s.Append(t.Context(), events.Stream("letters-"+newMint().Event().String()), 0, record(newMint(), "Kind", 1)); err != nil {
			t.Errorf("Append at %q: %v", address, err)
		}
		_ = s.Close()
	}
}

// A user can authenticate by a certificate.
func TestUserCertificateIsShown(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	certificate, file := newCertificate(t)
	vouching, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(vouching)
	d.served.TLS = &tls.Config{
		Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities,
	}
	d.restart()
	key := filepath.Join(t.TempDir(), "key.pem")
	der, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, pemOf("PRIVATE KEY", der), 0o600); err != nil {
		t.Fatal(err)
	}
	address := "esdb://" + d.address + "?tlsCaFile=" + file
	s, err := eventstoredb.Open(t.Context(), address+"&userCertFile="+file+"&userKeyFile="+key, eventstoredb.Config{})
	if err != nil {
		t.Fatalf("Open with a certificate: %v", err)
	}
	_ = s.Close()
	if _, err := eventstoredb.Open(t.Context(), address, eventstoredb.Config{RetryTimeout: 20 * time.Millisecond}); !errors.Is(err, eventstoredb.ErrUnreachable) {
		t.Errorf("Open without = %v, want ErrUnreachable", err)
	}
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// The client receives the settings of the connection string, and writes no warning
// about them to the standard error.
func TestSettingsAreUnderstood(t *testing.T) {
	var said bytes.Buffer
	stdlog.SetOutput(&said)
	defer stdlog.SetOutput(os.Stderr)
	for settings, want := range map[string]string{
		"":                          "10s 10s <nil> 5 100 false",
		"keepAliveInterval=1":       "10s 10s <nil> 5 100 false",
		"keepAliveInterval=20000":   "20s 10s <nil> 5 100 false",
		"keepAliveInterval=-1":      "-1ns 10s <nil> 5 100 false",
		"keepAliveTimeout=2500":     "10s 2.5s <nil> 5 100 false",
		"keepAliveTimeout=-1":       "-1ns -1ns <nil> 5 100 false",
		"defaultDeadline=300":       "10s 10s 300ms 5 100 false",
		"GossipTimeout=7":           "10s 10s <nil> 7 100 false",
		"discoveryInterval=9":       "10s 10s <nil> 5 9 false",
		"connectionName=a%40b":      "10s 10s <nil> 5 100 false",
		"tlsVerifyCert=false":       "10s 10s <nil> 5 100 true",
		"nodePreference=follower":   "10s 10s <nil> 5 100 false",
		"maxDiscoverAttempts=1":     "10s 10s <nil> 5 100 false",
		"TLS=FALSE&tlsVerifyCert=1": "10s 10s <nil> 5 100 false",
	} {
		c, err := eventstoredb.ParseConnectionString("kurrentdb://h:1?" + settings)
		if err != nil {
			t.Errorf("%s: %v", settings, err)
			continue
		}
		deadline := any(nil)
		if c.DefaultDeadline != nil {
			deadline = *c.DefaultDeadline
		}
		if got := fmt.Sprint(c.KeepAliveInterval, c.KeepAliveTimeout, deadline, c.GossipTimeout, c.DiscoveryInterval, c.SkipCertificateVerification); got != want {
			t.Errorf("%s is understood as %s, want %s", settings, got, want)
		}
	}
	for scheme, discover := range map[string]bool{
		"esdb": false, "kdb": false, "kurrent": false, "KurrentDB": false,
		"esdb+discover": true, "kdb+discover": true, "kurrent+discover": true, "kurrentdb+Discover": true,
	} {
		if c, err := eventstoredb.ParseConnectionString(scheme + "://h:1"); err != nil || c.DnsDiscover != discover {
			t.Errorf("%s is understood as %+v, %v, want discovery %t", scheme, c, err, discover)
		}
	}
	if said.Len() > 0 {
		t.Errorf("the client says\n%s", said.String())
	}
}
