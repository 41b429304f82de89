// Package openai asks the models of OpenAI and of compatible servers.
//
// A [Provider] sends each turn to one server, described by a [Config], in one of the two
// formats of the API: [ChatCompletions], which compatible servers speak too, or
// [Responses]. It uses the official SDK for requests and for the framing of streams.
//
// # Promises
//
//   - Every conversation that a log can have becomes a valid request. Each call is
//     answered once, directly behind its message in Chat Completions. A call whose ID the
//     API does not accept, or that an earlier message uses, has a digest in place of it;
//     a tool of the history whose name it does not accept has a changed name. Empty
//     prompts and replies are left out.
//   - The same turn is the same request, byte for byte, and PrepareRequest records its
//     parameters and tools as they are sent.
//   - A tool that the API does not accept is refused before a request is sent. Schemas are
//     sent as modelapi.AcceptedSchema returns them, never as strict ones: a strict schema
//     has no optional property.
//   - A turn with disabled tools forbids calls, and names the tools of its history.
//   - Finish reasons are recorded as the server spells them; for Responses the reason of an
//     incomplete response, and otherwise its status. A refusal is text.
//   - Arguments that broke off, because the model stopped early or the stream ended, are
//     passed on as a JSON string, even if they are JSON so far, so that no tool runs with
//     them. Other arguments without the key are passed on as they came.
//   - No part of a reply has the key, as package modelapi promises. If a text or a reasoning
//     item has it, the reasoning item does not go back to the server.
//   - A call without an ID gets one in Chat Completions, made of the ID of the reply and
//     the number of the call, because several compatible servers leave IDs out. In
//     Responses it is passed on without an ID, and two calls with one ID are passed on in
//     both formats; the runner refuses such replies.
//   - The server of Responses stores nothing. Encrypted reasoning goes back to the provider
//     and model that made it, in its place in the reply. If the server cannot read it, the
//     request is sent once more without it.
//   - Images and PDF files are sent as such: in a user message behind the results in Chat
//     Completions, where results are text, and in the output of the call in Responses.
//     Other media are named in the text.
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
package openai
