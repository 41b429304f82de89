package builtins

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/media"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed read.md
var readDescription string

// readArgs is the input of the tool read.
type readArgs struct {
	Path   string `json:"path" jsonschema:"a file or directory, relative to the workspace or absolute, or an output reference"`
	Offset int    `json:"offset,omitempty" jsonschema:"the first line or entry to return, from 1"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many lines or entries to return at most"`
}

// hasRange reports whether the call asks for a part of the file.
func (r readArgs) hasRange() bool { return r.Offset > 0 || r.Limit > 0 }

// firstLine returns the number of the first line, from 1.
func (r readArgs) firstLine() int { return max(r.Offset, 1) }

// lineLimit returns the number of lines to return at most.
func (r readArgs) lineLimit() int {
	if r.Limit == 0 {
		return pageLines
	}
	return min(r.Limit, pageLines)
}

// readInput is the JSON schema of the constraints on readArgs.
const readInput = `{"properties":{"path":{"minLength":1},"offset":{"minimum":1},"limit":{"minimum":1,"maximum":2000}}}`

// The values of the member Type of a result of read.
const (
	// wholeFile is the Type of a file that is returned as a whole.
	wholeFile = "file"
	// textPage is the Type of a part of a text.
	textPage = "text-page"
	// directory is the Type of a directory listing.
	directory = "directory"
	// mediaFile is the Type of an image or a PDF file.
	mediaFile = "media"
)

// readResult is the output of the tool read. Type decides which fields are set.
type readResult struct {
	Type      string     `json:"type"`
	URI       string     `json:"uri,omitempty"`       // file, media
	Name      string     `json:"name,omitempty"`      // file, media
	Content   string     `json:"content,omitempty"`   // file, text-page
	Encoding  string     `json:"encoding,omitempty"`  // file: utf8
	MIME      string     `json:"mime,omitempty"`      // all but directory
	Offset    int        `json:"offset,omitempty"`    // text-page, directory: the first line or entry
	Truncated bool       `json:"truncated,omitempty"` // there is more
	Next      int        `json:"next,omitempty"`      // where that begins
	Entries   []dirEntry `json:"entries,omitempty"`   // directory
	Data      []byte     `json:"data,omitempty"`      // media
	// Withheld counts the entries of a directory that the result does not list.
	Withheld withheldFiles       `json:"left_out,omitzero"`
	Accessed []domain.FileAccess `json:"-"` // the file; empty for a directory and an output
}

// A dirEntry is an entry of a directory or a file that glob found.
type dirEntry struct {
	Path string `json:"path"`
	Type string `json:"type"` // file, directory or other
}

// A readTool is the tool read.
type readTool struct{ Config }

// tool returns the domain.Tool of read.
func (r readTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[readArgs, readResult]{
		Description: readDescription,
		Input:       domain.Constrained[readArgs](readInput),
		Execute:     r.read,
		Present:     presentRead,
		Idempotent:  true,
		AsksFirst:   true,
		Title:       func(in readArgs) string { return in.Path },
		Files:       func(_ readArgs, out readResult) []domain.FileAccess { return out.Accessed },
	})
}

// read executes one call. If the path is an output reference, it reads the managed
// output; otherwise it reads a file or lists a directory.
func (r readTool) read(ctx context.Context, in readArgs, inv domain.Invocation) (readResult, error) {
	if domain.IsRef(in.Path) {
		return r.readOutput(ctx, in, inv)
	}
	target, err := r.Workspace.Resolve(in.Path)
	if err != nil {
		return readResult{}, failure(err, "Unable to read %s", in.Path)
	}
	held := r.acquire(target)
	defer held.release()
	if err := r.assertExternal(ctx, inv, held); err != nil {
		return readResult{}, err
	}
	if err := held.checkReadable(); err != nil {
		if held.openErr == nil && errors.Is(err, fs.ErrNotExist) {
			return readResult{}, r.notFound(ctx, inv, held, in.Path)
		}
		return readResult{}, failure(err, "Unable to read %s", in.Path)
	}
	if err := r.assertOne(ctx, inv, held, "read", target.Resource, in, nil); err != nil {
		return readResult{}, err
	}
	handle, err := held.verifiedHandle()
	if err != nil {
		return readResult{}, failure(err, "Unable to read %s", in.Path)
	}
	var out readResult
	if info, _ := handle.Stat(); info.IsDir() { // readable has seen it
		out, err = r.listDirectory(ctx, inv, held, handle, in)
	} else {
		out, err = r.readTracked(ctx, inv, held, in)
	}
	if ended, ok := err.(verbatimError); ok {
		return readResult{}, ended.error
	}
	if _, chosen := errors.AsType[*domain.Failure](err); err != nil && !chosen {
		err = failure(err, "Unable to read %s", in.Path)
	}
	return out, err
}

// checkReadable returns nil for a regular file or a directory, the open error if the
// path could not be opened, and workspace.ErrNotRegular for anything else.
func (h *acquiredPath) checkReadable() error {
	if h.openErr != nil {
		return h.openErr
	}
	info, err := h.handle.Stat()
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		err = workspace.ErrNotRegular
	}
	return err
}

// readOutput returns a page of a managed output. It asks for the permission read on the
// output reference. A missing or pruned output, and an offset out of range, are
// failures for the model. Any other error of the store is returned for the operator.
func (r readTool) readOutput(ctx context.Context, in readArgs, inv domain.Invocation) (readResult, error) {
	ref, err := domain.ParseRef(in.Path)
	if err != nil {
		return readResult{}, failure(err, "Unable to read %s", in.Path)
	}
	if err := r.assertOne(ctx, inv, new(acquiredPath), "read", ref.String(), in, nil); err != nil {
		return readResult{}, err
	}
	if r.Outputs == nil {
		return readResult{}, failure(ErrAbsent, "Unable to read %s", in.Path)
	}
	body, kept, err := r.Outputs.Open(ctx, ref)
	if errors.Is(err, ErrAbsent) || errors.Is(err, ErrPruned) {
		return readResult{}, failure(err, "Unable to read %s", in.Path)
	}
	if err != nil {
		return readResult{}, fmt.Errorf("open output %s: %w", ref, err)
	}
	defer body.Close()
	out, err := readPage(contextReader{ctx, body}, in, wrapLines)
	if errors.Is(err, errOffsetOutOfRange) {
		return readResult{}, failure(err, "Unable to read %s", in.Path)
	}
	if err != nil {
		return readResult{}, fmt.Errorf("read output %s: %w", ref, err)
	}
	out.MIME = kept.MIME
	return out, nil
}

// A contextReader is a reader whose Read returns the cause of its context once the
// context has ended.
type contextReader struct {
	ctx context.Context
	io.Reader
}

// Read returns the cause of the context if it has ended. It does not interrupt a read
// that blocks.
func (r contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}

// maxEntries is the maximum number of entries of a listed directory.
const maxEntries = 100_000

// listDirectory returns the entries of a directory that the call may read, directories
// first, then by name. It returns a verbatimError if the permission refuses.
func (r readTool) listDirectory(ctx context.Context, inv domain.Invocation, held *acquiredPath, h *workspace.Handle, in readArgs) (readResult, error) {
	infos, err := h.ReadDir(maxEntries)
	if err != nil {
		return readResult{}, err
	}
	byName := make(map[string]dirEntry, len(infos))
	names := make([]string, len(infos))
	for i, info := range infos {
		names[i] = info.Name()
		byName[names[i]] = entryOf(info, names[i])
	}
	permitted, left, err := r.filterPermitted(ctx, inv, held, "read", names)
	if err != nil {
		return readResult{}, verbatimError{err}
	}
	entries := make([]dirEntry, len(permitted))
	for i, name := range permitted {
		entries[i] = byName[name]
	}
	slices.SortFunc(entries, func(a, b dirEntry) int {
		if a.Type != b.Type && (a.Type == directory || b.Type == directory) {
			if a.Type == directory {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Path, b.Path)
	})
	from := in.firstLine()
	if from > max(len(entries), 1) {
		return readResult{}, fmt.Errorf("%w: %d: there are %d entries", errOffsetOutOfRange, from, len(entries))
	}
	out := readResult{Type: directory, Offset: from, Withheld: left}
	room := maxPageBytes
	for i := from - 1; i < len(entries); i++ {
		room -= encodedLen(entries[i].Path) + entryOverhead
		if len(out.Entries) == in.lineLimit() || room < 0 && len(out.Entries) > 0 {
			out.Truncated, out.Next = true, i+1
			break
		}
		out.Entries = append(out.Entries, entries[i])
	}
	return out, nil
}

// entryOverhead is the size of an entry in indented JSON without its path, in bytes.
const entryOverhead = 64

// entryOf returns the entry of a file. The path of a directory gets a slash at its end.
func entryOf(info fs.FileInfo, path string) dirEntry {
	switch {
	case info.IsDir():
		return dirEntry{path + "/", directory}
	case info.Mode().IsRegular():
		return dirEntry{path, "file"}
	}
	return dirEntry{path, "other"}
}

// readTracked returns the content of an opened file, as readFile does, and records its
// version for the session. If the versions cannot be loaded, it returns a verbatimError.
func (r readTool) readTracked(ctx context.Context, inv domain.Invocation, held *acquiredPath, in readArgs) (readResult, error) {
	path := held.resolved.Path
	files, err := r.versions.acquire(ctx, inv.Session)
	if err != nil {
		return readResult{}, verbatimError{err}
	}
	before := files.writes(path)
	files.release() // a long file must not make other calls wait
	h, err := held.latestHandle()
	if err != nil {
		return readResult{}, err
	}
	out, version, err := r.readFile(ctx, h, in)
	if err != nil {
		return readResult{}, err
	}
	out.Accessed = []domain.FileAccess{{Path: path, Access: domain.FileRead, Version: version}}
	if version == "" {
		return out, nil
	}
	if files, err = r.versions.acquire(ctx, inv.Session); err != nil {
		return readResult{}, verbatimError{err}
	}
	defer files.release()
	files.recordRead(path, version, before)
	return out, nil
}

// readFile returns the content of an opened file and its version, which is empty if the
// rest of the file cannot be read. Images and PDF files are returned as media. readFile
// returns a failure for another binary file.
func (r readTool) readFile(ctx context.Context, h *workspace.Handle, in readArgs) (out readResult, version string, err error) {
	f, err := h.Open()
	if err != nil {
		return readResult{}, "", err
	}
	content := contextReader{ctx, f}
	head := make([]byte, sampleSize)
	n, err := io.ReadFull(content, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return readResult{}, "", err
	}
	head = head[:n]
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return readResult{}, "", err
	}
	versioned, err := newVersionReader(f, content)
	if err != nil {
		return readResult{}, "", err
	}
	resolved := h.Resolved()
	name := path.Base(resolved.Path)
	uri := (&url.URL{Scheme: "file", Path: resolved.Path}).String()
	switch mime := media.TypeOf(head); {
	case mime != "":
		var shown media.Attachment
		shown, err = media.Load(versioned, mime, resolved.Resource)
		out = readResult{Type: mediaFile, URI: uri, Name: name, MIME: shown.MIME, Data: shown.Data}
	case isBinary(name, head):
		err = domain.Fail("Cannot read binary file: %s", resolved.Resource)
	default:
		out, err = readPage(versioned, in, cutLines)
		out.MIME = mimeOf(name)
	}
	if err != nil {
		return readResult{}, "", err
	}
	version, _ = versioned.version()
	if out.Type == mediaFile || in.hasRange() || out.Truncated {
		return out, version, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return readResult{}, "", err
	}
	whole, err := io.ReadAll(io.LimitReader(content, maxWholeFile+1))
	if err != nil || len(whole) > maxWholeFile || encodedLen(string(whole)) > maxPageBytes {
		return out, version, err // a line was cut, so the page is all that fits
	}
	return readResult{Type: wholeFile, URI: uri, Name: name, Content: string(whole), Encoding: "utf8", MIME: out.MIME}, contentVersion(whole), nil
}

// presentRead renders the output for the model: the text, the entries or the media, with
// notes about further lines and withheld files.
func presentRead(_ readArgs, out domain.Encoded[readResult]) []domain.Content {
	f, err := out.Value()
	if err != nil {
		return nil
	}
	var text string
	switch f.Type {
	case mediaFile:
		text = "Image read successfully"
		if f.MIME == media.PDF {
			text = "PDF read successfully"
		}
		return []domain.Content{domain.Text(text), domain.Media{MIME: f.MIME, Name: f.Name, Data: f.Data}}
	case directory:
		text = presentEntries(f)
	default:
		text = f.Content
		if text == "" {
			text = "(empty)"
		}
	}
	if f.Truncated {
		text += fmt.Sprintf("\n\n(there is more: read on with offset %d)", f.Next)
	}
	return []domain.Content{domain.Text(text + f.Withheld.String())}
}

// presentEntries returns the paths of the entries, one on each line.
func presentEntries(f readResult) string {
	if len(f.Entries) == 0 {
		return "(no entries)"
	}
	paths := make([]string, len(f.Entries))
	for i, e := range f.Entries {
		paths[i] = e.Path
	}
	return strings.Join(paths, "\n")
}
