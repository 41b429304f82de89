// Package toolfiles offers the tools that a folder defines. Each tool is a manifest and a
// program.
//
// A [ToolFolder] is a plugin. It reads the manifests of its folder, the files NAME.json,
// and registers one tool for each manifest. A call starts the program of the tool as a
// process group of its own, sends the input as one line of JSON, and follows the lines of
// the program: progress, permission questions, and then one output or failure.
// docs/tools-from-files.md describes manifests and lines.
//
// A generation of a tool is the content of its manifest and of the files that the manifest
// names. Refresh compares the folder with the registered generations and registers exactly
// the tools that changed.
//
// # Promises
//
//   - A program runs from a private copy of its registered files. If the files in the
//     folder have changed since the registration, the call fails and runs nothing.
//   - A manifest or a file that cannot be used is recorded as a refusal, once for each
//     content. The refusal takes the earlier generation of the tool out of effect. Other
//     tools are not affected.
//   - An unchanged tool keeps its registration.
//   - Every call has one end, whatever its program writes. The process group of the
//     program ends before the call does.
//   - A program of a project's folder, with the placement domain.Location, starts only
//     after the permission [ProjectAction] for this generation was given.
//   - No link in the folder is followed, and no file that everyone may write to is used.
//
// # Concurrency
//
// A ToolFolder and its tools may be used by several goroutines. A call starts two
// goroutines, and one more while a question is open, and joins them before it returns.
//
// # Errors
//
// [ErrBadConfig] comes from New. [ErrBadManifest] and [ErrUnsafeFile] are reasons of
// refusals, as are domain.ErrBadName and domain.ErrBadSchema. Install and Refresh return
// the errors of their scope. A call returns a *domain.Failure for the failure of its
// program, a timeout, and changed files; the *domain.Denied or *domain.Declined of a
// refused permission; and a *domain.Defect for a program that breaks the protocol, with
// its standard error.
//
// Package plugins installs a ToolFolder, package process ends process groups, and package
// permission decides questions. The laws are in the tests named for their subject; the
// programs of the tests are in Python, shell and JavaScript.
package toolfiles
