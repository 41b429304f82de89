// Package modelapi sends requests to model servers: attempts, stalls, limits and errors,
// which the providers share.
//
// A [Caller] belongs to one server. [Caller.Stream] makes attempts at one request until
// one of them yields a reply, as its [Policy] says. The provider makes one [Attempt] with
// the SDK of its server: it sends the request with the client of the attempt, and emits
// the parts of the reply. A [ReportedError] is an error that the server reports.
// [AcceptedSchema] turns the schema of a tool into one that model servers accept.
//
// # Promises
//
//   - A failed attempt is repeated only if the reply has no part yet and the failure may
//     pass. The parts of a repeated attempt are none but its runner.FailedAttemptPart.
//   - An attempt ends when its server sends no byte for the stall time of the policy. The
//     time for which the reader of the parts holds a part does not count.
//   - A response has at most [MaxResponse] bytes.
//   - A redirect is an error. No header of a request, such as a key, reaches another host.
//   - No part of a reply has a secret of the Caller: no text or thinking, also if the secret
//     is spread over parts, and no ID, name, input, stop reason or model. An input is
//     searched as it is written and with its strings decoded, but an input that is no
//     JSON, or a JSON string because it broke off, not for a secret that the model escaped
//     in JSON without need. An opaque item with a secret, or behind a text with one, is
//     left out, so that later requests do not have it.
//   - Text is passed on at once, except for its longest end that begins a secret.
//   - Every failure is a *runner.ProviderError with the status and the request ID of the
//     response, if there was one, and without a secret of the Caller.
//
// # Concurrency
//
// A Caller is safe for concurrent use. An Attempt belongs to the goroutine that runs it.
// The package starts no goroutine but a timer for each attempt, which ends with it.
//
// # Errors
//
// Stream yields a *runner.ProviderError, the *runner.IncompatibleError of an attempt, or
// the cause with which its context ended. A provider returns [ErrCut] for a stream without
// its end, [ErrProtocol] for one in an unknown form, and [ErrStopped] if the reader of the
// parts stopped.
//
// The formats of the servers are in packages runner/providers/anthropic and
// runner/providers/openai.
package modelapi
