//go:build !linux

package embedded

// network returns an empty name. On this system the file system of a folder is not
// known.
func network(string) string { return "" }
