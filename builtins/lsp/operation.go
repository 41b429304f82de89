package lsp

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
)

// A query is the request of a call to a server.
type query struct {
	operation string
	file      sourceFile
	at        textPosition // zero for an operation without a position
	text      string       // the search text of workspaceSymbol
}

// A rawResult is one result in the form of the server.
type rawResult struct {
	uri       string
	at        protocolRange
	kind      string
	name      string
	container string
	text      string // empty: the line of the file at the position
	calls     []protocolRange
	callsURI  string   // the file of calls
	sources   []string // URIs of further files from which text may come
}

// An operationSpec describes one operation of the tool.
type operationSpec struct {
	provider string // the capability that a server needs; empty: no capability
	position bool   // the operation needs line and character
	perform  func(context.Context, *languageServer, query) ([]rawResult, error)
}

// operationSpecs returns the operations of the tool by name.
func operationSpecs() map[string]operationSpec {
	return map[string]operationSpec{
		"goToDefinition":       {"definitionProvider", true, locations("textDocument/definition")},
		"findReferences":       {"referencesProvider", true, locations("textDocument/references")},
		"goToImplementation":   {"implementationProvider", true, locations("textDocument/implementation")},
		"hover":                {"hoverProvider", true, hover},
		"documentSymbol":       {"documentSymbolProvider", false, documentSymbols},
		"workspaceSymbol":      {"workspaceSymbolProvider", false, workspaceSymbols},
		"prepareCallHierarchy": {"callHierarchyProvider", true, callItems},
		"incomingCalls":        {"callHierarchyProvider", true, calls("callHierarchy/incomingCalls")},
		"outgoingCalls":        {"callHierarchyProvider", true, calls("callHierarchy/outgoingCalls")},
		"diagnostics":          {"", false, diagnose},
	}
}

// operationNames returns the names of the operations, sorted.
func operationNames() []string { return slices.Sorted(maps.Keys(operationSpecs())) }

// perform performs a query at a server.
func perform(q query) operation {
	return func(ctx context.Context, s *languageServer) ([]rawResult, error) {
		spec := operationSpecs()[q.operation]
		if spec.provider != "" && !s.supports(spec.provider) {
			return nil, domain.Fail("%s does not support %s", s.program.name, q.operation)
		}
		return spec.perform(ctx, s, q)
	}
}

// requestInto sends a request and decodes its result into result, a pointer. A result of
// another form is a failure.
func (s *languageServer) requestInto(ctx context.Context, method string, params, result any) error {
	raw, err := s.request(ctx, method, params)
	if err != nil {
		return err
	}
	return s.decode(method, raw, result)
}

// decode decodes the result of a request. A result of another form is a failure.
func (s *languageServer) decode(method string, raw json.RawMessage, result any) error {
	if err := json.Unmarshal(raw, result); err != nil {
		return domain.Fail("%s returned an invalid result of %s: %s", s.program.name, method, err)
	}
	return nil
}

// positionOf sends the changed document of a query to the server and returns the
// parameters for the position of the query.
func (s *languageServer) positionOf(ctx context.Context, q query) (positionParams, error) {
	position, err := q.file.lines.position(q.file.name, q.at.Line, q.at.Character, s.encoding)
	if err != nil {
		return positionParams{}, err
	}
	_, err = s.sync(ctx, q.file, sendChanged)
	return positionParams{Document: documentID{URI: fileURI(q.file.path)}, Position: position}, err
}

// locations returns the operation that requests locations by a method.
func locations(method string) func(context.Context, *languageServer, query) ([]rawResult, error) {
	return func(ctx context.Context, s *languageServer, q query) ([]rawResult, error) {
		params, err := s.positionOf(ctx, q)
		if err != nil {
			return nil, err
		}
		if method == "textDocument/references" {
			params.Context = &referenceContext{IncludeDeclaration: true}
		}
		return s.locate(ctx, method, params)
	}
}

// locate requests locations by a method.
func (s *languageServer) locate(ctx context.Context, method string, params positionParams) ([]rawResult, error) {
	raw, err := s.request(ctx, method, params)
	if err != nil {
		return nil, err
	}
	found, err := decodeLocations(raw)
	if err != nil {
		return nil, domain.Fail("%s returned an invalid result of %s: %s", s.program.name, method, err)
	}
	results := make([]rawResult, len(found))
	for i, location := range found {
		results[i].uri, results[i].at = location.target()
	}
	return results, nil
}

// hover requests the description of the symbol at a position. It also requests the
// definitions, because the description quotes them.
func hover(ctx context.Context, s *languageServer, q query) ([]rawResult, error) {
	params, err := s.positionOf(ctx, q)
	if err != nil {
		return nil, err
	}
	raw, err := s.request(ctx, "textDocument/hover", params)
	if err != nil {
		return nil, err
	}
	text, err := hoverText(raw)
	if err != nil {
		return nil, domain.Fail("%s returned an invalid result of textDocument/hover: %s", s.program.name, err)
	}
	if text == "" {
		return nil, nil
	}
	result := rawResult{uri: params.Document.URI, at: protocolRange{params.Position, params.Position}, text: text}
	if s.supports("definitionProvider") {
		definitions, err := s.locate(ctx, "textDocument/definition", params)
		if ctx.Err() != nil {
			return nil, err
		}
		for _, d := range definitions { // none after an error: the text has no definition
			result.sources = append(result.sources, d.uri)
		}
	}
	return []rawResult{result}, nil
}

// documentSymbols requests the symbols of a file.
func documentSymbols(ctx context.Context, s *languageServer, q query) ([]rawResult, error) {
	if _, err := s.sync(ctx, q.file, sendChanged); err != nil {
		return nil, err
	}
	var symbols []protocolSymbol
	uri := fileURI(q.file.path)
	if err := s.requestInto(ctx, "textDocument/documentSymbol", documentParams{documentID{URI: uri}}, &symbols); err != nil {
		return nil, err
	}
	return flatten(nil, symbols, uri, ""), nil
}

// workspaceSymbols requests the symbols of the workspace that match the text of a query.
func workspaceSymbols(ctx context.Context, s *languageServer, q query) ([]rawResult, error) {
	if _, err := s.sync(ctx, q.file, sendChanged); err != nil {
		return nil, err
	}
	var symbols []protocolSymbol
	if err := s.requestInto(ctx, "workspace/symbol", object{"query": q.text}, &symbols); err != nil {
		return nil, err
	}
	return flatten(nil, symbols, "", ""), nil
}

// flatten appends symbols and their children to results, each with the names of the
// symbols that contain it. uri is the file of symbols without a location.
func flatten(results []rawResult, symbols []protocolSymbol, uri, container string) []rawResult {
	for _, symbol := range symbols {
		r := rawResult{uri: uri, at: symbol.SelectionRange, kind: nameAt(symbolKinds, symbol.Kind), name: symbol.Name, container: container, text: symbol.Detail}
		if symbol.Location != nil {
			r.uri, r.at = symbol.Location.target()
			r.container = symbol.Container
		}
		results = append(results, r)
		within := symbol.Name
		if container != "" {
			within = container + "." + symbol.Name
		}
		results = flatten(results, symbol.Children, uri, within)
	}
	return results
}

// prepareCalls requests the items of the call hierarchy at a position.
func (s *languageServer) prepareCalls(ctx context.Context, q query) (items []callItem, err error) {
	params, err := s.positionOf(ctx, q)
	if err != nil {
		return nil, err
	}
	return items, s.requestInto(ctx, "textDocument/prepareCallHierarchy", params, &items)
}

// callItems requests the functions at a position.
func callItems(ctx context.Context, s *languageServer, q query) ([]rawResult, error) {
	items, err := s.prepareCalls(ctx, q)
	if err != nil {
		return nil, err
	}
	results := make([]rawResult, len(items))
	for i, item := range items {
		results[i] = item.result()
	}
	return results, nil
}

// result returns a call item as a result.
func (c callItem) result() rawResult {
	return rawResult{uri: c.URI, at: c.SelectionRange, kind: nameAt(symbolKinds, c.Kind), name: c.Name, text: c.Detail}
}

// maxCallItems is the maximum number of functions at one position whose calls are
// requested.
const maxCallItems = 8

// calls returns the operation that requests the callers or the callees of the function at
// a position. The positions of the calls lie in the file of the caller.
func calls(method string) func(context.Context, *languageServer, query) ([]rawResult, error) {
	return func(ctx context.Context, s *languageServer, q query) ([]rawResult, error) {
		items, err := s.prepareCalls(ctx, q)
		if err != nil {
			return nil, err
		}
		var results []rawResult
		for _, item := range items[:min(len(items), maxCallItems)] {
			var found []protocolCall
			if err := s.requestInto(ctx, method, object{"item": item}, &found); err != nil {
				return nil, err
			}
			for _, c := range found {
				other, callsURI := c.To, item.URI
				if c.From != nil {
					other, callsURI = c.From, c.From.URI
				}
				if other == nil {
					return nil, domain.Fail("%s returned an invalid result of %s: a call without a function", s.program.name, method)
				}
				r := other.result()
				r.calls, r.callsURI = c.Ranges, callsURI
				results = append(results, r)
			}
		}
		return results, nil
	}
}
