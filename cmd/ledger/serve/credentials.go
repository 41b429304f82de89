package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
)

// The files that a serverProcess writes into a folder that only its owner may use, for
// programs that take a connection string. Only the owner of the folder can read them.
// They hold secrets of one start of the server, and the server removes them when it
// ends.
const (
	// CredentialsFile is the name of the file with the connection string, user and
	// password.
	CredentialsFile = "serving.url"

	// certificateFile is the name of the file with the certificate that the
	// connection string names.
	certificateFile = "serving.pem"
)

// credentialsPath returns the absolute path of the file name in the folder s.dir. If the
// working directory is unknown, the path is relative.
func (s *serverProcess) credentialsPath(name string) string {
	path, err := filepath.Abs(filepath.Join(s.dir, name))
	if err != nil {
		return filepath.Join(s.dir, name)
	}
	return path
}

// writeCredentials writes the connection string if only the owner of the folder may
// connect. It writes the certificate too, unless the user gave one with --tls-cert.
func (s *serverProcess) writeCredentials() error {
	if !s.ownerOnly || s.protocolServer == nil {
		return nil
	}
	u := url.URL{Scheme: "esdb", Host: reached(s.protocolAddr, "127.0.0.1"), User: url.UserPassword(s.identity.User, s.identity.Password)}
	// Write the certificate first: a client reads it through the connection string.
	if s.CertFile == "" {
		u.RawQuery = url.Values{"tlsCAFile": {s.credentialsPath(certificateFile)}}.Encode()
		if err := stores.ReplaceFile(s.credentialsPath(certificateFile), []byte(s.identity.Certificate)); err != nil {
			return fmt.Errorf("write the certificate of the server: %w", err)
		}
	}
	if err := stores.ReplaceFile(s.credentialsPath(CredentialsFile), []byte(u.String()+"\n")); err != nil {
		return fmt.Errorf("write the connection string of the server: %w", err)
	}
	return nil
}

// removeCredentials removes the files that writeCredentials wrote, also those of an
// earlier server that was killed. Files that do not exist are no error.
func (s *serverProcess) removeCredentials() error {
	var errs []error
	for _, name := range []string{CredentialsFile, certificateFile} {
		if err := os.Remove(s.credentialsPath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
