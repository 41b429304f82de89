package jetstream

import (
	"errors"
	"fmt"
	"net"
	"net/url"

	"github.com/nats-io/nats.go"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// A serverURL is a parsed target. It never changes.
type serverURL struct {
	// server is the address with its credentials, and redacted the target without
	// them, for errors.
	server   string
	redacted string
	// stream is the name of the stream that stores the subjects. If it is empty, the
	// stream is found by its subjects or named after them.
	stream string
	// creds is the path of a credentials file, and ca the path of a file of root
	// certificates. Either may be empty.
	creds string
	ca    string
}

// parseURL parses a target. Its errors contain only the scheme and the names
// of parameters.
func parseURL(text string) (serverURL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return serverURL{}, fmt.Errorf("%w: it is no URL, such as nats://127.0.0.1:4222", ErrBadURL)
	}
	switch {
	case u.Scheme != "nats" && u.Scheme != "tls":
		return serverURL{}, fmt.Errorf("%w: the scheme is %q, not nats or tls", ErrBadURL, u.Scheme)
	case u.Hostname() == "":
		return serverURL{}, fmt.Errorf("%w: it has no host, such as nats://127.0.0.1:4222", ErrBadURL)
	case u.Path != "" && u.Path != "/":
		return serverURL{}, fmt.Errorf("%w: it has a path; subjects are named by the topic", ErrBadURL)
	}
	a := serverURL{redacted: publish.Redacted(text)}
	for name, values := range u.Query() {
		field, known := map[string]*string{"stream": &a.stream, "creds": &a.creds, "ca": &a.ca}[name]
		if !known || len(values) != 1 || values[0] == "" {
			return serverURL{}, fmt.Errorf("%w: the parameter %s is not one of creds, ca and stream, each once", ErrBadURL, name)
		}
		*field = values[0]
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "4222")
	}
	u.RawQuery, u.Path = "", ""
	a.server = u.String()
	return a, nil
}

// options returns the client options for the files of credentials and certificates.
func (a serverURL) options() (options []nats.Option) {
	if a.creds != "" {
		options = append(options, nats.UserCredentials(a.creds))
	}
	if a.ca != "" {
		options = append(options, nats.RootCAs(a.ca))
	}
	return options
}

// connectError wraps a failed connection in ErrRefused or publish.ErrUnavailable,
// with advice for the user who wrote the URL.
func (a serverURL) connectError(err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return fmt.Errorf("connect to %s: %w: the user, password, token or credentials are not right", a.redacted, ErrRefused)
	case errors.Is(err, nats.ErrSecureConnRequired):
		return fmt.Errorf("connect to %s: %w: it requires TLS: use tls:// in place of nats://", a.redacted, ErrRefused)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("connect to %s: %w: it has no TLS: use nats:// in place of tls://", a.redacted, ErrRefused)
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("connect to %s: %w: no server answers: start it, or check the port", a.redacted, publish.ErrUnavailable)
	}
	return fmt.Errorf("connect to %s: %w: %w", a.redacted, ErrRefused, err)
}
