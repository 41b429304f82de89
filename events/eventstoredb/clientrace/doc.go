// Package clientrace excludes two data races of the official EventStoreDB
// client from the reports of the race detector, and no other race. Tests that
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
//     when a node reports to one of them that another node is the leader.
//   - A client that finds no node ends, and the calls that wait for it would wait
//     forever. Closing it releases them: the close of its channel races with
//     their sends.
//
// Both are harmless here. In the first, the client may or may not find a trailer;
// package eventstoredb treats the result of such an append as unknown in either
// case. In the second, the sends panic, and package eventstoredb recovers the
// panic and repeats the call.
//
// The exclusion names the functions that write: gRPC's, which assigns the header
// and the trailer variables of a call, and the client's close. Races on any other
// memory, such as the records of an append, are reported as before.
//
// The race detector reads its settings before a program begins. In a program that
// was built with -race, the package therefore adds the exclusion to GORACE and
// executes the program again, unless GORACE names a file of suppressions already.
// Without -race, on systems without exec, and in programs built with -trimpath
// the package has no effect.
package clientrace
