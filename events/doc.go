// Package events defines the recorded facts about tool calls and the store that
// keeps them.
//
// An [Event] is one fact, typed and in the past tense: [ToolsRegistered],
// [TurnMaterialized], [CallStarted], [CallSettled] and others. A [Record] is an
// event as stored: JSON bytes with a kind and a version. A [Stream] is the
// sequence of records about one process, layer or session; its length is its
// [Revision]. All streams of a store share one order, in which each record has a
// [Position]. An [Entry] is a record with its stream, revision and position; an
// [Envelope] is an event with the same.
//
// A [Store] stores records. A [Ledger] is a Store with typed events, a mint of
// IDs and a clock. A [Draft] is an event whose ID and time are fixed before it is
// appended, so that a retried append is the same append. A [Writer] owns the
// revision of one stream, retries an append whose outcome is unknown, and is the
// only appender of the stream in this process.
//
// A [Query] selects records, forward or backward. A store that implements
// [Scanner] answers it efficiently; [Scan], [Lend], [Headers] and [Split] work on
// every store. A [Digest] is a hash of a sequence of entries.
//
// # Kinds
//
// The table in kinds.go names the struct of each kind. go generate reads the
// table and the structs, and writes codec_events.go: the methods of the structs,
// and code that encodes and decodes their JSON faster than encoding/json, with the
// same bytes and values. It leaves times, pointers, maps and media to
// encoding/json.
//
// To add a kind:
//
//  1. Declare a struct in the past tense. Tag each field with its JSON key, and an
//     optional field with omitempty or omitzero too. Tag a string that repeats in
//     a log, such as the name of a tool, with codec:"intern".
//  2. Add a line to the table.
//  3. Run go generate ./events.
//  4. Add an event with all fields to sampleEvents in golden_test.go, and run
//     go test ./events -run TestEveryKindIsWrittenAsItsGoldenFile -update, which
//     writes its golden file. The other tests of the codec find the kind in the
//     table.
//
// A kind never changes its name or the meaning of a key. An optional key may be
// added to a kind, with a golden file of its own; any other change needs a new
// version with an upcast in the line of the table. A line of a kind that leaves out
// fields which repeat others names the struct of its encoded form too.
//
// # Promises
//
//   - Every append names the stream length that the caller saw. It adds all of its
//     records or no record.
//   - A second append of the same records at the same revision succeeds and adds no
//     record.
//   - An append succeeded, was [Refused] and added no record, or has an unknown
//     outcome. A Writer retries an append of unknown outcome before any other,
//     and returns [ErrNotTried] for drafts that it did not append.
//   - Every later version of this package reads today's records: a kind keeps
//     its name, and upcasts convert older versions while reading.
//   - A record of a kind or version that this program does not know decodes to
//     an [Unknown] with its bytes unchanged.
//   - A record that does not decode is an [ErrDamaged] with its stream, revision
//     and position.
//
// # Concurrency
//
// Stores, Ledgers and Writers are safe for concurrent use. A Writer holds its
// lock during an append. [Ledger.ScanAhead] starts goroutines and joins them
// before its loop ends; no other function starts any.
//
// # Errors
//
// Append returns [ErrConflict], as a *[Conflict], [ErrBadRecord], [ErrTooLarge]
// or [ErrClosed], and a Writer also [ErrNotTried]. Opening a store returns
// [ErrInUse], [ErrNewerFormat] or [ErrNotAStore]. Reading returns [ErrDamaged],
// as a *[DamagedRecord] if the caller can go on behind it, and [ErrBadQuery] for
// an invalid filter. Readers that need every event return [ErrUnknownKind].
//
// Packages embedded and eventstoredb implement Store; projections interpret
// events. The laws of a Store are in package eventstest, and every version of
// every kind has a golden file under testdata/golden.
package events
