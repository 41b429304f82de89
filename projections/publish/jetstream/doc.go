// Package jetstream publishes records to a JetStream stream of a NATS server.
//
// NATS is a message broker, and JetStream its part that stores messages. [Open]
// connects to the server of a URL, finds or creates the JetStream stream that stores
// the subjects of a topic, and returns a [Publisher], which implements watermill's
// interface of that name. The topic of a record is the subject of its message. The
// UUID is also the header Nats-Msg-Id, by which the server drops repeated messages
// within the deduplication window. In a stream that Open creates, this window is ten
// minutes. The headers are those of watermill's NATS marshaler, which can read such
// messages. A URL is
//
//	nats://[USER[:PASSWORD]@ | TOKEN@]HOST[:PORT][?creds=FILE][&ca=FILE][&stream=NAME]
//	tls://…
//
// A header cannot carry a value with line ends or surrounding space. Such a
// value is sent under its key followed by an asterisk, encoded as in RFC 8187:
//
//	KEY*: UTF-8''PERCENT%2DENCODED%20VALUE
//
// # Promises
//
//   - Publish returns nil once the stream has acknowledged the message.
//   - While the server is unavailable, Publish returns an error at once or within
//     seconds, and the Publisher reconnects by itself.
//   - Every topic is a subject that can be published to, and not a pattern.
//   - Errors contain no credentials.
//
// The durability of an acknowledged message depends on the server: a server with
// sync_interval: always loses no message in a power cut.
//
// # Concurrency
//
// A Publisher is safe for concurrent use. The NATS client starts goroutines, which
// Close ends.
//
// # Errors
//
// Open returns [ErrBadURL], [ErrRefused], [ErrNoJetStream] or [ErrStream], a
// publish.ErrUnavailable if there is no server, and a publish.ErrBadTopic for a
// topic that cannot be a subject. Publish returns a publish.ErrUnavailable if the
// server or stream does not answer or has no room, a publish.ErrUnacceptable for an
// invalid message, or one whose size, headers or subject exceed a limit, and
// otherwise the error of the server.
//
// Package publish decides which records are published and when. The promises are
// checked in jetstream_test.go and kill_test.go, with a server that restarts and
// publishers that are killed.
package jetstream
