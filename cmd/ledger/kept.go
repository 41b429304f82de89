package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/settlement-ledger/ledger/builtins"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// kept opens managed outputs for the builtin tools.
type kept struct{ remote.Outputs }

// Open opens one output.
func (k kept) Open(ctx context.Context, ref domain.Ref) (io.ReadCloser, domain.Retained, error) {
	out, err := k.Outputs.Open(ctx, ref)
	if pruned, ok := errors.AsType[*outputs.Pruned](err); ok {
		return nil, domain.Retained{}, &builtins.Pruned{At: pruned.At, Policy: pruned.Policy, SHA256: pruned.Retained.SHA256}
	}
	if errors.Is(err, outputs.ErrNotFound) {
		return nil, domain.Retained{}, fmt.Errorf("%w: %w", builtins.ErrAbsent, err)
	}
	if err != nil {
		return nil, domain.Retained{}, err
	}
	return out, out.Retained(), nil
}

// notGiven reports whether an output is at a node that does not give it, which
// says nothing of the output.
func notGiven(err error) bool {
	return errors.Is(err, remote.ErrUnreachable) || errors.Is(err, remote.ErrNotANode) || errors.Is(err, remote.ErrDenied) || errors.Is(err, remote.ErrBadAddress)
}

// nodes returns how the nodes of a ledger are asked for outputs: with the
// credentials and the trust of the connection string.
func (at address) nodes() (remote.Config, error) {
	u, err := url.Parse(at.database)
	if err != nil {
		return remote.Config{}, nil // of several hosts, say: they are asked as nobody in particular
	}
	c := remote.Config{}
	settings := map[string]string{}
	for name, values := range u.Query() {
		settings[strings.ToLower(name)] = values[0]
	}
	if plain, err := strconv.ParseBool(settings["tls"]); (err != nil || plain) && u.User != nil {
		c.User = u.User.Username()
		c.Password, _ = u.User.Password()
	}
	trusting, err := strconv.ParseBool(settings["tlsverifycert"])
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: err == nil && !trusting}
	if file := settings["tlscafile"]; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return c, fmt.Errorf("tlsCaFile: %w", err)
		}
		c.TLS.RootCAs = x509.NewCertPool()
		c.TLS.RootCAs.AppendCertsFromPEM(text)
	}
	return c, nil
}
