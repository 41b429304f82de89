// Package mapping converts records to events of EventStoreDB and back.
//
// A [RawEvent] is an event as clients of EventStoreDB send and receive it: an ID, a
// type, data, custom metadata, a content type and the time at which a server stored
// it. [FromRecord] converts a record, and [RawEvent.Record] an event.
//
// EventStoreDB has no fields for the version and the time of a record. The custom
// metadata contain them as the member $ledger of a JSON object, with the metadata of
// the record as the other members, so that the tools of EventStoreDB find
// $correlationId and $causationId:
//
//	{"$ledger":{"v":1,"t":"2026-01-02T03:04:05.000006Z"},"$correlationId":"ses_…"}
//
// v is the version and t the time in UTC. Metadata of a record that are not a JSON
// object, or that have a member $ledger themselves, become the base64 text m in
// $ledger, which is then the only member. For empty metadata, m is the empty text.
//
// Other programs declare the content type of their events as JSON or as octets. The
// declared type can differ from the content, for example octets for the bytes 42, which
// are valid JSON. The metadata of the record then have a $ledger whose member c is the
// declared type:
//
//	{"$ledger":{"c":"application/octet-stream"},"by":"them"}
//
// [ForeignEvent] converts such a record back to the original event.
//
// # Promises
//
//   - FromRecord and Record restore every record with a year from 0 to 9999 exactly.
//   - An event without $ledger comes from another program. Its record has version 1,
//     the time of the server, and the custom metadata, to which Record adds only the
//     member c if it is needed. ForeignEvent restores the event.
//   - For an event with an invalid $ledger Record returns an error, never another
//     record. It accepts white space and members in another order than FromRecord
//     writes them.
//
// # Concurrency
//
// The package has no state. Results share memory with the arguments wherever the bytes
// are unchanged.
//
// # Errors
//
// FromRecord returns [ErrUnmappable] for a record whose time it cannot write.
// RawEvent.Record returns events.ErrDamaged.
//
// The package leaves requests and responses to the clients and servers that use it.
// The promises are checked in mapping_test.go.
package mapping
