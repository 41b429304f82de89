//go:build !linux

package embedded

// network names the network file system that a folder is on. It is empty for
// any other, and where that is not known, as it is here.
func network(string) string { return "" }
