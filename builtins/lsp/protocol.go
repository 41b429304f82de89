package lsp

import (
	"encoding/json"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
)

// A protocolPosition is a position in a document: a line and an offset in code units of
// the negotiated encoding, both from zero.
type protocolPosition struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

// A protocolRange is a range in a document; End is exclusive.
type protocolRange struct {
	Start protocolPosition `json:"start"`
	End   protocolPosition `json:"end"`
}

// A documentID names a document, and its version in notifications about its content.
type documentID struct {
	URI     string `json:"uri"`
	Version int    `json:"version,omitempty"`
}

// positionParams are the parameters of a request about a position.
type positionParams struct {
	Document documentID       `json:"textDocument"`
	Position protocolPosition `json:"position"`
	// Context is set for textDocument/references only.
	Context *referenceContext `json:"context,omitempty"`
}

// A referenceContext says whether the declaration is one of the references.
type referenceContext struct {
	IncludeDeclaration bool `json:"includeDeclaration"`
}

// documentParams are the parameters of a request about a document.
type documentParams struct {
	Document documentID `json:"textDocument"`
}

// A protocolLocation is a Location or a LocationLink, which have different keys.
type protocolLocation struct {
	URI             string        `json:"uri"`
	Range           protocolRange `json:"range"`
	TargetURI       string        `json:"targetUri"`
	TargetSelection protocolRange `json:"targetSelectionRange"`
}

// target returns the URI and the range of either form.
func (l protocolLocation) target() (string, protocolRange) {
	if l.TargetURI != "" {
		return l.TargetURI, l.TargetSelection
	}
	return l.URI, l.Range
}

// decodeLocations decodes null, a location, or a list of locations.
func decodeLocations(raw json.RawMessage) (locations []protocolLocation, err error) {
	if strings.HasPrefix(string(raw), "{") {
		locations = make([]protocolLocation, 1)
		return locations, json.Unmarshal(raw, &locations[0])
	}
	return locations, json.Unmarshal(raw, &locations)
}

// A protocolSymbol is a DocumentSymbol, a SymbolInformation or a WorkspaceSymbol.
type protocolSymbol struct {
	Name           string            `json:"name"`
	Detail         string            `json:"detail"`
	Kind           int               `json:"kind"`
	Container      string            `json:"containerName"`
	Range          protocolRange     `json:"range"`
	SelectionRange protocolRange     `json:"selectionRange"`
	Location       *protocolLocation `json:"location"` // nil for a DocumentSymbol
	Children       []protocolSymbol  `json:"children"`
}

// A callItem is a CallHierarchyItem. Data belongs to the server, which gets it back
// unchanged.
type callItem struct {
	Name           string          `json:"name"`
	Kind           int             `json:"kind"`
	Tags           json.RawMessage `json:"tags,omitempty"`
	Detail         string          `json:"detail,omitempty"`
	URI            string          `json:"uri"`
	Range          protocolRange   `json:"range"`
	SelectionRange protocolRange   `json:"selectionRange"`
	Data           json.RawMessage `json:"data,omitempty"`
}

// A protocolCall is a CallHierarchyIncomingCall or a CallHierarchyOutgoingCall.
type protocolCall struct {
	From   *callItem       `json:"from"`
	To     *callItem       `json:"to"`
	Ranges []protocolRange `json:"fromRanges"`
}

// A protocolDiagnostic is a Diagnostic.
type protocolDiagnostic struct {
	Range    protocolRange   `json:"range"`
	Severity int             `json:"severity"`
	Code     json.RawMessage `json:"code"`
	Source   string          `json:"source"`
	Message  string          `json:"message"`
}

// publishedDiagnostics are the parameters of textDocument/publishDiagnostics.
type publishedDiagnostics struct {
	URI         string               `json:"uri"`
	Version     *int                 `json:"version"`
	Diagnostics []protocolDiagnostic `json:"diagnostics"`
}

// hoverText returns the text of a Hover, whose contents are a MarkupContent, a
// MarkedString or a list of these. It returns an empty text for null.
func hoverText(raw json.RawMessage) (string, error) {
	var hover *struct {
		Contents json.RawMessage `json:"contents"`
	}
	if err := json.Unmarshal(raw, &hover); err != nil || hover == nil {
		return "", err
	}
	parts := []json.RawMessage{hover.Contents}
	if strings.HasPrefix(string(hover.Contents), "[") {
		if err := json.Unmarshal(hover.Contents, &parts); err != nil {
			return "", err
		}
	}
	var texts []string
	for _, part := range parts {
		text, err := markedText(part)
		if err != nil {
			return "", err
		}
		if text = strings.TrimSpace(text); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n\n"), nil
}

// markedText returns the text of a string, a MarkedString or a MarkupContent.
func markedText(raw json.RawMessage) (string, error) {
	if strings.HasPrefix(string(raw), `"`) {
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err
	}
	var marked struct {
		Value string `json:"value"`
	}
	err := json.Unmarshal(raw, &marked)
	return marked.Value, err
}

// symbolKinds are the names of the symbol kinds of the protocol, from 1.
var symbolKinds = strings.Fields("file module namespace package class method property field constructor enum interface function " +
	"variable constant string number boolean array object key null enum-member struct event operator type-parameter")

// severities are the names of the diagnostic severities of the protocol, from 1.
var severities = []string{"error", "warning", "information", "hint"}

// nameAt returns the name of a number from 1, or an empty text for a number without one.
func nameAt(names []string, number int) string {
	if number < 1 || number > len(names) {
		return ""
	}
	return names[number-1]
}

// fileURI returns the URI of an absolute path.
func fileURI(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }

// errNotAFile says that a URI names no file of this machine.
var errNotAFile = errors.New("the location is not in a file")

// pathOf returns the absolute path of a file URI, or errNotAFile.
func pathOf(uri string) (string, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Host != "" && u.Host != "localhost" || !filepath.IsAbs(u.Path) {
		return "", errNotAFile
	}
	return filepath.Clean(u.Path), nil
}
