package lsp

import (
	"fmt"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

// A codeResult is one result of the tool. Positions count from 1, characters in Unicode
// characters.
type codeResult struct {
	Path      string         `json:"path"` // relative to the workspace, or absolute outside it
	Line      int            `json:"line"`
	Character int            `json:"character"`
	EndLine   int            `json:"end_line"`
	EndChar   int            `json:"end_character"` // exclusive
	Kind      string         `json:"kind,omitempty"`
	Name      string         `json:"name,omitempty"`
	Container string         `json:"container,omitempty"`
	Text      string         `json:"text,omitempty"`
	Calls     []textPosition `json:"calls,omitempty"`
}

// omittedResults counts the results that a call did not return.
type omittedResults struct {
	Denied       int `json:"denied,omitempty"`    // a rule denies reading their file
	NotPermitted int `json:"closed,omitempty"`    // reading their file needs a permission that was not given
	NoFile       int `json:"no_file,omitempty"`   // they are in no file of this machine
	Surplus      int `json:"truncated,omitempty"` // after the first maxResults
}

// String returns a note for the model with every count that is not zero.
func (o omittedResults) String() string {
	text := ""
	for _, note := range []struct {
		count  int
		reason string
	}{
		{o.Denied, "a rule denies reading their file"},
		{o.NotPermitted, "reading their file needs a permission, which was not given"},
		{o.NoFile, "they are in no file"},
		{o.Surplus, fmt.Sprintf("only the first %d are shown", maxResults)},
	} {
		if note.count > 0 {
			text += fmt.Sprintf("\n\n(%d results were left out: %s)", note.count, note.reason)
		}
	}
	return text
}

// The limits of the results of one call.
const (
	maxResults     = 2000
	maxLineText    = 300      // bytes of a line, a name or a detail
	maxLongText    = 64 << 10 // bytes of a hover text or a diagnostic
	maxCallsShown  = 100      // positions of calls in one result
	maxSource      = 4 << 20  // bytes of a file
	maxSourceTotal = 64 << 20 // bytes of the files that are read for one call
)

// A resultFilter turns the results of a server into results of the tool, and omits results
// in files that the call may not read. It belongs to one call.
type resultFilter struct {
	config   Config
	inv      domain.Invocation
	encoding positionEncoding
	files    map[string]*resultFile // by absolute path
	room     int                    // bytes of files that may still be read
	omitted  omittedResults
}

// A resultFile is a file with results.
type resultFile struct {
	path    string // relative to the workspace or absolute
	access  fileVerdict
	content sourceText // nil: the file cannot be read or is not shown
}

// A fileVerdict says whether results in a file are returned.
type fileVerdict int

// The verdicts about a file.
const (
	fileDenied    fileVerdict = iota // a rule denies reading it
	fileAsked                        // reading it needs a permission
	fileLocated                      // only positions in it are returned
	fileDisclosed                    // its text is returned too
)

// file returns the file of a URI, or nil if the URI names no file. It reads the file once.
func (f *resultFilter) file(uri string) *resultFile {
	path, err := pathOf(uri)
	if err != nil {
		return nil
	}
	if known := f.files[path]; known != nil {
		return known
	}
	file := &resultFile{}
	f.files[path] = file
	target, err := f.config.Workspace.Resolve(path)
	if err != nil {
		file.access = fileAsked // such as a link out of the workspace, which no permission opens
		return file
	}
	file.path, file.access = target.Resource, f.verdict(target)
	if file.access == fileDisclosed && f.room > 0 {
		if data, err := target.ReadAll(min(maxSource, int64(f.room))); err == nil {
			f.room -= len(data)
			file.content = parseSource(string(data))
		}
	}
	return file
}

// verdict evaluates the permissions of a file as the tools grep and glob do, without
// asking a person. A file outside the workspace gets fileLocated unless the rules allow or
// deny its directory.
func (f *resultFilter) verdict(target workspace.ResolvedPath) fileVerdict {
	check := func(action, resource string) permission.Evaluation {
		return f.config.Permission.Check(f.inv, permission.Ask{Action: action, Resources: []string{resource}})
	}
	read, own := check(actionRead, target.Resource), check(actionLSP, target.Resource)
	switch {
	// A rule that denies lsp on every resource does not count: it would have denied the
	// call itself.
	case read.Effect == domain.Deny, own.Effect == domain.Deny && own.Rule.Resource != "*":
		return fileDenied
	case read.Effect == domain.Ask && read.Specific:
		return fileAsked
	case target.External == "":
		return fileDisclosed
	}
	switch check(actionExternal, target.External).Effect {
	case domain.Allow:
		return fileDisclosed
	case domain.Deny:
		return fileDenied
	}
	return fileLocated
}

// admit returns the file of a result. It returns nil for a result that it omits, and
// counts it.
func (f *resultFilter) admit(r rawResult) *resultFile {
	file := f.file(r.uri)
	if file == nil {
		f.omitted.NoFile++
		return nil
	}
	access := file.access
	for _, uri := range r.sources {
		if source := f.file(uri); source != nil {
			access = min(access, source.access)
		}
	}
	switch access {
	case fileDenied:
		f.omitted.Denied++
		return nil
	case fileAsked:
		f.omitted.NotPermitted++
		return nil
	}
	return file
}

// results returns the results of the tool, in the order of the server.
func (f *resultFilter) results(raw []rawResult) []codeResult {
	results := []codeResult{}
	for i, r := range raw {
		if len(results) == maxResults {
			f.omitted.Surplus = len(raw) - i
			break
		}
		if file := f.admit(r); file != nil {
			results = append(results, f.result(r, file))
		}
	}
	return results
}

// result returns one result in a file.
func (f *resultFilter) result(r rawResult, file *resultFile) codeResult {
	start, end := file.content.locate(r.at.Start, f.encoding), file.content.locate(r.at.End, f.encoding)
	result := codeResult{
		Path: file.path, Line: start.Line, Character: start.Character, EndLine: end.Line, EndChar: end.Character,
		Kind: r.kind, Name: clip(r.name, maxLineText), Container: clip(r.container, maxLineText), Text: clip(r.text, maxLongText),
	}
	if r.text == "" && r.name == "" {
		result.Text = clip(file.content.line(start.Line), maxLineText)
	}
	if len(r.calls) == 0 {
		return result
	}
	if in := f.file(r.callsURI); in != nil && in.access >= fileLocated {
		for _, at := range r.calls[:min(len(r.calls), maxCallsShown)] {
			result.Calls = append(result.Calls, in.content.locate(at.Start, f.encoding))
		}
	}
	return result
}
