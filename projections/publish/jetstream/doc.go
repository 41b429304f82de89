// Package jetstream publishes records to a JetStream of a NATS server.
//
// [Open] connects to the server of a URL, finds the stream that keeps the
// subjects of a topic or makes it, and returns a [Publisher], which is one of
// watermill. The topic of a record is the subject; its UUID is the header
// Nats-Msg-Id as well, by which the server drops what is repeated within the
// dedupWindow of the stream. The headers are those of watermill's own marshaler for
// NATS, which reads them.
//
//	nats://[USER[:PASSWORD]@ | TOKEN@]HOST[:PORT][?creds=FILE][&ca=FILE][&stream=NAME]
//	tls://…
//
// A value that a header cannot carry as it is, as it has an end of a line or
// space around it, is under its key and an asterisk, as UTF-8” and the value
// with what is special in it as in a URL (RFC 8187).
//
// # Promises
//
//   - Publish returns without an error once the stream has the message.
//   - While the server is away, Publish says so at once or in a few seconds, and
//     the connection comes back by itself, whatever ended it.
//   - What a topic can be is a subject that may be published to, and no pattern.
//   - No error has credentials in it.
//
// What the server has and a power cut takes back is its affair: a stream of a
// server that syncs always loses nothing.
//
// # Concurrency
//
// A Publisher may be used by several goroutines. The client of NATS has
// goroutines of its own, which Close ends.
//
// # Errors
//
// [ErrBadURL], [ErrRefused], [ErrNoJetStream] and [ErrStream] come from Open, as
// does publish.ErrUnavailable where nobody answers. Publish returns a
// publish.ErrUnavailable where the server or the stream does not answer or has no
// room, a publish.ErrUnacceptable for a message that is too large, with its headers or
// without, or not valid, or whose subject is too long, and else what the server
// says. A topic that can be no subject is a publish.ErrBadTopic.
//
// When to publish what is the affair of package publish. The promises are
// checked in jetstream_test.go, with a server that is stopped and programs that
// are killed.
package jetstream
