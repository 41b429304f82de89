// Package conformance tests the plugins of MCP servers with servers and the conformance
// suite of other authors.
//
// It contains tests only. The reference servers of the protocol, and a server on the
// official SDK for TypeScript, are driven by sessions: a provider that replays a script, the
// runner, the registry, the plugins of package mcp and an embedded store. Each test ends
// with ledger verify over its log. The client scenarios of the conformance suite run
// against a session too; a table in the test, and another in docs/mcp.md, list the
// scenarios that do not pass, with the reason.
//
// The packages are pinned in the folder node. The tests run if the environment variable
// LEDGER_MCP_SERVERS names a folder in which they are installed, as .ci/mcp does, and
// are skipped otherwise.
package conformance
