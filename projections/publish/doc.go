// Package publish copies the records of a store to other programs.
//
// A [Relay] reads the log and publishes each record as a message to a [Target], any
// Publisher of the watermill library. A [Job] has a name, a [Topic], a [Filter]
// that selects records, a [Start] and a [Policy].
// [Relay.CatchUp] publishes the records on hand, [Relay.Follow] also the ones
// that arrive later, and [Relay.FollowAll] runs every [JobConfig] of a
// configuration.
//
// The Relay saves a [ConsumerState] for each job in a [ConsumerStore] next to the
// store: the position that it has reached, and its [DeadLetter] list, the
// records that the target refused. [Relay.Retry] publishes dead letters again, and
// [Relay.Lag] counts the records after the position. A [Locker], such as a
// [FileLocker], lets one run at a time use a consumer.
//
// A message is an unchanged record: its UUID is the event ID, its payload the
// data, byte for byte. Its metadata has the keys of the Key constants.
//
// # Promises
//
//   - The target acknowledges every record that the filter selects, or the
//     record is listed as a dead letter. Only then does the position of the
//     consumer move past it.
//   - A record is published once it is durable in the store.
//   - The records of one stream are published in order: the next one after the
//     one before was acknowledged or became a dead letter. A retried dead letter
//     arrives late.
//   - After any end of a run, the next run publishes again the records after the
//     checkpoint, in the same order and with the same UUIDs.
//   - One run at a time uses a consumer, among all relays with the same Locker.
//   - A consumer keeps the position at which it began, also after a power cut.
//   - No more records and bytes are in flight than the policy allows.
//   - A [Batcher] receives the records that arrived while it was busy as one
//     batch.
//   - An unavailable target loses no record: the relay retries.
//   - Records of unknown kinds are published like all others.
//   - Saved consumers and errors contain no credentials.
//
// The checkpoints of an embedded store survive a kill. A power cut can restore
// an older checkpoint, and the records after it are published again.
//
// # Concurrency
//
// A Relay is safe for concurrent use. A run blocks and joins its goroutines
// before it returns: one for each worker, one that saves and one that retries
// dead letters. The workers call the Target concurrently, for different
// streams; it must not keep or change a payload. A Target that blocks holds up
// the run.
//
// The Relay holds no mutex while it calls the Target or a callback. One mutex of a run
// orders the saves of its consumer and is held during a save; another guards the
// consumer in memory. The first is locked before the second. A run holds the Locker's
// lock of its consumer to its end. While it does, it may acquire two more locks for
// milliseconds: that of the list of consumers and that of retry requests.
//
// # Errors
//
// A Target wraps [ErrUnavailable] if it may recover, and [ErrUnacceptable] if it
// will never accept the record. Any other error, and a panic, counts as an
// attempt. [ErrBadName], [ErrBadTopic] and [ErrBadConfig] are mistakes of the
// caller. [ErrNoConsumer], [ErrRunning], [ErrDifferentJob] and [ErrDamaged]
// concern the saved consumer, [ErrLocked] its lock. [ErrTooManyDeadLetters] ends
// a run whose target refuses so many records that the target is at fault.
//
// Package jetstream publishes to NATS and package jsonl to a file; package bus
// is a broker over a store. Access control is left to the target. The promises
// are checked in publish_test.go and lock_test.go.
package publish
