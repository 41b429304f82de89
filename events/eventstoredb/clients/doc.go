// Package clients checks that the server of package protocol is to the official
// clients what a database is to them.
//
// It has tests alone. The Node clients of EventStoreDB and KurrentDB, which the
// folder node pins, append, read, subscribe and consume. The Go client's own
// tests run unmodified against ledger serve; which of them do not pass, and why,
// is a table of the test, and docs/eventstoredb.md has it too.
//
// Node and npm are looked for, and so is what .ci/clients sets: where they are
// missing a test says so and is skipped.
package clients
