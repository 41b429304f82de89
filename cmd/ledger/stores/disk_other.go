//go:build !linux

package stores

// DiskOf returns the zero Disk: it is implemented for Linux only.
func DiskOf(string) Disk { return Disk{} }
