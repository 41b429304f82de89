package serve

import (
	"crypto/tls"
	"fmt"
	"os"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// Options are the values of the flags of ledger serve.
type Options struct {
	Listen            string                 // address of the protocol, HOST:PORT
	ListenOutputs     string                 // address of the HTTP endpoints; empty: of the same host as Listen, with the port of the last server or a free one
	CertFile, KeyFile string                 // paths of PEM files; both or neither
	UsersFile         string                 // path of the users file
	Anonymous         string                 // role of requests without credentials
	Writable          []string               // name prefixes of streams that other clients may write
	Drain             time.Duration          // grace period for requests under way when serving ends
	LogInterval       time.Duration          // interval of the log line with the throughput; 0: none
	Changed           func(name string) bool // reports whether the command line sets a flag
}

// checkNode returns a usage fault if a flag is set that does not apply to a node of a
// ledger in a database.
func (o Options) checkNode() error {
	for _, name := range []string{"listen", "writable"} {
		if o.Changed(name) {
			return fault.WithHint(fault.Usage("--%s is for a folder: --store names a database, which speaks for itself", name),
				"give --listen-outputs where this node's outputs are to be served")
		}
	}
	return nil
}

// serverConfig returns the configuration of the protocol server. owner reports whether
// only the owner of the folder can connect, which is so if neither --users nor
// --anonymous is given. In that case the users of cfg are those of id, and without
// --tls-cert the certificate is that of id too.
func (o Options) serverConfig(id *shared.Identity) (cfg server.Config, owner bool, err error) {
	cfg = server.Config{Writable: o.Writable, Connections: conns.New(conns.Config{})}
	if o.Changed("anonymous") {
		if cfg.Anonymous, err = auth.ParseRole(o.Anonymous); err != nil {
			return cfg, false, fault.Usage("--anonymous: %w", err)
		}
	}
	if o.Drain < 0 || o.LogInterval < 0 {
		return cfg, false, fault.Usage("--drain and --log-every are not below zero")
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return cfg, false, fault.WithHint(fmt.Errorf("--tls-cert, --tls-key: %w", err), "name the PEM files of a certificate and of its key")
		}
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	switch {
	case o.UsersFile != "":
		cfg.Users, err = readUsers(o.UsersFile)
	case !o.Changed("anonymous"):
		owner, cfg.Users = true, id.Users
		if cfg.TLS == nil {
			cfg.TLS = id.TLS
		}
	}
	return cfg, owner, err
}

// readUsers parses the users file at the path name.
func readUsers(name string) (*auth.Users, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fault.WithHint(fmt.Errorf("--users: %w", err), "name a file with a line for each user; ledger serve user NAME makes one")
	}
	defer file.Close()
	users, err := auth.ParseUsers(file)
	if err != nil {
		return nil, fmt.Errorf("--users %s: %w", name, err)
	}
	return users, nil
}
