// Package domain holds the vocabulary in which agents, tools and their ledger
// speak of calls.
//
// A [Tool] is made by [Make] from a [Spec] and can do nothing but call its
// executor. What it takes and returns crosses the border as JSON through a
// [Codec], whose schema is checked on both ways. The way of a call is a chain
// of types, each to be had only from the one before: [Tool.Bind] holds an
// input to the schema and gives a [Bound]; [Bound.Run] executes it and gives an
// [Output]; a registry bounds that, keeps it, and records a [Settlement], whose
// [Outcome] is one of a closed set.
//
// An [Offer] is what one turn may call: for each [Name] the registration behind
// it, with the [Fingerprint] of its [Definition]. An [Invocation] says whose
// call it is while it runs. [Rules] say what may be seen and done; [Match] is
// their only pattern language. A [Preview] is the text that a question for
// permission shows. A [Ref] names an output that is kept whole in
// managed storage.
//
// An [ID] names one thing for ever; a [Mint] makes IDs from a clock and
// randomness that it is given.
//
// # Promises
//
//   - A tool can invoke only the executor that it was made with, once for each
//     Run.
//   - An executor sees only an input that its schema and codec accepted; a
//     presentation sees only an output that they accepted.
//   - An input that does not fit runs nothing, and every place in which it does
//     not fit is named.
//   - A panic of an executor, a codec or a presentation is a [Defect]. It never
//     leaves the package.
//   - An interruption outranks an error that came of it. A success that arrives
//     all the same stands.
//   - What a model reads of a settlement depends on the settlement alone.
//
// # Concurrency
//
// Values are immutable and may be shared. A [Mint] may be used by several
// goroutines. The package starts none.
//
// # Errors
//
// [ErrBadTool] and [ErrBadSchema] come from Make; [ErrBadName], [ErrBadID],
// [ErrBadRef] and [ErrBadWord] from parsing; [ErrInvalidInput] from Bind;
// [ErrInvalidOutput] and [ErrInterrupted] from Run. [ErrDenied] and
// [ErrDeclined] are what a tool is told when it asks for permission. Only a
// [Failure], made by [Fail], carries a text that a tool chose for the model.
//
// Which tool a name means is the registry's affair; when a call runs is the
// runner's; where facts are kept is that of the events. The laws are in
// laws_test.go, examples in example_test.go.
package domain
