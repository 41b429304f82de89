// Package publish hands the records of a store to other programs.
//
// A [Relay] publishes to any Publisher of watermill. A [Job] says what goes under
// which name: a [Topic], an [Filter] that narrows the records, a [Start] and a
// [Policy]. [Relay.CatchUp] publishes what there is, [Relay.Follow] also what
// comes, and [Relay.FollowAll] does so for each [JobConfig] of a configuration.
// Beside the store, in what is [ConsumerStore], the Relay has under the name of each job a
// [Consumer]: how far it has come, and each record that it set aside, as a
// [Poison]. A [Lag] is what it has before it. [Locker], such as a [FileLocker],
// see to it that one run at a time has a name.
//
// A message is a record as written. Its UUID is the ID of the event, its payload
// the data, byte for byte, and its metadata are the Key constants: stream,
// revision, position, kind, version and time; session, agent and tool where
// there is one; and the metadata document.
//
// # Promises
//
//   - Every record that a job asks for is acknowledged by the publisher or is
//     listed as poison; the position of a consumer is behind it only then.
//   - What is handed over is durable in the store.
//   - Records of one stream are handed over in their order, each once the one
//     before was acknowledged or set aside. What is set aside and tried again
//     later comes late.
//   - Whatever ends a run, the next one hands over again what the checkpoint did
//     not have, as messages with the same UUIDs, in the same order.
//   - A consumer is run by one at a time, among all desks with the same claims;
//     what others ask of it meanwhile is refused or reaches it.
//   - A consumer that is there stays where it began, also after a power cut.
//   - No more is read than the policy has in flight.
//   - A [Batcher] is given what has arrived while it was busy as one batch.
//   - A target that is not available costs no record: it is waited for.
//   - A kind of record that this program does not know is published like others.
//   - What is kept and what is onError has no credentials in it.
//
// The checkpoints of an embedded store survive a kill. A power cut may bring back
// an older one, and what it did not have is published again.
//
// # Concurrency
//
// A Relay may be used by several goroutines. A run blocks, and uses goroutines
// that it joins before it returns: one for each queue, and two for the
// checkpoint and for what is tried again. The publisher is called by several of
// them at once, for different streams, and must not keep or change a payload.
// A publisher that does not return holds the run up. No lock of a Relay is lock
// while anything else is called. The lock that configs checkpoints, of a run, is
// taken before that of its state. Whoever changes a consumer has claimed its
// name; the names of the list and of what is asked are claimed for moments, with
// that of a consumer taken or none.
//
// # Errors
//
// A publisher says with [ErrUnavailable] that the target may come back, and with
// [ErrUnacceptable] that it will never take the record; any other error, and a
// panic, may be either, and counts against the record. [ErrBadName],
// [ErrBadTopic] and [ErrBadConfig] are mistakes of the caller; [ErrNoConsumer],
// [ErrRunning], [ErrDifferentJob] and [ErrDamaged] are about what is kept under a name,
// and [ErrLocked] about who has it;
// [ErrTooManyDeadLetters] ends a run when so much was set aside that the target is at
// fault.
//
// Package jetstream publishes to NATS, package jsonl to a file, and package bus
// makes a store a broker. Who may reach the target is the target's affair. The
// promises are checked in publish_test.go.
package publish
