// Package frontmatter reads Markdown files that begin with YAML front matter.
//
// The front matter is the text between a first line --- and the next line ---. It
// has one key on each line, or more for a list. The rest of the file is the body.
// [Parse] decodes the front matter into a struct and returns the body. The fields of
// the struct are of type [Value], which keeps the line of each value for error texts.
//
//	---
//	description: Reviews a change.
//	steps: 20
//	---
//	You review changes.
//
// A [Directory] gives access to the files. [OpenInside] opens a directory of a project,
// which may come from another person: a symbolic link cannot lead out of the project.
// [OpenTrusted] opens a directory of the user, where links may lead anywhere.
//
// # Promises
//
//   - An unknown key, a repeated key and a value of another type are errors. An error
//     names the file, the line, the key and the correction.
//   - Each read is bounded: the bytes of a file, the bytes of the front matter and
//     the entries of a directory.
//   - Only regular files are read. A pipe or a device does not block.
//
// # Concurrency
//
// Parse is a pure function. A Directory is safe for concurrent use. The package starts
// no goroutine.
//
// # Errors
//
// Parse and CheckName return [ErrInvalid]. A Directory returns [ErrOutside],
// [ErrNotFile] and [ErrTooLong], and wraps errors of the system such as
// fs.ErrNotExist.
//
// The packages agents and skills define the keys. The laws are in the _test.go files.
package frontmatter
