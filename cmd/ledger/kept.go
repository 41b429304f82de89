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
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// kept opens managed outputs for the builtin tools.
type kept struct{ remote.BlobStore }

// Open opens one output.
func (k kept) Open(ctx context.Context, ref domain.Ref) (io.ReadCloser, domain.Retained, error) {
	out, err := k.BlobStore.Open(ctx, ref)
	if pruned, ok := errors.AsType[*outputs.PrunedError](err); ok {
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

// nodes returns how the nodes of a ledger are asked for outputs: as the user of
// the connection string, with its trust. With tls=false there is no user, as the
// database is asked by nobody in particular then, too.
func (at address) nodes() (remote.Config, error) {
	_, rest, _ := strings.Cut(at.database, "://")
	hosts, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return remote.Config{}, nil // package eventstoredb tells what is wrong
	}
	settings := map[string]string{}
	for name, given := range values {
		settings[strings.ToLower(name)] = given[0]
	}
	c := remote.Config{}
	if secure, err := strconv.ParseBool(settings["tls"]); err != nil || secure {
		c.User, c.Password = credentials(hosts)
	}
	trusting, err := strconv.ParseBool(settings["tlsverifycert"])
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: err == nil && !trusting}
	if file := settings["tlscafile"]; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return c, fault.Usage("tlsCaFile: %w", err)
		}
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(text) {
			return c, fault.Usage("tlsCaFile: %s holds no certificate", file)
		}
	}
	return c, nil
}

// credentials returns the user and the password of USER:PASSWORD@HOST,HOST….
func credentials(hosts string) (user, password string) {
	i := strings.LastIndex(hosts, "@")
	if i < 0 {
		return "", ""
	}
	user, password, _ = strings.Cut(hosts[:i], ":")
	return unescaped(user), unescaped(password)
}

func unescaped(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}
