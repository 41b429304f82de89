// Package sessionexport writes sessions in formats for people and for other programs.
//
// [Write] writes one session in a [Format]: a page (HTML, Markdown), lines (JSONLines), a
// trajectory (ATIF) or traces (OTLP). [Run] exports the sessions that a command line
// selects, to the standard output, a file, or a folder with a manifest.
//
// # Promises
//
//   - Each format has each call of the session once, with its outcome; an open call is
//     marked as open.
//   - The same session with the same options gives the same bytes.
//   - No text reaches a format before the Redactor has seen it. It sees every string of
//     every event, before any is shortened.
//   - Pages show texts of a session as text: none is markup or runs. They make no request.
//   - A file appears under its name when it is complete and durable. Of a folder, an
//     interrupted run leaves complete files only, and the next run writes the missing ones.
//
// # Concurrency
//
// One goroutine writes. Two processes that export to the same file at once may fail, and
// leave a complete file of one of them.
//
// # Errors
//
// Errors of the log and the file system are wrapped with the session or the file. A
// selection that is not possible is a usage fault.
//
// Package timeline reads the entries, package redaction has the rules for secrets.
package sessionexport
