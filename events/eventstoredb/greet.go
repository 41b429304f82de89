package eventstoredb

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
)

// transportOf returns how a connection to a host is secured, as the client of
// EventStoreDB does it, and nil where it is not.
func transportOf(config *esdb.Configuration, host string) (*tls.Config, error) {
	if config.DisableTLS {
		return nil, nil
	}
	secured := &tls.Config{
		ServerName: host, RootCAs: config.RootCAs, InsecureSkipVerify: config.SkipCertificateVerification,
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
	}
	if config.UserCertFile != "" {
		pair, err := tls.LoadX509KeyPair(config.UserCertFile, config.UserKeyFile)
		if err != nil {
			return nil, fmt.Errorf("%w: userCertFile, userKeyFile: %w", ErrBadAddress, err)
		}
		secured.Certificates = []tls.Certificate{pair}
	}
	return secured, nil
}

// preface is how a client of HTTP/2 begins: with it, and a frame of settings
// that sets none.
var preface = append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 0, 4, 0, 0, 0, 0, 0)

// frameHeader is how many bytes stand before what a frame of HTTP/2 holds; the
// fourth of them is its kind.
const (
	frameHeader   = 9
	frameSettings = 4
)

// greet looks who answers at an address, and whether with TLS as wanted, by the
// first bytes alone. It returns nil where that is a server of HTTP/2.
func (v Visiting) greet(ctx context.Context, address string, secured *tls.Config) error {
	conn, err := v.connect(ctx, address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // whoever waits is told
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(v.Patience)); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if secured != nil {
		return v.handshake(ctx, conn, address, secured)
	}
	if _, err = conn.Write(preface); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	first := make([]byte, frameHeader)
	switch n, err := io.ReadFull(conn, first); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return v.silent()
	case n == frameHeader && first[3] == frameSettings:
		return nil
	case bytes.HasPrefix(first, []byte("HTTP/")):
		return fmt.Errorf("%w: it speaks HTTP/1", ErrForeign)
	case v.speaksTLS(ctx, address):
		return fmt.Errorf("%w: the server speaks TLS alone, and the connection string says tls=false", ErrTLS)
	case err != nil:
		return fmt.Errorf("%w: it hangs up: %w", ErrForeign, err)
	}
	return fmt.Errorf("%w: it does not speak HTTP/2", ErrForeign)
}

func (v Visiting) silent() error {
	return fmt.Errorf("%w: it takes the connection and says nothing within %s", ErrUnreachable, v.Patience)
}

// speaksTLS reports whether who answers at an address speaks TLS, whatever for.
func (v Visiting) speaksTLS(ctx context.Context, address string) bool {
	conn, err := v.connect(ctx, address)
	if err != nil {
		return false
	}
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(v.Patience)) != nil {
		return false
	}
	// Nothing is said behind it.
	return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) == nil
}

// handshake says what is wrong with the TLS of a server.
func (v Visiting) handshake(ctx context.Context, conn net.Conn, address string, secured *tls.Config) error {
	client := tls.Client(conn, secured)
	err := client.HandshakeContext(ctx)
	if err == nil && client.ConnectionState().NegotiatedProtocol == "h2" {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return v.silent()
	}
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		if string(plain.RecordHeader[:]) == "HTTP/" {
			return fmt.Errorf("%w: it speaks HTTP/1 without TLS", ErrForeign)
		}
		return fmt.Errorf("%w: the server speaks without, and the connection string does not say tls=false", ErrTLS)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%w: %w", ErrCertificate, distrust(err))
	}
	if err == nil || v.speaksTLS(ctx, address) {
		return fmt.Errorf("%w: it speaks TLS and not HTTP/2", ErrForeign)
	}
	return fmt.Errorf("%w: the server hangs up when it is asked for it: %w", ErrTLS, err)
}

// distrust returns why a certificate is not accepted, with what would be.
func distrust(err error) error {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("no authority that is known here signed it: name the file of its authority with tlsCaFile=FILE: %w", err)
	}
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Errorf("it is of another name: use a name that it has in the connection string: %w", name)
	}
	return err
}
