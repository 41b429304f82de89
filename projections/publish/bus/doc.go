// Package bus makes a store a broker of messages, for programs without one.
//
// A [Bus] has any number of a [Publisher] and a [Subscriber], which are those of
// watermill. A topic is the stream topic-NAME. A message is a record of the kind
// MessagePublished: its data are the payload where that is JSON, and else the
// payload in base64 as a string; its metadata are
//
//	{"uuid":"…","headers":{…},"encoding":"base64"}
//
// with headers where the message has metadata, and encoding where the data are in
// base64. Subscribers share the messages of a topic with those of the same group,
// and each group gets all of them, also those that were there before it. How far
// a group has come is kept beside the store as bus/GROUP/TOPIC, a revision. Its
// dead letters are listed in the stream deadletter-GROUP/TOPIC: which message, why,
// and what became of it. The message stays in its topic.
//
// # Promises
//
//   - A message is durable when Publish returns, and those of one call are there
//     together, in order, or not at all.
//   - A group gets the messages of a topic in order, one after the other: the
//     next once the one before was acknowledged, by whichever subscriber.
//   - A message that is refused (Nack), or whose subscription ended, comes again at
//     once, and after further refusals after growing waits, first of all.
//   - A subscriber that does not receive, or does not answer, holds up nobody: a
//     message goes to whichever subscription of its group receives, and after
//     AckWait to another one as well. The first acknowledgement counts.
//   - A message that is refused, or not answered, as often as the [Redelivery] says,
//     or that is damaged, becomes a [DeadLetter] of its group, durably, and the
//     next one follows. [Bus.DeadLetters] lists them with their reasons, and
//     [Bus.Release] has them handed over again.
//   - A message comes with the UUID, the payload and the metadata that it was
//     published with.
//
// An acknowledgement survives a kill; a power cut may take back the last ones,
// and their messages come again. How often a message was refused is counted in
// memory, from the first delivery of a process.
//
// # Concurrency
//
// All types may be used by several goroutines. Each subscription has a goroutine,
// which ends with its context and which Close of the Subscriber joins. One of
// those of a group dispatches to all its subscriptions. A group is
// served by one Bus at a time; two of them would each give it all messages. The
// lock of a topic is held while it is appended to.
//
// # Errors
//
// [ErrBadTopic], [ErrBadGroup] and [ErrBadMessage] are mistakes of the caller,
// and [ErrClosed] comes from an end that is closed. Others are those of the
// store. One that ends a subscription closes its channel, and is told to Failed.
//
// What messages mean is the affair of those who exchange them. The promises are
// checked in bus_test.go and redelivery_test.go, with the suite that watermill has for all its Pub/Subs.
package bus
