// Package comparison finds the differences of two sessions.
//
// [Compare] reads the entries of two timelines and yields each [Difference] with its
// [Class]: a prompt, a reply, a call, an input, an outcome, an output, an offer, a model, a
// count of tokens, or another event. A [Summary] has the counts of both sessions, their
// times, and the number of steps at the beginning that are the same.
//
// The unit of the comparison is a step: a prompt, a reply with the offer of its turn and
// its calls, or another event that changes what follows, such as a compaction. Steps are
// aligned by their kind and content, and the calls of two aligned replies by their tool
// and input. IDs, times and durations are never compared, so a session and its replay are
// equal if the same happened in both.
//
// # The alignment
//
// While the next steps of both sessions have equal content, they are pairs. Otherwise the
// next [Window] steps of each are aligned with the greatest sum of similarities, in order,
// by dynamic programming. The pairs before the last pair of equal content are final; the
// steps behind it are aligned again together with the steps that follow. Without such a
// pair the whole window is final. The time is proportional to the number of steps times
// Window, and memory to Window steps. The calls of a reply are aligned in the same way, up
// to Window of them; further ones are pairs by their number.
//
// # Promises
//
//   - A session has no difference from itself.
//   - Each difference is yielded once, in the order of the sessions. Exchanging the sessions
//     exchanges added and removed.
//   - An input is compared as a JSON value, and each place at which it differs is a
//     difference of its own, up to [MaxPlaces] for each call. An input that is not JSON is
//     compared as a text.
//   - The result of a call is compared as the model reads it, and its outputs outside the
//     log by their digests. References to these outputs are not compared, as they contain
//     IDs.
//   - Offers are compared by the names of tools and the fingerprints of their definitions. An
//     import does not record offers: its offers are not compared, and the Summary says so.
//   - An event of an unknown kind or version is compared by its kind, version and data.
//
// # Concurrency
//
// Compare works on the goroutine of its caller and starts none.
//
// # Errors
//
// Compare returns the first error of a timeline, unchanged. There are no others.
//
// Package timeline reads the entries. The laws are in comparison_test.go.
package comparison
