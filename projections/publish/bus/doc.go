// Package bus is a message broker over a store, for programs without a broker.
//
// A [Bus] has any number of [Publisher] and [Subscriber] values, which implement the
// interfaces of the same names in the watermill library. A topic is the stream
// topic-NAME. A message is a record of the kind MessagePublished: its data are the
// payload if that is JSON, and otherwise a string with the payload in base64; its
// metadata are
//
//	{"uuid":"…","headers":{…},"encoding":"base64"}
//
// with headers if the message has metadata, and encoding if the data are
// base64.
//
// The subscribers of a group share the messages of a topic, and each group receives
// all messages, also those published before the group existed. The offset of a group,
// a revision, is the checkpoint bus/GROUP/TOPIC. The stream deadletter-GROUP/TOPIC
// lists the dead letters of a group, each a [DeadLetterMessage] with the reason and
// any later redelivery. The message itself stays in its topic.
//
// # Promises
//
//   - The messages of one call of Publish are durable when it returns. They are
//     appended together, in order, or not at all.
//   - A group receives the messages of a topic in order, one at a time: each message
//     after a subscriber acknowledged the previous message.
//   - A refused message (Nack), or one whose subscription ended, is redelivered
//     at once, and after further refusals with exponential backoff. Later
//     messages wait for it.
//   - A subscriber that does not receive or does not answer blocks no other: a
//     message goes to any subscription of its group that receives, and after
//     AckWait to a second one as well. The first acknowledgement counts.
//   - A message becomes a [DeadLetterMessage] of its group, durably, after the number of
//     refusals or timeouts that [Redelivery] sets, or if it is damaged. The
//     next message follows. [Bus.DeadLetters] lists dead letters with their
//     reasons, and [Bus.Release] redelivers them.
//   - A message arrives with the UUID, payload and metadata with which it was
//     published.
//
// An acknowledgement survives a kill. A power cut can lose the last acknowledgements,
// and their messages are redelivered. Refusals are counted in memory, since the first
// delivery of the process.
//
// # Concurrency
//
// All types are safe for concurrent use. Each subscription has a goroutine that ends
// with the context of the subscription; Close of the Subscriber joins the goroutine.
// The goroutine of one subscription in a group dispatches to all of them. Only one
// Bus at a time may serve a group: two would each deliver every message. The lock of
// a topic is held during an append.
//
// # Errors
//
// [ErrBadTopic], [ErrBadGroup] and [ErrBadMessage] are mistakes of the caller.
// [ErrClosed] comes from a closed Publisher or Subscriber. Other errors come from the
// store. An error that ends a subscription closes its channel and is passed to
// Config.Failed.
//
// The meaning of messages is left to their publishers and subscribers. The
// promises are checked in bus_test.go, with watermill's suite for a Pub/Sub, and
// in redelivery_test.go.
package bus
