// Package providerstest has servers on the loopback interface that speak the wire formats
// of model providers, for tests and for the demo.
//
// A [ModelServer] speaks the Messages API of Anthropic, or Chat Completions and Responses
// of OpenAI. The caller decides each response: a stream of events, an error, a cut or held
// connection. [AnthropicStream] writes an [AnthropicReply] as the events of a stream, and
// [OpenAIChatStream] and [OpenAIResponsesStream] write an [OpenAIReply].
//
// # Promises
//
//   - A request that the public API reference of the format does not allow is answered
//     with status 400 and kept as a fault, never with a reply.
//   - Every valid request is kept as it was received.
//   - The servers contact no other host.
//
// # Concurrency
//
// A server may be used by several goroutines. It answers requests concurrently, on the
// goroutines of package net/http. Close ends them.
//
// # Errors
//
// [CheckAnthropic], [CheckOpenAIChat] and [CheckOpenAIResponses] return the first fault of a request.
//
// The providers are in packages runner/providers/anthropic and runner/providers/openai,
// whose tests use the servers.
package providerstest
