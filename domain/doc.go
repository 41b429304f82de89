// Package domain defines tools, calls and settlements, and runs a tool.
//
// A [Tool] is made by [Make] from a [Spec] and can only call its executor.
// Input and output cross the boundary as JSON through a [Codec], whose schema
// the tool checks in both directions. A call passes through a chain of types,
// each of which only the one before can produce:
//
//   - [Tool.Bind] checks an input and returns a [Bound].
//   - [Bound.Run] executes it and returns an [Output].
//   - A registry limits the output, stores it and records a [Settlement], the
//     end of the call, with one of the [Outcome] constants.
//   - [Settlement.ToolResult] is the text or content that the model reads.
//
// An [Offer] lists the tools that one turn of the model may call: for each
// [Name] the registration, with the [Fingerprint] of its [Definition]. An
// [Invocation] identifies the caller while the tool runs. [Rules] decide which
// tools are visible and which actions are allowed; [Match] is their pattern
// language. A [Preview] is the text that a permission request shows to a person.
// A [Ref] names an output that is stored complete in managed storage.
//
// An [ID] identifies one session, event, layer or other thing. A [Mint] makes
// IDs from a clock and a source of randomness.
//
// Package events stores many of these types as JSON. The tag codec:"intern" marks
// a string that repeats in a log: a decoder of many events shares one copy of it.
//
// # Promises
//
//   - A tool calls only its own executor, once for each Run.
//   - An executor receives only an input that schema and codec accepted; a
//     presentation receives only an output that they accepted.
//   - An input that does not fit the schema runs no executor, and its error
//     lists every violation.
//   - A panic of an executor, a codec or a presentation becomes a [Defect] and
//     never leaves the package.
//   - An interruption replaces an error that it caused. A success stays a
//     success, even if it arrives after the interruption.
//   - The tool result is a function of the settlement alone.
//
// # Concurrency
//
// Values are immutable and may be shared between goroutines. A [Mint] is safe
// for concurrent use. The package starts no goroutine.
//
// # Errors
//
// Make returns [ErrBadTool] and [ErrBadSchema]. Parsing returns [ErrBadName],
// [ErrBadID], [ErrBadRef] or [ErrBadWord]. Bind returns [ErrInvalidInput], as a
// *[ValidationError]. Run returns [ErrInvalidOutput] and [ErrInterrupted]. A
// permission gate returns [ErrDenied] and [ErrDeclined] to a tool. Only a
// [Failure], made by [Fail], carries a text that the tool wrote for the model.
//
// The registry resolves names to tools, the runner decides when a call runs, and
// package events stores the facts. The laws of this package are in laws_test.go.
package domain
