package shared

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// The names of files in the folder.
const (
	// EndpointName is the file with the endpoint of the holder.
	EndpointName = "serving"
	// LastName is the file with the endpoint of the last holder that has ended,
	// without its password.
	LastName = "served"
)

// The errors of reading an endpoint and of calling the process there. Match them with
// errors.Is.
var (
	// ErrNoEndpoint reports a folder without an endpoint file.
	ErrNoEndpoint = errors.New("no process serves the folder")
	// ErrBadEndpoint reports an endpoint file that is invalid, a symbolic link, or
	// accessible to other users.
	ErrBadEndpoint = errors.New("endpoint file is not valid")
	// ErrNoResponse reports that the process at an endpoint does not respond, or that
	// another process has replaced it.
	ErrNoResponse = errors.New("process that serves the folder does not answer")
)

// An Endpoint has the addresses and the credentials of a holder, the process that has
// the lock of a folder. It is for processes of the same machine that can read the
// folder. Its JSON is the content of the endpoint file. A killed holder leaves this
// file behind; [CurrentEndpoint] therefore compares the file with the process that has
// the lock.
type Endpoint struct {
	// Host, PID, Started and Command identify the process. An example of Command is
	// "ledger run".
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Command string    `json:"command"`
	// Process is the ID of the holder in the log. Zero: the log does not contain the
	// start of the holder yet.
	Process domain.ProcessID `json:"process,omitzero"`
	// Before are earlier holders that were killed and are not recovered yet.
	Before []domain.ProcessID `json:"before,omitempty"`

	// Log is HOST:PORT of the event store protocol. Empty: the log is in a database.
	Log string `json:"log,omitempty"`
	// Web is https://HOST:PORT of the outputs, the checkpoints and the other requests.
	Web string `json:"web"`
	// User and Password authenticate clients at both addresses.
	User     string `json:"user"`
	Password string `json:"password,omitempty"`
	// Certificate is the certificate of the holder in PEM. Clients trust it alone.
	Certificate string `json:"certificate"`

	// Address is HOST:PORT at which the holder serves the protocol to other machines
	// and programs. Empty: it does not.
	Address string `json:"address,omitempty"`
	// Outputs is http://HOST:PORT or https://HOST:PORT at which the holder serves the
	// outputs to other machines and programs.
	Outputs string `json:"outputs,omitempty"`
	// Node is the address that the processes with this folder record in the log as the
	// place of their outputs.
	Node string `json:"node,omitempty"`
}

// String names the process by PID, command, host and start.
func (e Endpoint) String() string {
	return fmt.Sprintf("process %d (%s on %s, since %s)", e.PID, e.Command, e.Host, e.Started.Format(time.RFC3339))
}

// Write writes the endpoint into a folder, and replaces the file of an earlier holder
// atomically. The file is durable when Write returns. The caller has the lock of the
// folder.
func (e Endpoint) Write(dir string) error { return e.write(dir, EndpointName) }

// write writes the endpoint into the file with the given name, as Write does.
func (e Endpoint) write(dir, name string) error {
	text, err := json.Marshal(e)
	if err == nil {
		err = replaceFile(filepath.Join(dir, name), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write endpoint %s: %w", filepath.Join(dir, name), err)
	}
	return nil
}

// retire removes the endpoint of a holder that ended in order. It keeps the fields that
// the next holder needs in the file LastName. The caller has the lock of the folder. A
// folder without an endpoint is no error.
func retire(dir string) error {
	return retireEndpoint(dir, func(e *Endpoint) { e.Process = domain.ProcessID{} })
}

// RetireKilled removes the endpoint of a holder that was killed, as retire does. It
// also adds the ID of that holder to Before of the endpoint in the file LastName, so
// that the next holder recovers the work of the killed one.
func RetireKilled(dir string) error {
	return retireEndpoint(dir, func(e *Endpoint) {
		e.Before, e.Process = UnfinishedHolders(dir, domain.ProcessID{}), domain.ProcessID{}
	})
}

// retireEndpoint removes the endpoint from a folder. Before that, it applies change to
// a copy of the endpoint. If the changed copy has an address for outputs or killed
// holders, retireEndpoint writes the copy, without the password, into the file
// LastName. It returns nil if the folder has no endpoint. It also removes an invalid
// endpoint, and then returns the error of reading it.
func retireEndpoint(dir string, change func(*Endpoint)) error {
	e, err := ReadEndpoint(dir)
	if err == nil {
		change(&e)
		if e.Password = ""; e.Outputs != "" || len(e.Before) > 0 {
			err = e.write(dir, LastName)
		}
	} else if errors.Is(err, ErrNoEndpoint) {
		return nil
	}
	removed := os.Remove(filepath.Join(dir, EndpointName))
	if removed == nil {
		removed = syncFolder(dir)
	}
	return errors.Join(err, removed)
}

// ReadEndpoint returns the endpoint in a folder, which may be that of a killed holder.
// It returns an ErrNoEndpoint if there is no file, and an ErrBadEndpoint for an
// invalid file, a symbolic link, and a file that other users can read or write.
func ReadEndpoint(dir string) (Endpoint, error) {
	return readEndpoint(filepath.Join(dir, EndpointName))
}

// LastEndpoint returns the endpoint of the last holder of a folder, running or not, and
// the zero Endpoint if no valid file exists. If that holder had no public address for
// outputs, the result has the address of the latest earlier holder that is known.
func LastEndpoint(dir string) (last Endpoint) {
	for _, name := range []string{EndpointName, LastName} {
		e, err := readEndpoint(filepath.Join(dir, name))
		if err == nil && last.PID == 0 {
			last = e
		}
		if err == nil && last.Outputs == "" {
			last.Outputs = e.Outputs
		}
	}
	return last
}

// CurrentEndpoint returns the endpoint in a folder, and reports whether the process
// that took the lock last has written it. That process may have been killed since.
// CurrentEndpoint returns false for a missing or invalid file.
func CurrentEndpoint(dir string) (Endpoint, bool) {
	owner, known := readOwner(dir)
	e, err := ReadEndpoint(dir)
	return e, err == nil && known && e.of(owner)
}

// maxEndpoint is the greatest size in bytes of an endpoint file.
const maxEndpoint = 1 << 20

// readEndpoint reads a file without following a symbolic link, and checks its mode on
// the open file.
func readEndpoint(path string) (e Endpoint, err error) {
	// Without O_NONBLOCK a named pipe in place of the file would block.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return e, fmt.Errorf("read endpoint %s: %w", path, ErrNoEndpoint)
	case errors.Is(err, syscall.ELOOP):
		return e, fmt.Errorf("read endpoint %s: %w: it is a symbolic link: remove it", path, ErrBadEndpoint)
	case err != nil:
		return e, fmt.Errorf("read endpoint: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return e, fmt.Errorf("read endpoint: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return e, fmt.Errorf("read endpoint %s: %w: it has the mode %v, and must be a file that only its owner can read", path, ErrBadEndpoint, info.Mode())
	}
	text, err := io.ReadAll(io.LimitReader(file, maxEndpoint))
	if err != nil {
		return e, fmt.Errorf("read endpoint: %w", err)
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return Endpoint{}, fmt.Errorf("read endpoint %s: %w: %w", path, ErrBadEndpoint, err)
	}
	return e, nil
}

// ConnectionString returns the connection string of the event store protocol with the
// credentials, for package eventstoredb. The certificate is not in it.
func (e Endpoint) ConnectionString() string {
	u := url.URL{Scheme: "esdb", Host: e.Log, User: url.UserPassword(e.User, e.Password)}
	return u.String()
}

// Pool returns a pool with the certificate of the endpoint as its only member, or an
// ErrBadEndpoint.
func (e Endpoint) Pool() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(e.Certificate)) {
		return nil, fmt.Errorf("%w: it has no certificate", ErrBadEndpoint)
	}
	return pool, nil
}

// TLS returns a client configuration for TLS 1.3 that trusts the certificate of the
// endpoint alone, or an ErrBadEndpoint.
func (e Endpoint) TLS() (*tls.Config, error) {
	pool, err := e.Pool()
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, nil
}

// replaceFile atomically replaces a file with one that only its owner can read. Data
// and name are durable when it returns. After an error the old file remains.
func replaceFile(path string, data []byte) error {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes the entries of a folder durable: files that were created, renamed
// or removed.
func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
