package bench

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// processorTime returns the user and system processor time of this process.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0 // getrusage of the own process does not fail
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// folderBytes returns the total size of the regular files under dir.
func folderBytes(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}

// linkFolder copies the folder of a closed store from one path to another. It links
// table and blob files, which Pebble never modifies, and copies all other files.
func linkFolder(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch ext := filepath.Ext(name); {
		case d.IsDir():
			return os.MkdirAll(target, 0o700)
		case ext == ".sst" || ext == ".blob":
			return os.Link(path, target)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o600)
	})
}
