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
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/events/eventstoredb/protocol"
	"golang.org/x/crypto/bcrypt"
)

func TestConnectionStringsThatAreNotValidSayWhyAndNotWhat(t *testing.T) {
	t.Parallel()
	for address, why := range map[string]string{
		"":                                       "does not begin with esdb://",
		"./ledger":                               "does not begin with esdb://",
		"http://u:secret@h:1":                    "does not begin with esdb://",
		"esdb://":                                "host",
		"esdb://u:secret@":                       "host",
		"esdb://u:secret@h:port":                 "port",
		"esdb://u:sec%zzret@h:1":                 "escape",
		"esdb://u:se,cret@h:1":                   "%2C",
		"esdb://:secret@h:1":                     "empty username",
		"esdb://u:secret@h:1/path":               "path",
		"esdb://u:secret@h:1?tsl=false":          `no setting "tsl"; there are`,
		"esdb://u:secret@h:1?tls=no":             "not true or false",
		"esdb://u:secret@h:1?defaultDeadline=-4": "not a number from 1",
		"esdb://u:secret@h:1?gossipTimeout=soon": "not a number from 1",
		"esdb://u:secret@h:1?nodePreference=me":  "NodePreference",
		"esdb://u:secret@h:1?tlsCaFile=/nothing": "no such file",
		"esdb://u:secret@h:1?userCertFile=/a":    "userKeyFile",
		"esdb://u:secret@h:1?a=%zz":              "name=value",
		"esdb://u:secret@h:1,,g:2":               "",
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

func TestNamespacesThatKeepNothingApartAreRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	for _, namespace := range []string{"acme", ".", "a.b.", "a-b.", "$a.", "a b."} {
		if _, err := eventstoredb.Open(t.Context(), d.url(), eventstoredb.Config{Namespace: namespace}); !errors.Is(err, eventstoredb.ErrBadNamespace) {
			t.Errorf("Open in namespace %q = %v, want ErrBadNamespace", namespace, err)
		}
	}
}

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

func TestServerThatDoesNotAnswerIsUnreachable(t *testing.T) {
	t.Parallel()
	silent := newSilence(t)
	plain, secure := newDatabase(t), newSecureDatabase(t)
	for name, address := range map[string]string{
		"nobody":              "esdb://127.0.0.1:1?tls=false",
		"silence":             "esdb://" + silent + "?tls=false&gossipTimeout=1",
		"TLS where none is":   "esdb://" + plain.address,
		"no TLS where it is":  "esdb://" + secure.address + "?tls=false",
		"an unknown CA":       "esdb://" + secure.address,
		"nobody of several":   "esdb://127.0.0.1:1,127.0.0.1:2?tls=false",
		"a name that is none": "esdb://ledger.invalid:2113?tls=false",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := eventstoredb.Open(t.Context(), address, eventstoredb.Config{Patience: 50 * time.Millisecond})
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

// newSilence returns an address at which somebody listens and nobody answers.
func newSilence(t testing.TB) string {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = at.Close() })
	return at.Addr().String()
}

func TestCredentialsAreCheckedAndNeverTold(t *testing.T) {
	t.Parallel()
	d := newSecureDatabase(t)
	var told bytes.Buffer
	cfg := eventstoredb.Config{Patience: 200 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&told, &slog.HandlerOptions{Level: slog.LevelDebug}))}
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

// A secureDatabase takes TLS and users alone.
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
	users, err := protocol.ParseUsers(strings.NewReader("ana:" + string(hash) + ":ledger\nbob:" + string(hash) + ":read\n"))
	if err != nil {
		t.Fatal(err)
	}
	d := newDatabase(t)
	d.served = protocol.Config{TLS: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}}, Users: users}
	d.restart()
	return &secureDatabase{d, file}
}

// newCertificate returns a certificate for the loopback address, and the file
// that vouches for it.
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
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

func TestOpenObeysItsContext(t *testing.T) {
	t.Parallel()
	silent := newSilence(t)
	errStop := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := time.AfterFunc(20*time.Millisecond, func() { cancel(errStop) })
	defer stop.Stop()
	if _, err := eventstoredb.Open(ctx, "esdb://"+silent+"?tls=false&gossipTimeout=1", eventstoredb.Config{}); !errors.Is(err, errStop) {
		t.Errorf("Open = %v, want the cause", err)
	}
}
