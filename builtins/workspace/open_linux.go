package workspace

import (
	"bytes"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// pathFlags open a file or directory to identify it. Such an open needs no permission
// on the file itself, and the descriptor cannot be read.
const pathFlags = unix.O_PATH

// copyAttributes copies the extended attributes of from, which include its access
// control lists, to the new file to. It copies attributes of the security and trusted
// classes if the process has the privilege. It removes from the new file an inherited
// access control list that from does not have.
func copyAttributes(to, from *os.File) error {
	names, err := attributes(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		value, err := attribute(from, name)
		if err == nil {
			err = unix.Fsetxattr(int(to.Fd()), name, value, 0)
		}
		if err != nil && !strings.HasPrefix(name, "security.") && !strings.HasPrefix(name, "trusted.") {
			return err
		}
	}
	const accessList = "system.posix_acl_access" // a directory can pass its list on to new files
	for _, name := range names {
		if name == accessList {
			return nil
		}
	}
	if err := unix.Fremovexattr(int(to.Fd()), accessList); err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}

// attributes returns the names of the extended attributes of a file. On a file system
// without extended attributes it returns an empty list.
func attributes(f *os.File) ([]string, error) {
	const limit = 64 << 10 // the kernel's limit of a list
	list := make([]byte, limit)
	n, err := unix.Flistxattr(int(f.Fd()), list)
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range bytes.SplitSeq(list[:n], []byte{0}) {
		if len(name) > 0 {
			names = append(names, string(name))
		}
	}
	return names, nil
}

// attribute returns the value of an extended attribute.
func attribute(f *os.File, name string) ([]byte, error) {
	const limit = 64 << 10 // the kernel's limit of a value
	value := make([]byte, limit)
	n, err := unix.Fgetxattr(int(f.Fd()), name, value)
	if err != nil {
		return nil, err
	}
	return value[:n], nil
}
