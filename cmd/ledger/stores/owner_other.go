//go:build !unix

package stores

import "io/fs"

// owned returns false: this operating system does not report the owner of a file as Unix
// does.
func owned(fs.FileInfo) bool { return false }
