// Package mapping turns records into events of EventStoreDB and back.
//
// A [RawEvent] is an event as EventStoreDB's clients send and receive it: an ID, a
// type, data, custom metadata and the time at which a server made it. [FromRecord]
// gives the form of a record, and [RawEvent.Record] the record of a form.
//
// EventStoreDB has no place for the version and the time of a record. They
// stand in the custom metadata, as the member $ledger of a JSON object whose
// other members are the record's own metadata, so that its tools find
// $correlationId and $causationId where they look for them:
//
//	{"$ledger":{"v":1,"t":"2026-01-02T03:04:05.000006Z"},"$correlationId":"ses_…"}
//
// v is the version, t the time in UTC. Metadata that are not a JSON object, or
// have a member $ledger of their own, are in base64 as the member m of
// $ledger, which then stands alone. Empty metadata are an empty m.
//
// What others made is declared to be JSON or not. Where the data do not show what
// is declared, as the bytes 42 that are no JSON, the record's metadata say it in a
// $ledger with the member c alone, beside theirs:
//
//	{"$ledger":{"c":"application/octet-stream"},"by":"them"}
//
// [ForeignEvent] gives such a record back as it was made.
//
// # Promises
//
//   - A record whose time has a year from 0 to 9999 is restored from its form
//     field for field and bit for bit.
//   - A form without $ledger was made by others. Its record has version 1, the
//     time of the server, and the custom metadata as they are, with the content
//     type where that has to be said. Plain gives the form again.
//   - A form with a $ledger that Of did not write is an error, never another
//     record. An object that was formatted anew, or whose members were put in
//     another order, is read: its metadata have the same members.
//
// # Concurrency
//
// The package has no state. What it returns shares memory with what it is
// given where nothing had to be changed.
//
// # Errors
//
// [ErrUnmappable] comes from FromRecord for a record whose time cannot be written.
// RawEvent.Record returns events.ErrDamaged.
//
// What is sent when, and to whom, is left to the packages that speak to a
// server or are one. The promises are checked in form_test.go.
package mapping
