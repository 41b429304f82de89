// Package clients checks that the server of package server is to the official
// clients what a database is to them.
//
// It has tests alone. The Node clients of EventStoreDB and KurrentDB, which the
// folder node pins, append, read, subscribe and consume. The own tests of both Go
// clients run unmodified against ledger serve; which of them do not pass, and why,
// is a table of the test, and docs/eventstoredb.md has it too.
//
// The tests take minutes, npm and fixed ports, so they run where .ci/clients asks
// for them, by an environment variable, and are skipped with a message elsewhere.
package clients
