// Package anthropic asks the models of Anthropic, and of servers that speak the same
// Messages API.
//
// A [Provider] sends each turn to one server, described by a [Config], as a streamed
// request of the Messages API. It uses the official SDK for requests and for the framing
// of streams. The source of the format is the public API reference of the Messages API.
//
// # Promises
//
//   - Every conversation that a log can have becomes a valid request: users and assistant
//     alternate, each call is answered once, and the results of a reply are the first
//     blocks of the next message, and the last message is of the user. A call whose ID the API does not accept, or that an
//     earlier message uses, has a digest in place of it; a tool of the history whose name
//     it does not accept has a changed name. Empty texts and replies are left out.
//   - The same turn is the same request, byte for byte, and PrepareRequest records its
//     parameters and tools as they are sent.
//   - A tool or a temperature that the API does not accept is refused before a request is
//     sent. Schemas are sent as modelapi.AcceptedSchema returns them.
//   - A turn with disabled tools forbids calls, and names the tools of its history.
//   - Stop reasons are recorded as the server spells them. A refusal is a reply with its
//     stop reason.
//   - An input that broke off, because the model stopped early or the stream ended, is
//     passed on as a JSON string, even if it is JSON so far, so that no tool runs with it.
//     Other inputs without the key are passed on as they came.
//   - No part of a reply has the key, as package modelapi promises. Thinking with the key,
//     or behind a text with it, does not go back to the server.
//   - Signed thinking goes back to the provider and model that made it, in its place in the
//     reply, if the model thinks. A reply that another model began goes on without
//     thinking if the model takes a budget for it.
//   - Images and PDF files are sent as such in the result of their call. Other media are
//     named in the text.
//   - At most four blocks ask the server to cache the request up to them: the system
//     prompt, the tools and the last two messages of the user.
//   - No environment variable changes a request.
//
// # Concurrency
//
// A Provider is safe for concurrent use. The package starts no goroutine.
//
// # Errors
//
// [New] returns [ErrNoKey] and [ErrBadServer]. Reply yields a *runner.ProviderError, a
// *runner.IncompatibleError, or the cause with which its context ended; PrepareRequest
// returns a *runner.IncompatibleError.
//
// Package modelapi repeats requests and bounds responses. The tests ask the servers of
// package providerstest.
package anthropic
