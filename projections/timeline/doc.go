// Package timeline reads one session in the order of its stream, with everything about
// a call in one place.
//
// An [Entry] is an event of the session. The entry of a reply, or of a CallsAdded, has
// its calls: for each a [Call] with the request of the model, its starts, permission
// requests and questions with their decisions, its settlement, and late results. The
// events that a Call has are not entries of their own. All other events are: prompts,
// turns, recorded texts, failed requests, interruptions, settings, unknown kinds.
//
// [Read] reads a session from a store, and a [Builder] takes the events of one stream
// from elsewhere.
//
// # Promises
//
//   - Each event of the stream is in exactly one entry: as the Event of the entry, or in
//     one of its calls. Entries have the order of their own events.
//   - An entry with calls is yielded when all of them are settled, so memory holds the
//     calls that are open and the entries behind them: at most maxHeld entries and
//     maxHeldBytes bytes of text. Beyond these limits the oldest entry is yielded as it
//     is, and a later event about its calls becomes an entry of its own.
//   - At the end of the stream, entries with open calls are yielded as they are.
//   - A second event that asks for the same call, and an event about a call that nothing
//     on record asks for, is an entry of its own.
//
// # Concurrency
//
// A Builder belongs to one goroutine. The package starts no goroutine and holds no lock.
//
// # Errors
//
// Read yields the errors of the store, such as events.ErrDamaged. There are no others.
//
// Package conversation folds a session into the messages that its model reads, and
// package calls folds all sessions into counts and states.
package timeline
