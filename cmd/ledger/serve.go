package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/publishing"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/serve"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// The defaults of the flags of ledger serve.
const (
	defaultListen      = "127.0.0.1:2113" // loopback only, on EventStoreDB's port
	defaultDrain       = 10 * time.Second // for the requests under way when serving ends
	defaultLogInterval = 10 * time.Second // between two log lines about the work
)

const serveLong = `serve opens the store of a folder and serves it in EventStoreDB's protocol: every
client of EventStoreDB and KurrentDB can read and follow the log. Other ledger
commands work on the folder meanwhile: they find the server through the folder, or
from anywhere by the printed connection string. Stored outputs are served by HTTP at
an address of their own.

Before it serves, it settles the open calls of dead processes, as run and resume do.

If --store is a connection string, the database serves the log, and serve serves
only this machine's node: the outputs stored on this machine, to other nodes, by
HTTP. Other commands of this machine with the same connection string store their
outputs through it. --listen and --writable are not allowed then.

The log records the address at which other nodes find the outputs: the served one,
or LEDGER_NODE_ADDRESS.

By default only you can use it: it requires TLS with its own certificate and a
password, both new at each start. They are in the folder, in files that only you can
read: serving.url is a connection string for any client, and serving.pem is the
certificate. Commands that are given the folder need neither.

--anonymous grants a role to every user of this machine, without password and TLS. --users names a
file of users; an address that other machines can reach requires it, and --tls-cert
and --tls-key. Only ledger programs write to the ledger's own streams; --writable
opens other streams, by a prefix of their names, to other clients.

On SIGTERM or an interrupt it refuses new calls, tells subscribers to reconnect,
completes running appends and ends. A second signal ends it at once; no
acknowledged append is lost, not even by a kill.`

// serveCommand returns the command `ledger serve`.
func (a *app) serveCommand() *cobra.Command {
	var o serve.Options
	var publishFile string
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve a store to other commands and to EventStoreDB clients", Long: serveLong,
		Example: "  ledger serve\n  ledger serve --listen 127.0.0.1:0 -o json\n" +
			"  ledger serve --store esdb://db-1:2113 --listen-outputs :2114 --tls-cert node.pem --tls-key node.key --users users.txt\n" +
			"  ledger serve --listen :2113 --tls-cert node.pem --tls-key node.key --users users.txt\n" +
			"  ledger serve --writable shop-\n" +
			"  ledger serve user ada --role read >> users.txt",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), o, publishFile) },
	}
	flags := cmd.Flags()
	o.Changed = flags.Changed
	flags.StringVar(&o.Listen, "listen", defaultListen, "the address of the protocol, HOST:PORT; port 0 chooses a free port")
	flags.StringVar(&o.ListenOutputs, "listen-outputs", "", "the address of outputs, HOST:PORT (default: the same host, and the last port or a free one)")
	flags.StringVar(&o.CertFile, "tls-cert", "", "a file with the certificate and its chain")
	flags.StringVar(&o.KeyFile, "tls-key", "", "a file with the private key of the certificate")
	flags.StringVar(&o.UsersFile, "users", "", "a file of users, one line each: NAME:BCRYPT:ROLES")
	flags.StringVar(&o.Anonymous, "anonymous", "", "role of callers without a user: read, write or ledger (default, without --users: only you have access)")
	flags.StringArrayVar(&o.Writable, "writable", nil, "open the streams with this name prefix to other clients; may be repeated; \"\": all streams except the ledger's and the server's ($)")
	flags.StringVar(&publishFile, "publish", "", "a configuration file of consumers to run, as for ledger publish --config")
	flags.DurationVar(&o.Drain, "drain", defaultDrain, "timeout of running calls when serving ends")
	flags.DurationVar(&o.LogInterval, "log-every", defaultLogInterval, "interval of the log line with statistics (0: never)")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	for _, name := range []string{"tls-cert", "tls-key", "users", "publish"} {
		must(cmd.MarkFlagFilename(name))
	}
	must(cmd.RegisterFlagCompletionFunc("anonymous", cobra.FixedCompletions([]string{"read", "write", "ledger"}, cobra.ShellCompDirectiveNoFileComp)))
	cmd.AddCommand(a.serveUserCommand())
	return cmd
}

// serve serves the store with the options o until ctx ends. If publishFile is not empty,
// it also runs the publishing jobs of that file.
func (a *app) serve(ctx context.Context, o serve.Options, publishFile string) (err error) {
	c := serve.Config{Printer: a.Printer, Opener: a.Opener, Options: o, Version: version(), Targets: publishing.OpenTarget, Recover: a.recoverServed}
	if publishFile != "" {
		if c.Jobs, err = publishing.ReadConfig(publishFile, a.Env); err != nil {
			return err
		}
	}
	return serve.Run(ctx, c)
}

// recoverServed recovers the work of dead processes in a store that this process serves.
// It returns the numbers of ended processes, layers and sessions and of removed outputs,
// as arguments of slog. It does not close the store.
func (a *app) recoverServed(ctx context.Context, s *stores.Store) ([]any, error) {
	p, err := a.launcher().Start(ctx, s.Borrowed())
	if err != nil {
		return nil, err
	}
	r := p.Recovery
	return []any{"processes", len(r.Processes), "layers", len(r.Layers), "sessions", len(r.Sessions), "left", len(r.Left), "outputs", r.Outputs}, p.Process.Close(ctx)
}

// serveUserCommand returns the command `ledger serve user`.
func (a *app) serveUserCommand() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use: "user NAME", Short: "Print a user's line for --users; reads the password from the standard input",
		Example: "  ledger serve user ada --role read >> users.txt\n  echo \"$PASSWORD\" | ledger serve user ada --role ledger",
		Long: `Print the line of a user for the file of --users. The command reads the password
from the standard input, up to the end of the line, and prints its bcrypt hash.

Roles: read reads and follows the log; write also appends to the streams opened by
--writable and manages consumer groups; ledger appends as ledger programs do.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.serveUser(args[0], role) },
	}
	cmd.Flags().StringVar(&role, "role", auth.Reader.String(), "read, write or ledger")
	must(cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"read", "write", "ledger"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// serveUser prints the line that adds the user name to the users file. word is the name
// of the user's role.
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

// password reads a password: the first line of the input. On a terminal it prints a
// prompt and turns the echo off.
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
