package stores

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// NodeFailed reports whether err shows that the node of an output is unreachable,
// refuses access or has an invalid address. Such an error does not mean that the
// output is missing or damaged.
func NodeFailed(err error) bool {
	return errors.Is(err, remote.ErrUnreachable) || errors.Is(err, remote.ErrNotANode) || errors.Is(err, remote.ErrDenied) || errors.Is(err, remote.ErrBadAddress)
}

// nodes returns the configuration of clients that fetch outputs from other nodes.
// They use the user, the password and the TLS settings of the connection string. With
// tls=false they send no credentials, like the database client. An unreadable file of
// certificates is a usage error.
func (at Address) nodes() (remote.Config, error) {
	_, rest, _ := strings.Cut(at.Database, "://")
	hosts, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return remote.Config{}, nil // package eventstoredb reports the error
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

// credentials returns the decoded user and password in USER:PASSWORD@HOST,HOST and so
// on. It returns two empty strings if the text has no @. The hosts begin after the last
// @.
func credentials(hosts string) (user, password string) {
	i := strings.LastIndex(hosts, "@")
	if i < 0 {
		return "", ""
	}
	user, password, _ = strings.Cut(hosts[:i], ":")
	return unescaped(user), unescaped(password)
}

// unescaped decodes %XX in text. It returns text unchanged if an escape is invalid.
func unescaped(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}
