// Package events says what happened to the tool calls of agents, and keeps it.
//
// An [Event] is one thing that happened, typed and in the past tense:
// [ToolsRegistered], [TurnMaterialized], [CallStarted], [CallSettled] and the
// others. A [Record] is an event as it is kept: bytes, with a kind and a
// version. A [Stream] is a sequence of records about one process, layer or
// session; its length is a [Revision]. All streams together have one order, in
// which a record stands at a [Position]. An [Entry] is a record in its place, an
// [Envelope] an event in its.
//
// Settings, context, commands, failed provider requests and the spawning call of a
// session are events too, of few and general kinds:
// [SettingChanged], [ContextAdded], [ContextCompacted], [CommandRan],
// [ProviderFailed] and [SessionSpawned].
//
// A [Store] keeps records. A [Ledger] is a Store with typed events, a mint of IDs
// and a clock. A [Draft] is an event with its ID and time fixed before it is
// appended, so that appending it again is the same. A [Writer] is the one
// appender of a stream in this process.
//
// A [Query] asks for some of the records, in either direction. A store that is a
// [Scanner] answers it where they lie; [Scan], [Lend], [Headers] and [Split] ask
// any store. A [Digest] is the same for stores with the same records.
//
// # Promises
//
//   - Every append names the length of the stream that it saw, and adds all of
//     its records or none.
//   - Appending the same records at the same place again changes nothing.
//   - An append either succeeded, or was [Refused] and added nothing, or has an
//     outcome that is open. A Writer repeats the last kind before it adds
//     anything else, and says [ErrNotTried] if it did not come to that.
//   - What was written is read by every later version: a kind keeps its name, and
//     an older version is turned into the present one as it is read.
//   - A kind or version that this program does not know is an [Unknown], with its
//     bytes as they are.
//   - What does not decode is an [ErrDamaged] that says where.
//
// # Concurrency
//
// Stores, Ledgers and Writers may be used by several goroutines. A Writer holds
// its lock while it appends. [Ledger.ScanAhead] starts goroutines, which end with
// its loop; nothing else in the package does.
//
// # Errors
//
// [ErrConflict], as a *[Conflict], [ErrBadRecord], [ErrTooLarge] and [ErrClosed]
// come from appending, and [ErrNotTried] from a Writer; [ErrInUse],
// [ErrNewerFormat] and [ErrNotAStore] from opening a store; [ErrDamaged] from
// reading, as a *[Damage] where the store says where one can go on; [ErrBadQuery] from a query that makes no sense;
// [ErrUnknownKind] from those who cannot do without what they do not know.
//
// Where bytes lie is the affair of a Store, such as that of package embedded.
// What a history means is that of the projections. The laws of a Store are in
// package eventstest; every kind of every version has a golden file under
// testdata/golden.
package events
