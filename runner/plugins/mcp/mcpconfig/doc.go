// Package mcpconfig parses the configuration of MCP servers.
//
// A file has the JSON that other MCP clients read: the object mcpServers, whose keys name
// servers. [Parse] returns a [ServerEntry] for each valid entry, with the variables of the
// environment expanded, and a [Fault] for each invalid one. docs/mcp.md describes the
// keys.
//
// # Promises
//
//   - An invalid entry costs no other entry.
//   - A Fault names the file, the server and the key.
//   - ServerEntry.Secrets has each value that must not reach a log: the values of env and
//     headers, each expanded variable, and the credentials of the URL. Variables that
//     every command inherits, such as HOME, are no secrets.
//   - ServerEntry.Shown has no expanded value.
//
// # Concurrency
//
// The package has no state and starts no goroutine.
//
// # Errors
//
// Parse reports every fault as a Fault, and returns no error.
//
// Package mcp reads the files and starts the servers. The laws are in parse_test.go.
package mcpconfig
