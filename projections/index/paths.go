package index

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// The accesses of a path.
const (
	PathRead    = "read"
	PathWritten = "write"
	PathRun     = "run"
)

// The sources of a path.
const (
	fromResult  = "result"  // the tool reported the file
	fromInput   = "input"   // the input names it
	fromRequest = "request" // a permission request names it
)

// A pathUse is a path of a call.
type pathUse struct{ path, access string }

// pathInput are the members of an input that name paths. A member of another type than
// expected is ignored.
type pathInput struct {
	Path     any `json:"path"`
	File     any `json:"file_path"`
	FilePath any `json:"filePath"`
	Notebook any `json:"notebook_path"`
	Workdir  any `json:"workdir"`
	Command  any `json:"command"`
	Patch    any `json:"patchText"`
	Body     any `json:"input"` // a patch
}

// The bounds of the paths of an input.
const (
	maxPathBytes    = 4096
	maxCommandBytes = 64 << 10
	maxCommandPaths = 64
)

// The words in the names of tools, by which inputPaths knows the access to a path. A tool
// without one of them reads.
var (
	writerWords = []string{"write", "edit", "patch", "create", "delete", "remove", "rename", "move"}
	runnerWords = []string{"bash", "shell", "exec", "terminal", "command"}
)

// accessOf returns the access of a tool to the paths of its input.
func accessOf(tool string) string {
	tool = strings.ToLower(tool)
	has := func(words []string) bool {
		for _, w := range words {
			if strings.Contains(tool, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has(runnerWords):
		return PathRun
	case has(writerWords):
		return PathWritten
	}
	return PathRead
}

// inputPaths returns the paths that the input of a call names: the members path, file_path,
// filePath, notebook_path and workdir, the files of a patch, and the words of a command line
// that look like paths. A relative path is taken from workdir, or else from location.
func inputPaths(tool, location string, input []byte) (all []pathUse) {
	var in pathInput
	// An input that is no object, or a member of another type, names no path.
	_ = json.Unmarshal(input, &in)
	access := accessOf(tool)
	text := func(v any) string {
		s, _ := v.(string)
		return s
	}
	add := func(name, access string) {
		if use := (pathUse{resolve(location, name), access}); use.path != "" {
			all = append(all, use)
		}
	}
	if workdir := text(in.Workdir); workdir != "" {
		add(workdir, access)
		location = resolve(location, workdir)
	}
	for _, member := range []any{in.Path, in.File, in.FilePath, in.Notebook} {
		add(text(member), access)
	}
	for _, patch := range []string{text(in.Patch), text(in.Body)} {
		for _, name := range patchedPaths(patch) {
			add(name, PathWritten)
		}
	}
	if access == PathRun {
		for _, word := range commandPaths(commandLine(in.Command)) {
			add(word, PathRun)
		}
	}
	return all
}

// commandLine returns the text of a command: a text, or the last element of a list such as
// ["bash", "-lc", "make"].
func commandLine(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		if n := len(v); n > 0 {
			s, _ := v[n-1].(string)
			return s
		}
	}
	return ""
}

// resolve returns the clean path that a name means in a folder. It returns the empty text
// for a name that is no path, such as the reference of an output.
func resolve(folder, name string) string {
	switch {
	case name == "" || len(name) > maxPathBytes || strings.Contains(name, "://") || strings.ContainsRune(name, 0):
		return ""
	case path.IsAbs(name) || strings.HasPrefix(name, "~") || folder == "":
		return path.Clean(name)
	}
	return path.Join(folder, name)
}

// patchMarks begin the lines of a patch that name a file.
var patchMarks = []string{"*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "}

// patchedPaths returns the files that a patch in the form of apply_patch names.
func patchedPaths(patch string) (all []string) {
	if !strings.Contains(patch, "*** ") {
		return nil
	}
	for line := range strings.SplitSeq(patch, "\n") {
		for _, mark := range patchMarks {
			if name, ok := strings.CutPrefix(line, mark); ok {
				all = append(all, strings.TrimSpace(name))
			}
		}
	}
	return all
}

// commandPaths returns the words of a command line that look like paths: a word with a slash
// before its end, or with an extension. A quoted text is one word. It reads the first 64 KiB
// and returns at most 64 words.
func commandPaths(line string) (all []string) {
	line = cut(line, maxCommandBytes)
	var word strings.Builder
	var quote rune
	end := func() {
		if w := word.String(); looksLikePath(w) && len(all) < maxCommandPaths {
			all = append(all, w)
		}
		word.Reset()
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote = r
		case strings.ContainsRune(" \t\r\n;|&()<>`", r):
			end()
		default:
			word.WriteRune(r)
		}
	}
	end()
	return all
}

// looksLikePath reports whether a word of a command line looks like a path.
func looksLikePath(word string) bool {
	if word == "" || word[0] == '-' || strings.ContainsAny(word, " \n\t*?$={}[]^,:\\!") {
		return false
	}
	if strings.Contains(strings.TrimRight(word, "/"), "/") {
		return true
	}
	ext := path.Ext(word)
	return len(ext) > 1 && len(ext) <= 9 && len(ext) < len(word) && strings.ContainsAny(ext, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
}

// requestPaths returns the paths that a permission request names: the folders of
// external_directory.
func requestPaths(e events.PermissionRequested) (all []string) {
	if e.Action != "external_directory" {
		return nil
	}
	for _, r := range e.Resources {
		if name := resolve("", strings.TrimSuffix(r, "/*")); path.IsAbs(name) {
			all = append(all, name)
		}
	}
	return all
}

// resultAccess returns the access of a file that a tool reports.
func resultAccess(a domain.FileAccess) string {
	if a.Access == domain.FileRead {
		return PathRead
	}
	return PathWritten
}

// uses writes the rows of a path of a call.
func (f *filler) uses(c *callRow, use pathUse, source string) error {
	id, err := f.pathID(use.path)
	if err != nil || id == 0 {
		return err
	}
	_, err = f.exec("INSERT OR IGNORE INTO path_uses (path, call, access, source) VALUES (?, ?, ?, ?)", id, c.id, use.access, source)
	return err
}

// pathID returns the number of a path, and writes its row if it is new.
func (f *filler) pathID(name string) (int64, error) {
	if n, ok := f.paths[name]; ok || name == "" {
		return n, nil
	}
	n, err := f.number("SELECT path FROM paths WHERE name = ?", name)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		f.last.path++
		n = f.last.path
		if _, err := f.exec("INSERT INTO paths (path, name, base) VALUES (?, ?, ?)", n, name, path.Base(name)); err != nil {
			return 0, err
		}
	}
	f.paths[name] = n
	return n, nil
}
