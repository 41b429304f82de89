// Package sessions runs sessions and recovers them, for the commands run, resume,
// recover, demo and serve.
//
// A [Launcher] opens a store and registers this process in it ([Launcher.With],
// [Launcher.Start]). An [ActiveProcess] is that registration: it renews a lease in a
// store that other processes have open too, and has the result of the recovery. It
// opens a workspace ([ActiveProcess.OpenWorkspace]), which registers the builtin tools
// and connects the permission gate. The [SessionRunner] admits the prompts of a
// recorded trajectory and runs the session ([SessionRunner.Continue]), asks a model once
// ([SessionRunner.Ask]), or has a conversation at a [PromptLine] ([SessionRunner.Converse]).
// [Launcher.PrintProgress] prints the progress of a session from the log while it runs.
// Package engine does the work below.
//
// # Promises
//
//   - A session runs only after the sessions of dead processes are recovered, in a folder
//     that this process has open alone.
//   - [Launcher.With] records the end of the process and closes the store, also after the
//     context ends and after an error.
//   - Progress goes to the given writer. The result goes to the standard output, in the
//     format of the command line. On a terminal the texts of replies go there as they
//     arrive, each once, without characters that control the terminal.
//   - A tool or an MCP server that is not offered is a warning with the reason.
//   - A conversation admits a line that is typed during a run to that run. A SIGINT
//     interrupts the run and not the conversation.
//
// # Concurrency
//
// A Launcher may be used by several goroutines, as long as its fields do not change. An
// ActiveProcess and a SessionRunner are safe for concurrent use. The process renews its
// lease, and PrintProgress follows the log, on one goroutine each; both join it. Converse
// runs the session on a goroutine, which it joins.
//
// # Errors
//
// Errors are those of the store, of package engine and of package runner. A workspace
// that does not open is a fault.Error with a hint.
//
// The caller parses the flags, reads the rules and the trajectory, and decides which
// processes without a lease are dead.
package sessions
