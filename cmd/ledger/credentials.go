package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
)

// The files that a host writes into a folder that only its owner may use, for programs that
// take a connection string. Only the owner of the folder can read them. They hold secrets of
// one start of the server, and the server removes them when it ends.
const (
	credentialsName = "serving.url" // the connection string, with user and password
	certificateName = "serving.pem" // the server certificate to which the connection string refers
)

// credentialsPath returns the absolute path of a file in the folder of the host. It returns a
// relative path if the working directory is unknown.
func (s *host) credentialsPath(name string) string {
	path, err := filepath.Abs(filepath.Join(s.dir, name))
	if err != nil {
		return filepath.Join(s.dir, name)
	}
	return path
}

// writeCredentials writes the connection string if only the owner of the folder may connect.
// It writes the certificate too, unless the user gave one with --tls-cert.
func (s *host) writeCredentials() error {
	if !s.owner || s.server == nil {
		return nil
	}
	u := url.URL{Scheme: "esdb", Host: reached(s.gate, "127.0.0.1"), User: url.UserPassword(s.identity.User, s.identity.Password)}
	// Write the certificate first: a client reads it through the connection string.
	if s.flags.cert == "" {
		u.RawQuery = url.Values{"tlsCAFile": {s.credentialsPath(certificateName)}}.Encode()
		if err := stores.ReplaceFile(s.credentialsPath(certificateName), []byte(s.identity.Certificate)); err != nil {
			return fmt.Errorf("write the certificate of the server: %w", err)
		}
	}
	if err := stores.ReplaceFile(s.credentialsPath(credentialsName), []byte(u.String()+"\n")); err != nil {
		return fmt.Errorf("write the connection string of the server: %w", err)
	}
	return nil
}

// forgetCredentials removes the files of writeCredentials, including the files of an earlier
// server that was killed. Files that do not exist are no error.
func (s *host) forgetCredentials() error {
	var errs []error
	for _, name := range []string{credentialsName, certificateName} {
		if err := os.Remove(s.credentialsPath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
