package lsp

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/shellcommand"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed lsp.md
var description string

// lspArgs is the input of the tool lsp.
type lspArgs struct {
	Operation string `json:"operation" jsonschema:"what to look up"`
	Path      string `json:"path" jsonschema:"the source file; for workspaceSymbol any source file of the language"`
	Line      int    `json:"line,omitempty" jsonschema:"the line of the symbol, from 1"`
	Character int    `json:"character,omitempty" jsonschema:"the character in the line, from 1"`
	Query     string `json:"query,omitempty" jsonschema:"the name to search for, of workspaceSymbol"`
}

// lspResult is the output of the tool lsp.
type lspResult struct {
	Operation string         `json:"operation"`
	Server    string         `json:"server"` // the program that replied
	Results   []codeResult   `json:"results"`
	Omitted   omittedResults `json:"left_out,omitzero"`
}

// The permission actions that the tool requests or checks.
const (
	actionLSP      = "lsp"
	actionRead     = "read"
	actionExternal = "external_directory"
)

// Tool returns the tool lsp, which uses the servers of the pool. After Close its calls
// return ErrServersClosed.
func (p *Servers) Tool() (domain.Tool, error) {
	names, err := json.Marshal(operationNames())
	if err != nil {
		return domain.Tool{}, fmt.Errorf("make tool lsp: %w", err)
	}
	return domain.Make(domain.Spec[lspArgs, lspResult]{
		Description: description,
		Input: domain.Constrained[lspArgs](fmt.Sprintf(
			`{"properties":{"operation":{"enum":%s},"path":{"minLength":1},"line":{"minimum":1},"character":{"minimum":1}}}`, names)),
		Execute:    p.execute,
		Present:    present,
		Idempotent: true,
		AsksFirst:  true,
		Available:  domain.Availability{{Needs: []string{serverNeed()}}},
		Title:      title,
	})
}

// title returns the operation and its position, for a person.
func title(in lspArgs) string {
	switch {
	case in.Operation == "workspaceSymbol":
		return strings.TrimSpace(in.Operation + " " + in.Query)
	case in.Line == 0:
		return in.Operation + " " + in.Path
	}
	return fmt.Sprintf("%s %s:%d", in.Operation, in.Path, in.Line)
}

// execute executes one call. It opens the file, asks for permission, and performs the
// operation at the server of its language.
func (p *Servers) execute(ctx context.Context, in lspArgs, inv domain.Invocation) (lspResult, error) {
	if operationSpecs()[in.Operation].position && (in.Line == 0 || in.Character == 0) {
		return lspResult{}, domain.Fail("%s needs line and character", in.Operation)
	}
	target, err := p.config.Workspace.Resolve(in.Path)
	if err != nil {
		return lspResult{}, unusable(in.Path, err)
	}
	l := languageOf(target.Path)
	if l == nil {
		return lspResult{}, domain.Fail("There is no language server for %s: the tool knows the extensions %s", in.Path, knownExtensions())
	}
	file, err := p.permittedFile(ctx, in, inv, target)
	if err != nil {
		return lspResult{}, err
	}
	q := query{operation: in.Operation, file: file, text: in.Query}
	if operationSpecs()[in.Operation].position {
		q.at = textPosition{in.Line, in.Character}
	}
	end := p.run(ctx, serverKey{p.folderOf(target), l}, perform(q))
	if end.err != nil {
		return lspResult{}, end.err
	}
	filter := resultFilter{config: p.config, inv: inv, encoding: end.server.encoding, files: map[string]*resultFile{}, room: maxSourceTotal}
	results := filter.results(end.results)
	return lspResult{Operation: in.Operation, Server: end.server.program.name, Results: results, Omitted: filter.omitted}, nil
}

// folderOf returns the folder of the server that serves a file: the workspace, or the
// directory of a file outside it.
func (p *Servers) folderOf(target workspace.ResolvedPath) string {
	if target.External == "" {
		return p.config.Workspace.Path()
	}
	if directory := strings.TrimSuffix(target.External, "/*"); directory != "" {
		return directory
	}
	return "/"
}

// permittedFile opens the file of a call, asks for every permission that the call needs,
// and reads the file. If a person decided a request and the path then leads to another
// file, permittedFile returns a failure.
func (p *Servers) permittedFile(ctx context.Context, in lspArgs, inv domain.Invocation, target workspace.ResolvedPath) (sourceFile, error) {
	handle, openErr := target.Acquire()
	if openErr == nil {
		defer handle.Close()
	}
	asked, err := p.authorize(ctx, in, inv, target)
	if err != nil {
		return sourceFile{}, err
	}
	if openErr != nil {
		return sourceFile{}, unusable(in.Path, openErr)
	}
	if asked {
		if err := handle.Verify(); err != nil {
			return sourceFile{}, unusable(in.Path, err)
		}
	}
	data, err := handle.ReadAll(maxSource)
	if err != nil {
		return sourceFile{}, unusable(in.Path, err)
	}
	if !utf8.Valid(data) {
		return sourceFile{}, domain.Fail("Unable to use the language server for %s: the file is not UTF-8 text", in.Path)
	}
	content := string(data)
	return sourceFile{path: target.Path, name: target.Resource, content: content, lines: parseSource(content)}, nil
}

// authorize asks for external_directory if the file lies outside the workspace, for lsp,
// and for read if the rules name it for this file. It reports whether a person was asked.
func (p *Servers) authorize(ctx context.Context, in lspArgs, inv domain.Invocation, target workspace.ResolvedPath) (asked bool, err error) {
	metadata, err := json.Marshal(in)
	if err != nil {
		return false, err
	}
	asks := []permission.Ask{{Action: actionLSP, Resources: []string{target.Resource}, Save: []string{"*"}, Metadata: metadata}}
	if target.External != "" {
		var save []string
		if directory := p.folderOf(target); directory != "/" { // its pattern would cover every file
			save = []string{shellcommand.LiteralPattern(directory) + "/*"}
		}
		asks = slices.Insert(asks, 0, permission.Ask{Action: actionExternal, Resources: []string{target.External}, Save: save, Metadata: metadata})
	}
	read := permission.Ask{Action: actionRead, Resources: []string{target.Resource}, Save: []string{shellcommand.LiteralPattern(target.Resource)}, Metadata: metadata}
	if v := p.config.Permission.Check(inv, read); v.Effect == domain.Deny || v.Effect == domain.Ask && v.Specific {
		asks = append(asks, read)
	}
	for _, ask := range asks {
		asked = asked || p.config.Permission.Check(inv, ask).Effect == domain.Ask
		if err := p.config.Permission.Assert(ctx, inv, ask); err != nil {
			return asked, err
		}
	}
	return asked, nil
}

// unusable returns the failure of a path that cannot be resolved or read.
func unusable(path string, err error) error {
	text := err.Error()
	for _, known := range []error{workspace.ErrTooLarge, workspace.ErrNotRegular} {
		if errors.Is(err, known) {
			return domain.Fail("Unable to use the language server for %s: %s", path, text)
		}
	}
	return domain.Fail("Unable to use the language server for %s: %s", path, rootCause(err))
}

// present renders the output for the model: a line PATH:LINE:CHARACTER for each result, with
// its kind, name and text.
func present(in lspArgs, out domain.Encoded[lspResult]) []domain.Content {
	r, err := out.Value()
	if err != nil {
		return nil
	}
	lines := make([]string, len(r.Results))
	for i, result := range r.Results {
		lines[i] = result.line(r.Operation)
	}
	text := strings.Join(lines, "\n")
	if len(r.Results) == 0 {
		text = "No results found for " + in.Operation
	}
	return []domain.Content{domain.Text(text + r.Omitted.String())}
}

// line renders one result.
func (r codeResult) line(operation string) string {
	at := fmt.Sprintf("%s:%d:%d", r.Path, r.Line, r.Character)
	switch operation {
	case "hover":
		return at + "\n" + r.Text
	case "diagnostics":
		text := fmt.Sprintf("%s  %s: %s", at, r.Kind, r.Text)
		if r.Name != "" {
			text += " (" + r.Name + ")"
		}
		return text
	}
	words := []string{}
	for _, word := range []string{r.Kind, r.Name, r.Text} {
		if word != "" {
			words = append(words, word)
		}
	}
	text := strings.TrimRight(at+"  "+strings.Join(words, " "), " ")
	if r.Container != "" {
		text += " in " + r.Container
	}
	for i, call := range r.Calls {
		if i == 0 {
			text += " (calls at " + call.String()
		} else {
			text += ", " + call.String()
		}
	}
	if len(r.Calls) > 0 {
		text += ")"
	}
	return text
}
