// Package lsp makes the tool lsp, which asks language servers about source files.
//
// [Servers] is a pool of language servers, such as gopls. [New] makes it from a
// [Config], [Servers.Tool] returns the tool, and [Servers.Close] ends every server.
// The table in language.go maps a file extension to a language and to the servers of the
// language. The pool uses the first of these servers that is in the PATH of
// Config.Environment. A server works for one folder: the workspace, or the directory of a
// file outside it. The package speaks version 3.17 of the Language Server Protocol, as a
// client that edits nothing.
//
// # Promises
//
//   - A call asks for permission before its first side effect, which can be the start
//     of a server: for external_directory if the file lies outside the workspace, for
//     lsp on the file, and for read if the rules name the file.
//   - The tool omits and counts results in a file that a rule denies to read, and in a
//     file whose reading needs a permission that was not given. A hover text counts as a
//     result in the files of the definitions. For a file outside the workspace, the tool
//     returns only positions unless the rules allow its directory.
//   - Lines and characters count from 1, in Unicode characters. The package converts them
//     to and from UTF-16, or UTF-8 for a server that offers it. In a file whose content
//     was not read, one code unit of the server counts as one character.
//   - Before each request the package sends the content of the file on disk to the server,
//     and notifies it of each source file and manifest in its folder that was created,
//     changed or deleted since the last notification. The package scans the first 50,000
//     directory entries and skips node_modules and directories whose name begins with a
//     dot.
//   - Every call ends within the timeouts of Config and some seconds for the end of a
//     process, whatever the server does, and at once when its context ends. A cancelled
//     request is cancelled at the server too.
//   - A message of more than 16 MiB, an invalid header and invalid JSON end the server.
//     So does a request that the server neither answers within the timeout nor after
//     its cancellation.
//   - The next call starts a server that has ended again. After three ends in a row
//     without a reply between them, calls fail until a pause has passed. The pause grows
//     from 30 seconds to 10 minutes.
//   - When Close returns, every process of every server has ended. See package process
//     for descendants, and for the death of this process.
//   - The server applies no edit through this package.
//
// A language server is a program with the rights of this process. It reads the whole
// folder, whatever the rules say, and some servers run code of the project, such as the
// build scripts of Rust. The rules for the action lsp decide who may start a server.
//
// gopls answers the first requests after it has loaded the project. Other servers may
// answer with fewer results while they load.
//
// # Concurrency
//
// Servers and its tool may be used by several goroutines at once; calls share a server.
// Servers starts goroutines: one for each start, each server and each operation, which
// can outlive its cancelled call. Close joins them. The goroutines of the JSON-RPC
// library end with their connection. No lock is held while a permission is decided. The
// lock of the pool is never taken inside another one; the lock of the documents of a
// server is held while they are sent.
//
// # Errors
//
// New returns [ErrIncomplete]. The tool returns a *domain.Failure for everything that a
// server does or fails to do, the errors of Permission, the cause of its context, and
// [ErrServersClosed] after Close.
//
// Package permission decides requests, package process ends processes, and the caller
// chooses the environment. The laws are in servers_test.go and tool_test.go against a
// server that misbehaves, and in gopls_test.go against gopls.
package lsp
