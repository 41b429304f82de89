// Package media reads images and PDF files for a model.
//
// [TypeOf] returns the media type of a file from its first bytes. [Load] reads the file and
// returns an [Attachment], which has the bytes for the model.
//
// # Promises
//
//   - The type comes from the content: PNG, JPEG, GIF, WebP or PDF. The name of a file does
//     not count.
//   - An Attachment has at most 5 MiB in base64, and an image at most 2,000 by 2,000
//     pixels. A file within these limits is unchanged, byte for byte. A larger image is
//     scaled down, and becomes PNG, or JPEG if the PNG is too large.
//   - An image is decoded before it is returned, so that a damaged image is a failure.
//   - Memory is bounded. A file over 20 MiB, and an image that claims over 256 MiB of
//     pixels, is refused before it is decoded.
//
// # Concurrency
//
// All functions may be called by several goroutines at once. One image is decoded at a
// time in a process; other calls wait. The package starts no goroutine.
//
// # Errors
//
// Load returns a *domain.Failure for the model if the file cannot be shown, and otherwise
// the error of the reader.
//
// Package builtins opens the file and asks for permission. The laws are in image_test.go
// and, for the whole tool, in the tests of package builtins; an example is in
// example_test.go.
package media
