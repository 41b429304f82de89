package lsp

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A sourceFile is the file of a call with its content on disk.
type sourceFile struct {
	path    string // canonical and absolute
	name    string // for messages
	content string
	lines   sourceText
}

// A documentSet holds the documents that are open at a server, and the state of the other
// files that the server was notified of. Its lock is held while documents are sent, so
// that the server receives versions in order; the timeout of pipeStream bounds each write.
type documentSet struct {
	sync.Mutex
	open  map[string]*openDocument // by path
	uses  int                      // counts uses of documents
	files map[string]sourceStamp   // of the last scan; the first one precedes the start of the server
}

// An openDocument is a document that the server has open.
type openDocument struct {
	version int
	digest  [sha256.Size]byte // of the content that the server has
	lastUse int               // value of documentSet.uses
}

// A sourceStamp identifies the content of a file without reading it.
type sourceStamp struct {
	size     int64
	modified time.Time
}

// maxOpenDocuments is the maximum number of documents that are open at one server. The
// least recently used one is closed first.
const maxOpenDocuments = 64

// A syncMode says when sync sends the content of a document.
type syncMode int

// The modes of sync.
const (
	sendChanged syncMode = iota // if the server has another content
	sendAlways
)

// sync notifies the server of every file that changed since the last call, and opens or
// updates the document of file. It returns the version of the document. In the mode
// sendAlways the document is sent even if it has not changed, so that the server publishes
// its diagnostics again.
func (s *languageServer) sync(ctx context.Context, file sourceFile, mode syncMode) (version int, err error) {
	d := &s.documents
	d.Lock()
	defer d.Unlock()
	files := scanSources(ctx, s.language, s.folder)
	if ctx.Err() != nil { // the scan may be incomplete
		return 0, context.Cause(ctx)
	}
	if err := s.notifyChanges(files, file.path); err != nil {
		return 0, err
	}
	d.uses++
	digest := sha256.Sum256([]byte(file.content))
	document := d.open[file.path]
	if document == nil {
		if err := s.closeLeastUsed(); err != nil {
			return 0, err
		}
		d.open[file.path] = &openDocument{version: 1, digest: digest, lastUse: d.uses}
		return 1, s.notify("textDocument/didOpen", object{"textDocument": object{
			"uri": fileURI(file.path), "languageId": s.language.ids[filepath.Ext(file.path)], "version": 1, "text": file.content,
		}})
	}
	document.lastUse = d.uses
	if document.digest == digest && mode == sendChanged {
		return document.version, nil
	}
	document.version++
	document.digest = digest
	return document.version, s.notify("textDocument/didChange", object{
		"textDocument":   documentID{fileURI(file.path), document.version},
		"contentChanges": []object{{"text": file.content}},
	})
}

// closeLeastUsed closes the least recently used document if maxOpenDocuments are open. The
// caller holds the lock of the documentSet.
func (s *languageServer) closeLeastUsed() error {
	if len(s.documents.open) < maxOpenDocuments {
		return nil
	}
	oldest := ""
	for path, document := range s.documents.open {
		if oldest == "" || document.lastUse < s.documents.open[oldest].lastUse {
			oldest = path
		}
	}
	return s.closeDocument(oldest)
}

// closeDocument closes an open document, so that the server reads the file again. The
// caller holds the lock of the documentSet.
func (s *languageServer) closeDocument(path string) error {
	delete(s.documents.open, path)
	return s.notify("textDocument/didClose", documentParams{documentID{URI: fileURI(path)}})
}

// maxScannedEntries is the maximum number of directory entries that one scan visits.
const maxScannedEntries = 50_000

// scanSources returns the files below a folder that a server of the language reads. It skips
// directories whose name begins with a dot, and node_modules. It visits entries in the
// order of their names, at most maxScannedEntries. An entry that cannot be read is
// skipped.
func scanSources(ctx context.Context, l *language, folder string) map[string]sourceStamp {
	files, visited := map[string]sourceStamp{}, 0
	_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if visited++; visited > maxScannedEntries || ctx.Err() != nil {
			return filepath.SkipAll
		}
		switch {
		case err != nil:
			return nil
		case entry.IsDir():
			if path != folder && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules") {
				return filepath.SkipDir
			}
		case entry.Type().IsRegular() && l.reads(entry.Name()):
			if info, err := entry.Info(); err == nil {
				files[path] = sourceStamp{info.Size(), info.ModTime()}
			}
		}
		return nil
	})
	return files
}

// The kinds of change in workspace/didChangeWatchedFiles.
const (
	fileCreated = 1
	fileChanged = 2
	fileDeleted = 3
)

// notifyChanges compares a scan with the scan before and notifies the server of all
// changes. It closes each open document whose file changed, except the document of the
// file current. The caller holds the lock of the documentSet.
func (s *languageServer) notifyChanges(now map[string]sourceStamp, current string) error {
	before := s.documents.files
	s.documents.files = now
	changes := []object{}
	add := func(path string, kind int) error {
		changes = append(changes, object{"uri": fileURI(path), "type": kind})
		if s.documents.open[path] == nil || path == current {
			return nil
		}
		return s.closeDocument(path)
	}
	for path, stamp := range now {
		was, existed := before[path]
		kind := fileCreated
		if existed {
			kind = fileChanged
		}
		if !existed || was.size != stamp.size || !was.modified.Equal(stamp.modified) {
			if err := add(path, kind); err != nil {
				return err
			}
		}
	}
	for path := range before {
		if _, exists := now[path]; !exists {
			if err := add(path, fileDeleted); err != nil {
				return err
			}
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return s.notify("workspace/didChangeWatchedFiles", object{"changes": changes})
}
