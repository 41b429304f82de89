package toolfiles

import (
	"os"
	"path/filepath"
	"syscall"
)

// writeCopy writes the files of a tool into a new private folder and returns its path. A
// program that runs from the copy has the content that was compared with the registration,
// even if the original files change. The caller removes the folder.
func writeCopy(files []folderFile) (dir string, err error) {
	dir, err = os.MkdirTemp("", "ledger-tool-")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	for _, f := range files {
		file := filepath.Join(dir, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return "", err
		}
		mode := os.FileMode(0o400)
		if f.executable {
			mode = 0o500
		}
		if err := writeUnforked(file, f.content, mode); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// writeUnforked writes a file while no process is being started. A child that is forked
// during the write would hold the file open for writing until its exec. Until then the
// system refuses to execute the file.
func writeUnforked(file string, content []byte, mode os.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(file, content, mode)
}
