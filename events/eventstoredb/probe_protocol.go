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

// tlsConfigFor returns the TLS configuration that the official client uses for a host,
// or nil for a connection without TLS.
func tlsConfigFor(config *esdb.Configuration, host string) (*tls.Config, error) {
	if config.DisableTLS {
		return nil, nil
	}
	tlsConfig := &tls.Config{
		ServerName: host, RootCAs: config.RootCAs, InsecureSkipVerify: config.SkipCertificateVerification,
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
	}
	if config.UserCertFile != "" {
		pair, err := tls.LoadX509KeyPair(config.UserCertFile, config.UserKeyFile)
		if err != nil {
			return nil, fmt.Errorf("%w: userCertFile, userKeyFile: %w", ErrBadAddress, err)
		}
		tlsConfig.Certificates = []tls.Certificate{pair}
	}
	return tlsConfig, nil
}

// http2Preface is the connection preface of an HTTP/2 client with an empty SETTINGS
// frame.
var http2Preface = append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 0, 4, 0, 0, 0, 0, 0)

// frameHeader is the length of the header of an HTTP/2 frame in bytes, and
// frameSettings is the type of a SETTINGS frame. The fourth byte of a header is the
// type.
const (
	frameHeader   = 9
	frameSettings = 4
)

// checkProtocol connects to an address and returns nil if the server speaks HTTP/2,
// with TLS if tlsConfig is not nil. It sends no request. It returns ErrUnreachable if
// no connection can be opened or the server is silent, ErrTLS if one side alone uses
// TLS, ErrCertificate for a rejected certificate, and ErrForeign for another protocol.
func (v ProbeConfig) checkProtocol(ctx context.Context, address string, tlsConfig *tls.Config) error {
	conn, err := v.dial(ctx, address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends a blocked read or write
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(v.StepTimeout)); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if tlsConfig != nil {
		return v.checkTLS(ctx, conn, address, tlsConfig)
	}
	if _, err = conn.Write(http2Preface); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	first := make([]byte, frameHeader)
	switch n, err := io.ReadFull(conn, first); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return v.timeoutError()
	case n == frameHeader && first[3] == frameSettings:
		return nil
	case bytes.HasPrefix(first, []byte("HTTP/")):
		return fmt.Errorf("%w: it speaks HTTP/1", ErrForeign)
	case v.acceptsTLS(ctx, address):
		return fmt.Errorf("%w: the server requires TLS, and the connection string has tls=false", ErrTLS)
	case err != nil:
		return fmt.Errorf("%w: it closed the connection: %w", ErrForeign, err)
	}
	return fmt.Errorf("%w: it does not speak HTTP/2", ErrForeign)
}

// timeoutError is the error of a server that accepts a connection and sends no byte.
func (v ProbeConfig) timeoutError() error {
	return fmt.Errorf("%w: it accepts the connection and sends nothing within %s", ErrUnreachable, v.StepTimeout)
}

// acceptsTLS reports whether the server at an address completes a TLS handshake with
// any certificate and protocol. It opens a second connection.
func (v ProbeConfig) acceptsTLS(ctx context.Context, address string) bool {
	conn, err := v.dial(ctx, address)
	if err != nil {
		return false
	}
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(v.StepTimeout)) != nil {
		return false
	}
	// The connection carries no data, so its certificate does not matter.
	return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) == nil
}

// checkTLS performs the TLS handshake on conn and returns nil if the server selected
// HTTP/2. It returns the errors that checkProtocol documents.
func (v ProbeConfig) checkTLS(ctx context.Context, conn net.Conn, address string, tlsConfig *tls.Config) error {
	client := tls.Client(conn, tlsConfig)
	err := client.HandshakeContext(ctx)
	if err == nil && client.ConnectionState().NegotiatedProtocol == "h2" {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return v.timeoutError()
	}
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		if string(plain.RecordHeader[:]) == "HTTP/" {
			return fmt.Errorf("%w: it speaks HTTP/1 without TLS", ErrForeign)
		}
		return fmt.Errorf("%w: the server has no TLS, and the connection string lacks tls=false", ErrTLS)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%w: %w", ErrCertificate, certificateError(err))
	}
	if err == nil || v.acceptsTLS(ctx, address) {
		return fmt.Errorf("%w: it speaks TLS and not HTTP/2", ErrForeign)
	}
	return fmt.Errorf("%w: the server closed the connection during the handshake: %w", ErrTLS, err)
}

// certificateError returns err, the reason why the certificate of a server was
// rejected. For an unknown authority or a wrong name it adds the change to the
// connection string that would make the certificate valid.
func certificateError(err error) error {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("no authority that is known here signed it: name the file of its authority with tlsCaFile=FILE: %w", err)
	}
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Errorf("it is of another name: use a name that it has in the connection string: %w", name)
	}
	return err
}
