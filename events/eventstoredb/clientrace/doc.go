// Package clientrace excludes two data races of the official EventStoreDB
// client, and nothing else, from the reports of the race detector. Tests that
// use the client import it for this effect alone:
//
//	import _ "github.com/settlement-ledger/ledger/events/eventstoredb/clientrace"
//
// The races are in AppendToStream of the client's version 4.2.0, and no caller
// can prevent them:
//
//   - AppendToStream reads its header and trailer variables as soon as a send
//     fails. gRPC writes them when the call finishes, which happens on another
//     goroutine if the context ends, the deadline passes, or the connection is
//     closed. The client itself closes the connection, under all calls in flight,
//     when one of them is told that another node leads.
//   - A client that finds no node ends, and the calls that wait for it would wait
//     for ever. Closing it releases them: the close of its channel races with
//     their sends.
//
// Both are harmless here. In the first, the client finds a trailer or none, and
// the adapter takes an append that failed in this way for undecided in either
// case. In the second, the sends panic, which the adapter recovers and retries.
//
// The exclusion names the functions that write: gRPC's, which assigns the header
// and the trailer variables of a call, and the client's close. Races on any other
// memory, such as the records of an append, are reported as before.
//
// The race detector reads its settings before a program begins. In a program that
// was built with -race, the package therefore adds the exclusion to GORACE and
// executes the program again, unless GORACE names a file of suppressions already.
// Without -race, on systems without exec, and in programs built with -trimpath
// the package does nothing.
package clientrace
