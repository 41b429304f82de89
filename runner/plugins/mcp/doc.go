// Package mcp offers the tools of MCP servers, which run as processes or are reached over
// HTTP.
//
// [Load] reads the configuration of the user and of a project and returns a plugin, a
// [ToolServer], for each server. A ToolServer starts in the background, lists its tools with the
// official SDK, and registers them under the names SERVER_TOOL. Refresh registers exactly
// the tools that changed, and starts a server again that has ended. docs/mcp.md describes
// the configuration, the permissions and the limits.
//
// # Promises
//
//   - A server that is not there, hangs, dies, floods or lies harms its own calls only.
//     Each such case is a recorded refusal or the end of a call, with the name of the
//     server.
//   - A call succeeds only if the server wrote a complete result. A result of an unknown
//     type, a started task and an empty object are failures.
//   - The arguments of a call fit the input schema, and its structured output fits the
//     output schema, or the call does not succeed.
//   - A call asks for the permission [CallAction] for exactly one definition of a tool. A
//     definition that changed is asked about again, with what changed.
//   - A server of a project starts only after the permission [ProjectAction] was given.
//   - A call that may have reached the server is never sent again, unless its tool is
//     declared idempotent and the session had expired.
//   - No value of the configuration's env, headers and variables is in a text, result or
//     definition that this package returns, as runner/secrets finds them.
//   - An unchanged tool keeps its registration.
//
// # Concurrency
//
// A ToolServer and its tools may be used by several goroutines. A connection runs in goroutines
// of its own, which Stop ends. ToolServer.refreshing is locked before ToolServer.mu, and that
// before connection.mu.
//
// # Errors
//
// A call returns a *domain.Failure for a failure of the tool, an error of the server, a
// timeout and an unusable result; a *domain.Defect if the server ended; the
// *domain.Denied or *domain.Declined of a permission or a question; and the cause of its
// context. Install, Refresh and Stop return the errors of the scope.
//
// Package mcpconfig parses files, package transport bounds what a server can do to the
// client. The laws are in the tests named for their subject; the servers of the tests are
// the servers of the SDK in processes of their own, and hostile ones written by hand.
package mcp
