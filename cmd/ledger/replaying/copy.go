package replaying

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
)

// The bounds of a copied workspace.
const (
	// maxCopiedFiles is the maximum number of files and folders.
	maxCopiedFiles = 100_000
	// maxCopiedBytes is the maximum size of all files.
	maxCopiedBytes = 2 << 30
)

// copyWorkspace copies a folder into a new temporary folder and returns its path. It copies
// a symbolic link as a link, and leaves out links that lead out of the folder, and pipes,
// sockets and devices; it returns the paths of these. A folder over the bounds is a fault,
// and leaves nothing behind.
func copyWorkspace(from string) (to string, left []string, err error) {
	if from, err = filepath.Abs(from); err == nil {
		from, err = filepath.EvalSymlinks(from)
	}
	if err != nil {
		return "", nil, fault.WithHint(fmt.Errorf("--workspace: %w", err), "name a folder that exists")
	}
	base, err := os.MkdirTemp("", "ledger-replay-")
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(base))
		}
	}()
	if base, err = filepath.EvalSymlinks(base); err != nil {
		return "", nil, err
	}
	c := workspaceCopy{from: from, to: filepath.Join(base, "workspace")}
	err = filepath.WalkDir(from, c.add)
	return c.to, c.left, err
}

// A workspaceCopy is the state of a copy.
type workspaceCopy struct {
	from, to string
	files    int
	bytes    int64
	left     []string
}

// add copies one file, folder or link.
func (c *workspaceCopy) add(path string, d fs.DirEntry, err error) error {
	if err != nil {
		return fmt.Errorf("copy workspace: %w", err)
	}
	relative, err := filepath.Rel(c.from, path)
	if err != nil {
		return err
	}
	if c.files++; c.files > maxCopiedFiles {
		return fault.WithHint(fmt.Errorf("copy workspace %s: it has more than %d files", c.from, maxCopiedFiles), "name a smaller folder with --workspace")
	}
	target := filepath.Join(c.to, relative)
	switch {
	case d.IsDir():
		return os.MkdirAll(target, 0o755)
	case d.Type()&fs.ModeSymlink != 0:
		return c.link(path, target, relative)
	case !d.Type().IsRegular():
		c.left = append(c.left, relative)
		return nil
	}
	return c.file(path, target)
}

// link copies a symbolic link that stays in the folder.
func (c *workspaceCopy) link(path, target, relative string) error {
	to, err := os.Readlink(path)
	if err != nil {
		return fmt.Errorf("copy workspace: %w", err)
	}
	within, err := filepath.Rel(c.from, filepath.Join(filepath.Dir(path), to))
	if filepath.IsAbs(to) || err != nil || within == ".." || strings.HasPrefix(within, ".."+string(filepath.Separator)) {
		c.left = append(c.left, relative)
		return nil
	}
	return os.Symlink(to, target)
}

// file copies a regular file with its mode.
func (c *workspaceCopy) file(path, target string) (err error) {
	from, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("copy workspace: %w", err)
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return fmt.Errorf("copy workspace: %w", err)
	}
	to, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o200)
	if err != nil {
		return fmt.Errorf("copy workspace: %w", err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	n, err := io.Copy(to, io.LimitReader(from, maxCopiedBytes-c.bytes+1))
	if c.bytes += n; c.bytes > maxCopiedBytes {
		return fault.WithHint(fmt.Errorf("copy workspace %s: it has more than %d bytes", c.from, int64(maxCopiedBytes)), "name a smaller folder with --workspace")
	}
	return err
}
