package sessionexport

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// manifestName is the file that lists the complete exports of a folder.
const manifestName = "manifest.jsonl"

// A manifestLine is a complete export in a folder. The last line of a file counts.
type manifestLine struct {
	File     string           `json:"file"`
	Session  domain.SessionID `json:"session"`
	Revision events.Revision  `json:"revision"`
	Format   Format           `json:"format"`
	Version  int              `json:"version"` // of the format
	Full     bool             `json:"full"`
	Redacted bool             `json:"redacted"`
	Bytes    int64            `json:"bytes"`
	SHA256   string           `json:"sha256"`
}

// same reports whether two lines describe the same export, whatever its bytes are.
func (l manifestLine) same(other manifestLine) bool {
	l.Bytes, l.SHA256 = other.Bytes, other.SHA256
	return l == other
}

// A written is the size and the digest of a written file.
type written struct {
	bytes  int64
	sha256 string
}

// writeFile writes a file so that its name appears when it is complete and durable. It
// writes under a temporary name in the same folder, .NAME.*.part, which it removes if it
// fails; a process that is killed leaves it to the next export of the file, which removes
// it. A file of that name, or behind a link of that name, is replaced. A pipe or a device is
// written to.
func writeFile(path string, write func(io.Writer) error) (done written, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writeDevice(path, write)
	} else if err == nil {
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return written{}, err
		}
	}
	dir, base := filepath.Split(path)
	leftover, err := filepath.Glob(globEscape(dir+"."+base) + ".*.part")
	if err != nil {
		return written{}, err
	}
	for _, name := range leftover {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return written{}, err
		}
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+base+".*.part")
	if err != nil {
		return written{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	digest := sha256.New()
	counted := &counter{to: io.MultiWriter(file, digest)}
	err = write(counted)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return written{}, err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return written{}, err
	}
	return written{counted.bytes, hex.EncodeToString(digest.Sum(nil))}, syncFolder(filepath.Dir(path))
}

// writeDevice writes to a pipe or a device, which a file must not replace.
func writeDevice(path string, write func(io.Writer) error) (written, error) {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return written{}, err
	}
	digest := sha256.New()
	counted := &counter{to: io.MultiWriter(file, digest)}
	err = errors.Join(write(counted), file.Close())
	return written{counted.bytes, hex.EncodeToString(digest.Sum(nil))}, err
}

// globEscape returns a pattern that matches a path only.
func globEscape(path string) string {
	var escaped []byte
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			escaped = append(escaped, '\\')
		}
		escaped = append(escaped, path[i])
	}
	return string(escaped)
}

// A counter counts the bytes that it passes on.
type counter struct {
	to    io.Writer
	bytes int64
}

// Write passes bytes on.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.bytes += int64(n)
	return n, err
}

// syncFolder makes the names of a folder durable.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// A manifest lists the complete exports of a folder.
type manifest struct {
	dir   string
	files map[string]manifestLine
}

// openManifest reads the manifest of a folder. It passes over a last line that is cut. A
// folder without one has no exports.
func openManifest(dir string) (*manifest, error) {
	m := &manifest{dir, map[string]manifestLine{}}
	file, err := os.Open(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return m, file.Close()
		}
		var known manifestLine
		if err := json.Unmarshal(line, &known); err != nil {
			return nil, errors.Join(fmt.Errorf("%s is not the manifest of an export: %w: name another folder with --to, or remove the file", file.Name(), err), file.Close())
		}
		m.files[known.File] = known
	}
}

// has reports whether the folder has a complete file of an export.
func (m *manifest) has(wanted manifestLine) bool {
	known, ok := m.files[wanted.File]
	info, err := os.Stat(filepath.Join(m.dir, wanted.File))
	return ok && err == nil && known.same(wanted) && info.Mode().IsRegular() && info.Size() == known.Bytes
}

// add records a complete file durably. A line that a killed process left cut is ended
// first.
func (m *manifest) add(l manifestLine) (err error) {
	file, err := os.OpenFile(filepath.Join(m.dir, manifestName), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := dropCutLine(file); err != nil {
		return err
	}
	line, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if _, err := file.Write(append(line, '\n')); err != nil {
		return err
	}
	m.files[l.File] = l
	return file.Sync()
}

// dropCutLine removes the bytes behind the last line end of a file.
func dropCutLine(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	const longest = 4 << 10
	from := max(0, info.Size()-longest)
	end := make([]byte, info.Size()-from)
	if _, err := file.ReadAt(end, from); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	kept := len(end)
	for kept > 0 && end[kept-1] != '\n' {
		kept--
	}
	if kept == len(end) {
		return nil
	}
	return file.Truncate(from + int64(kept))
}
