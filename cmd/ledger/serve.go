package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// The defaults of the flags of ledger serve.
const (
	defaultListen = "127.0.0.1:2113" // loopback only, on EventStoreDB's port
	defaultDrain  = 10 * time.Second // for the requests under way when serving ends
	defaultPulse  = 10 * time.Second // between two log lines about the work
)

// A serveFlags holds the flags of ledger serve.
type serveFlags struct {
	listen    string                 // address of the protocol, HOST:PORT
	outputs   string                 // address of the HTTP endpoints; empty: chosen by host
	cert, key string                 // paths of PEM files; both or neither
	users     string                 // path of the users file
	anonymous string                 // role of requests without credentials
	writable  []string               // name prefixes of streams that other clients may write
	publish   string                 // path of a configuration of ledger publish
	drain     time.Duration          // grace period for requests under way when serving ends
	pulse     time.Duration          // interval of the log line about the work; 0: none
	given     func(name string) bool // reports whether the command line sets a flag
}

const serveLong = `serve has the store of a folder open and speaks EventStoreDB's protocol over it:
every client of EventStoreDB and KurrentDB can read and follow the log. Other
ledger commands work on the folder meanwhile: given the folder, they find where
it is served; given the connection string that is printed, from anywhere.
Outputs that are kept whole are served beside it, by HTTP.

Before it serves, it ends what dead processes left open, as run and resume do.

Where --store is a connection string, the database speaks for the log, and serve
serves the node: the outputs that this machine keeps, to the nodes of others, by
HTTP alone. Other commands of this machine on the same connection string keep
outputs through it. There is no --listen then, and no --writable.

The log names where other nodes find the outputs: the address at which they are
served, or LEDGER_NODE_ADDRESS.

Only you may use it: it speaks TLS with a certificate of its own and asks for a
password, both new at each start. They are in the folder, in files that only you can
read: serving.url is a connection string for any client, and serving.pem the
certificate that it names. Commands that are given the folder need neither.

--anonymous lets everybody on this machine do what it says, without a password and
without TLS. --users names a file of users; any address but one of this machine asks
for it, and for --tls-cert and --tls-key. Only ledger programs write into the
ledger's own streams; --writable opens further ones, by the beginning of their names,
to other clients.

On SIGTERM or an interrupt it takes no more calls, tells subscribers to connect
again, lets appends finish and ends. A second signal ends it at once; nothing
that was acknowledged is lost by that, nor by a kill.`

// serveCommand returns the command ledger serve.
func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve a store to other commands and to EventStoreDB clients", Long: serveLong,
		Example: "  ledger serve\n  ledger serve --listen 127.0.0.1:0 -o json\n" +
			"  ledger serve --store esdb://db-1:2113 --listen-outputs :2114 --tls-cert node.pem --tls-key node.key --users users.txt\n" +
			"  ledger serve --listen :2113 --tls-cert node.pem --tls-key node.key --users users.txt\n" +
			"  ledger serve --writable shop-\n" +
			"  ledger serve user ada --role read >> users.txt",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	f.given = flags.Changed
	flags.StringVar(&f.listen, "listen", defaultListen, "the address of the protocol, HOST:PORT; port 0 takes a free one")
	flags.StringVar(&f.outputs, "listen-outputs", "", "the address of outputs, HOST:PORT (default: of the same host, the port that it had last, or a free one)")
	flags.StringVar(&f.cert, "tls-cert", "", "a file with the certificate, and those that lead to its authority")
	flags.StringVar(&f.key, "tls-key", "", "a file with the key of the certificate")
	flags.StringVar(&f.users, "users", "", "a file with users, a line each: NAME:BCRYPT:ROLES")
	flags.StringVar(&f.anonymous, "anonymous", "", "what everybody who reaches the address may do: read, write or ledger (default, without --users: only you may do anything)")
	flags.StringArrayVar(&f.writable, "writable", nil, "streams whose names begin so are open to other clients; may be given several times; \"\": all but the ledger's and those that begin with $")
	flags.StringVar(&f.publish, "publish", "", "a file that says what is published meanwhile, as ledger publish --config reads it")
	flags.DurationVar(&f.drain, "drain", defaultDrain, "how long calls that are under way may take when serving ends")
	flags.DurationVar(&f.pulse, "log-every", defaultPulse, "how often a line about the work is logged (0: never)")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	for _, name := range []string{"tls-cert", "tls-key", "users", "publish"} {
		must(cmd.MarkFlagFilename(name))
	}
	must(cmd.RegisterFlagCompletionFunc("anonymous", cobra.FixedCompletions([]string{"read", "write", "ledger"}, cobra.ShellCompDirectiveNoFileComp)))
	cmd.AddCommand(a.serveUserCommand())
	return cmd
}

// fitNode returns a usage fault if a flag is set that does not apply to a node of a
// ledger in a database.
func (f serveFlags) fitNode() error {
	for _, name := range []string{"listen", "writable"} {
		if f.given(name) {
			return fault.WithHint(fault.Usage("--%s is for a folder: --store names a database, which speaks for itself", name),
				"give --listen-outputs where this node's outputs are to be served")
		}
	}
	return nil
}

// config returns the configuration of the protocol server and whether it admits only
// the owner of the folder. Without --users and --anonymous it does: then it takes
// the users of id, and the certificate of id unless --tls-cert is given.
func (f serveFlags) config(id *shared.Identity) (cfg server.Config, owner bool, err error) {
	cfg = server.Config{Writable: f.writable, Connections: conns.New(conns.Config{})}
	if f.given("anonymous") {
		if cfg.Anonymous, err = auth.ParseRole(f.anonymous); err != nil {
			return cfg, false, fault.Usage("--anonymous: %w", err)
		}
	}
	if f.drain < 0 || f.pulse < 0 {
		return cfg, false, fault.Usage("--drain and --log-every are not below zero")
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return cfg, false, fault.WithHint(fmt.Errorf("--tls-cert, --tls-key: %w", err), "name the PEM files of a certificate and of its key")
		}
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	switch {
	case f.users != "":
		cfg.Users, err = readUsers(f.users)
	case !f.given("anonymous"):
		owner, cfg.Users = true, id.Users
		if cfg.TLS == nil {
			cfg.TLS = id.TLS
		}
	}
	return cfg, owner, err
}

// readUsers parses the users file at path name.
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

// listen opens the TCP address at if cfg is safe to serve there, and returns an
// error naming --flag otherwise. A server for the owner alone is safe only on
// loopback: its certificate and its password are readable only on this machine.
func listen(ctx context.Context, flag, at string, cfg server.Config, owner bool) (net.Listener, error) {
	resolved, err := net.ResolveTCPAddr("tcp", at)
	if err != nil {
		return nil, fault.Usage("--%s: %w", flag, err)
	}
	if owner { // Check then treats the server as one without users
		cfg.Users = nil
	}
	if err := cfg.Check(resolved); err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	var opening net.ListenConfig
	listener, err := opening.Listen(ctx, "tcp", at)
	if err != nil {
		return nil, fault.WithHint(fmt.Errorf("--%s: %w", flag, err), "give another address, or port 0 for a free one")
	}
	return listener, nil
}

// reached returns the address under which clients reach a listener. It replaces an
// unspecified IP address, such as 0.0.0.0, by name.
func reached(at net.Addr, name string) string {
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return at.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = name
	}
	return net.JoinHostPort(host, port)
}

// connection returns an EventStoreDB connection string for the address at, without
// credentials.
func connection(at string, cfg server.Config) string {
	u := url.URL{Scheme: "esdb", Host: at}
	if cfg.TLS == nil {
		u.RawQuery = "tls=false"
	}
	return u.String()
}

// serveUserCommand returns the command ledger serve user.
func (a *app) serveUserCommand() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use: "user NAME", Short: "Print the line of a user for --users; the password is read from the standard input",
		Example: "  ledger serve user ada --role read >> users.txt\n  echo \"$PASSWORD\" | ledger serve user ada --role ledger",
		Long: `Print the line of a user for --users. The password is read from the standard
input, up to the end of the line, and only its bcrypt hash is printed.

Roles: read follows the log; write also writes into the streams that are opened
and manages groups of consumers; ledger writes as ledger programs do.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.serveUser(args[0], role) },
	}
	cmd.Flags().StringVar(&role, "role", auth.Reader.String(), "read, write or ledger")
	must(cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"read", "write", "ledger"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// serveUser prints the line of a user for the users file. word is the name of the
// role.
func (a *app) serveUser(name, word string) error {
	role, err := auth.ParseRole(word)
	if err != nil {
		return fault.Usage("--role: %w", err)
	}
	password, err := a.password()
	if err != nil {
		return err
	}
	if password == "" {
		return fault.Usage("the password is empty: give it on the standard input")
	}
	line, err := auth.FormatUser(name, password, role)
	if err != nil {
		return fault.Usage("%w", err)
	}
	a.Line("%s", line)
	return nil
}

// password reads the first line of the input. On a terminal it prompts for it and
// turns the echo off.
func (a *app) password() (string, error) {
	if file, ok := a.in.(*os.File); ok && render.IsTerminal(file) {
		fmt.Fprint(a.Err, "Password: ")
		text, err := term.ReadPassword(int(file.Fd()))
		fmt.Fprintln(a.Err)
		return string(text), err
	}
	text, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimRight(text, "\r\n"), nil
}
