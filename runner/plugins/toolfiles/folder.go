package toolfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/settlement-ledger/ledger/domain"
)

// ErrUnsafeFile reports a file or folder that another user could change or that lies in
// another place: a link, a file that everyone may write to, or a file that is not regular.
var ErrUnsafeFile = errors.New("file cannot be trusted")

// The limits of a folder.
const (
	// MaxTools is the number of manifests of one folder that become tools.
	MaxTools = 200
	// maxEntries is the number of entries of a folder, with its programs.
	maxEntries = 10_000
	// maxProgram is the size of all files of one tool together, without the manifest.
	maxProgram = 16 << 20
)

// manifestSuffix is the end of the file name of a manifest.
const manifestSuffix = ".json"

// A folderReader reads an open folder of manifests. It follows no link. One goroutine
// uses it.
type folderReader struct{ root *os.Root }

// onlyDirectory is appended to a path that must lead to a directory. Without it, opening a
// named pipe would wait for a writer.
const onlyDirectory = "/."

// openFolder opens a folder of manifests. If within is not empty, the folder must be
// below it, and no link may lead to it. It returns fs.ErrNotExist if the folder does not
// exist, and ErrUnsafeFile.
func openFolder(folder, within string) (folderReader, error) {
	if within == "" {
		root, err := os.OpenRoot(folder + onlyDirectory)
		return checkedFolder(root, err)
	}
	relative, err := filepath.Rel(within, folder)
	if err != nil || !filepath.IsLocal(relative) {
		return folderReader{}, fmt.Errorf("%w: %s is not below %s", ErrUnsafeFile, folder, within)
	}
	outer, err := os.OpenRoot(within)
	if err != nil {
		return folderReader{}, err
	}
	defer outer.Close()
	if err := (folderReader{outer}).checkNoLinks(filepath.ToSlash(relative)); err != nil {
		return folderReader{}, err
	}
	root, err := outer.OpenRoot(relative + onlyDirectory)
	return checkedFolder(root, err)
}

// checkedFolder returns the reader of an opened folder, unless everyone may write to it.
func checkedFolder(root *os.Root, err error) (folderReader, error) {
	if err != nil {
		return folderReader{}, err
	}
	info, err := root.Stat(".")
	if err == nil && info.Mode().Perm()&0o002 != 0 {
		err = fmt.Errorf("%w: everyone may write to the folder; remove the permission with chmod o-w", ErrUnsafeFile)
	}
	if err != nil {
		root.Close()
		return folderReader{}, err
	}
	return folderReader{root}, nil
}

// close closes the folder.
func (r folderReader) close() { r.root.Close() }

// manifests returns the names of the manifests without .json, sorted. It ignores files
// whose names begin with a dot. It returns an error for a folder with more than maxEntries
// entries.
func (r folderReader) manifests() ([]string, error) {
	dir, err := r.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var names []string
	for read := 0; ; {
		entries, err := dir.ReadDir(1000)
		for _, e := range entries {
			if name, ok := strings.CutSuffix(e.Name(), manifestSuffix); ok && !strings.HasPrefix(name, ".") && name != "" {
				names = append(names, name)
			}
		}
		if read += len(entries); read > maxEntries {
			return nil, fmt.Errorf("the folder has more than %d entries", maxEntries)
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// checkNoLinks returns ErrUnsafeFile if a component of a path is a link, or a directory
// that everyone may write to, and the error of a component that cannot be read.
func (r folderReader) checkNoLinks(file string) error {
	parts := strings.Split(file, "/")
	for i := range parts {
		part := path.Join(parts[:i+1]...)
		info, err := r.root.Lstat(part)
		switch {
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("%w: %s is a link", ErrUnsafeFile, part)
		case info.Mode().Perm()&0o002 != 0:
			return fmt.Errorf("%w: everyone may write to %s; remove the permission with chmod o-w", ErrUnsafeFile, part)
		}
	}
	return nil
}

// stat returns the stamp of a file without reading it.
func (r folderReader) stat(file string) (toolFileStamp, error) {
	info, err := r.root.Lstat(file)
	if err != nil {
		return toolFileStamp{}, err
	}
	return stampOf(info), nil
}

// read reads a regular file of at most limit bytes. It returns ErrUnsafeFile for a link,
// another kind of file and a file that everyone may write to.
func (r folderReader) read(file string, limit int) (folderFile, error) {
	if err := r.checkNoLinks(file); err != nil {
		return folderFile{}, err
	}
	// O_NONBLOCK keeps the open from waiting for the writer of a named pipe.
	f, err := r.root.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return folderFile{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return folderFile{}, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o002 != 0 {
		return folderFile{}, fmt.Errorf("%w: %s is no regular file that only its owner and group may write to", ErrUnsafeFile, file)
	}
	content, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return folderFile{}, err
	}
	if len(content) > limit {
		return folderFile{}, fmt.Errorf("%s is over the limit of %d bytes", file, limit)
	}
	sum := sha256.Sum256(content)
	return folderFile{
		path: file, content: content, executable: info.Mode().Perm()&0o100 != 0, sum: hex.EncodeToString(sum[:]), stamp: stampOf(info),
	}, nil
}

// A folderFile is a file as it was read.
type folderFile struct {
	path       string // relative to the folder, with slashes
	content    []byte // nil where only the other fields are kept
	executable bool
	sum        string // SHA-256 of the content in hexadecimal
	stamp      toolFileStamp
}

// addTo adds the file to the digest of a generation.
func (f folderFile) addTo(h hash.Hash) {
	fmt.Fprintf(h, "%d %s %t %s\n", len(f.path), f.path, f.executable, f.sum)
}

// A toolFileStamp identifies the state of a file without its content being read.
type toolFileStamp struct {
	inode    uint64
	size     int64
	modified int64 // nanoseconds
	mode     fs.FileMode
}

// stampOf returns the stamp of a file.
func stampOf(info fs.FileInfo) toolFileStamp {
	s := toolFileStamp{size: info.Size(), modified: info.ModTime().UnixNano(), mode: info.Mode()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = stat.Ino
	}
	return s
}

// A fileGeneration is one state of a tool: its manifest and the content of all its files.
type fileGeneration struct {
	name     domain.Name
	manifest toolManifest
	// files are the manifest and then the files that it names, in order.
	files []folderFile
	// digest is the SHA-256 of the files in hexadecimal.
	digest string
}

// load reads the generation of a tool. If it returns an error, it also returns the files
// that it has read, so that the caller can detect a change of these files.
func (r folderReader) load(text string) (fileGeneration, error) {
	g := fileGeneration{}
	name, err := domain.ParseName(text)
	if err != nil {
		return g, err
	}
	g.name = name
	manifest, err := r.read(text+manifestSuffix, maxManifest)
	if err != nil {
		return g, err
	}
	g.files = []folderFile{manifest}
	if g.manifest, err = parseManifest(name, manifest.content); err != nil {
		return g, err
	}
	left := maxProgram
	for _, file := range g.manifest.paths() {
		f, err := r.read(file, left)
		if err != nil {
			return g, fmt.Errorf("file of the tool: %w", err)
		}
		left -= len(f.content)
		g.files = append(g.files, f)
	}
	if program := g.manifest.Command[0]; inFolder(0, program) && !g.file(program).executable {
		return g, fmt.Errorf("%s is not executable; add the permission with chmod u+x", program)
	}
	h := sha256.New()
	for _, f := range g.files {
		f.addTo(h)
	}
	g.digest = hex.EncodeToString(h.Sum(nil))
	return g, nil
}

// file returns a file of the generation by its path in the manifest.
func (g fileGeneration) file(name string) folderFile {
	i := slices.IndexFunc(g.files, func(f folderFile) bool { return f.path == path.Clean(name) })
	if i < 0 {
		return folderFile{}
	}
	return g.files[i]
}

// withoutContent returns the generation without the content of its files. A call reads the
// content again.
func (g fileGeneration) withoutContent() fileGeneration {
	g.files = slices.Clone(g.files)
	for i := range g.files {
		g.files[i].content = nil
	}
	return g
}
