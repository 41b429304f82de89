// Package clients tests the protocol server of package server with the official
// clients.
//
// It contains tests only. The Node clients of EventStoreDB and KurrentDB, pinned in
// the folder node, append, read, subscribe and consume. The test suites of both
// official Go clients run unmodified against ledger serve; a table in the test, and
// another in docs/eventstoredb.md, list the tests that do not pass, with the reason.
//
// The tests take minutes and need npm and fixed ports. They run if an environment
// variable of .ci/clients asks for them, and are skipped otherwise.
package clients
