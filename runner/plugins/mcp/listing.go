package mcp

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner/plugins/mcp/transport"
)

// The limits of a listing.
const (
	// MaxTools is the number of tools of one server.
	MaxTools = 200
	// maxPages and maxListed end a listing that does not end.
	maxPages  = 100
	maxListed = 10_000
	// maxListing is the size of all pages in bytes.
	maxListing = 64 << 20
	// maxDescription is the size of a description in bytes.
	maxDescription = 32 << 10
	// maxRefused is the number of tools that are refused by name.
	maxRefused = 50
)

// A rawTool is a tool as the server wrote it.
type rawTool struct {
	Name        string         `json:"name"`
	Title       string         `json:"title"`
	Description string         `json:"description"`
	Input       jsontext.Value `json:"inputSchema"`
	Output      jsontext.Value `json:"outputSchema"`
	Annotations jsontext.Value `json:"annotations"`
	Execution   jsontext.Value `json:"execution"`
}

// needsTask reports whether every call of the tool starts a task.
func (t rawTool) needsTask() bool {
	var execution struct {
		Task jsontext.Value `json:"taskSupport"`
	}
	return t.Execution != nil && json.Unmarshal(t.Execution, &execution, jsontext.AllowInvalidUTF8(true)) == nil && string(execution.Task) == `"required"`
}

// A toolHints are the annotations that this client reads.
type toolHints struct {
	Title      string `json:"title"`
	ReadOnly   bool   `json:"readOnlyHint"`
	Idempotent bool   `json:"idempotentHint"`
}

// A listing is the list of tools of a server, without the tools that the configuration
// leaves out.
type listing struct {
	tools []*remoteTool
	// refused are the reasons for tools that cannot be offered, and for the end of a list
	// before its last page, by name.
	refused map[string]error
	more    int // refused tools without a name in refused
}

// refuse adds a reason for a tool. The key is a name for the record.
func (l *listing) refuse(name string, reason error) {
	if _, known := l.refused[name]; !known && len(l.refused) >= maxRefused {
		l.more++
		return
	}
	l.refused[name] = errors.Join(l.refused[name], reason)
}

// list reads the list of tools.
func (c *connection) list(ctx context.Context) (*listing, error) {
	l := &listing{refused: map[string]error{}}
	names := map[domain.Name]bool{}
	seen := map[string]bool{}
	cursor, size, read := "", 0, 0
	whole := "tools of mcp server " + c.server.config.Name
	for page := 1; ; page++ {
		raw, usable, next, err := c.listPage(ctx, cursor)
		if err != nil {
			return nil, err
		}
		size += len(raw)
		tools, err := listedTools(raw)
		if err != nil {
			return nil, err
		}
		for _, t := range tools {
			if read++; read <= maxListed {
				c.server.addTool(l, names, t, usable)
			}
		}
		switch {
		case next == "":
		case seen[next]:
			l.refuse(whole, errors.New("the list repeats the cursor of a page; the tools up to there are used"))
		case page == maxPages || read > maxListed || size > maxListing:
			l.refuse(whole, fmt.Errorf("the list does not end after %d pages with %d tools; the tools up to there are used", page, read))
		default:
			seen[next], cursor = true, next
			continue
		}
		if l.more > 0 {
			l.refused[whole] = errors.Join(l.refused[whole], fmt.Errorf("%d more tools were refused", l.more))
		}
		return l, nil
	}
}

// listedTools returns the tools of a page. It returns an error for a result without a list,
// and for one of a type that is not complete, such as a task: its list would be empty.
func listedTools(page stdjson.RawMessage) ([]jsontext.Value, error) {
	var result struct {
		Type  *string           `json:"resultType"`
		Tools *[]jsontext.Value `json:"tools"`
	}
	switch err := json.Unmarshal(page, &result, jsontext.AllowInvalidUTF8(true)); {
	case err == nil && result.Type != nil && *result.Type != "complete":
		return nil, fmt.Errorf("its answer to tools/list has the resultType %.100q and no list of tools", *result.Type)
	case err != nil || result.Tools == nil:
		return nil, errors.New("its answer to tools/list is no list of tools")
	}
	return *result.Tools, nil
}

// listPage reads one page. It returns the result as the server wrote it, the names of the
// tools that the SDK can call, and the next cursor.
func (c *connection) listPage(ctx context.Context, cursor string) (raw stdjson.RawMessage, usable []string, next string, err error) {
	token := c.newToken()
	x := c.link.Exchange(token)
	defer c.link.Forget(x)
	params := &sdk.ListToolsParams{Cursor: cursor}
	params.SetProgressToken(token)
	result, err := c.session.ListTools(ctx, params)
	if err != nil {
		return nil, nil, "", err
	}
	for _, t := range result.Tools {
		usable = append(usable, t.Name)
	}
	return x.Result(), usable, result.NextCursor, nil
}

// addTool adds a tool to a listing, or its refusal.
func (s *ToolServer) addTool(l *listing, names map[domain.Name]bool, raw jsontext.Value, usable []string) {
	var t rawTool
	if err := json.Unmarshal(raw, &t, jsontext.AllowInvalidUTF8(true)); err != nil || t.Name == "" {
		l.refuse("(a tool without a definition)", errors.New("it is no definition of a tool"))
		return
	}
	if !s.isListed(t.Name) {
		return
	}
	shown := s.config.Name + "_" + s.clean.line(t.Name, 100)
	if names[domain.Name(s.config.Name+"_"+t.Name)] {
		l.refuse(shown, errors.New("the server lists two tools of this name; the first one is used"))
		return
	}
	tool, err := s.makeRemote(t)
	if err == nil && t.needsTask() {
		err = errors.New("every call of it starts a task, which this client does not poll")
	}
	if err == nil && !slices.Contains(usable, t.Name) {
		err = errors.New("its x-mcp-header annotations are not valid")
	}
	if err == nil && len(l.tools) >= MaxTools {
		err = fmt.Errorf("the server has more than %d tools; the first ones are used: choose tools with tools.allow", MaxTools)
	}
	if err != nil {
		l.refuse(shown, errors.New(s.clean.line(err.Error(), 1000)))
		return
	}
	names[tool.name] = true
	l.tools = append(l.tools, tool)
}

// isListed reports whether the configuration lets a tool of the server through.
func (s *ToolServer) isListed(name string) bool {
	matches := func(pattern string) bool { return domain.Match(pattern, name) }
	allowed := len(s.config.Allow) == 0 || slices.ContainsFunc(s.config.Allow, matches)
	return allowed && !slices.ContainsFunc(s.config.Deny, matches)
}

// makeRemote checks a definition and removes the secrets from it.
func (s *ToolServer) makeRemote(t rawTool) (*remoteTool, error) {
	name, err := domain.ParseName(s.config.Name + "_" + t.Name)
	if err != nil {
		return nil, err
	}
	r := &remoteTool{server: s, name: name, definition: toolDefinition{
		Server: s.identity, Tool: t.Name, Title: s.clean.line(t.Title, 200), Description: s.clean.text(t.Description),
	}}
	d := &r.definition
	if len(d.Description) > maxDescription {
		return nil, fmt.Errorf("its description is over the limit of %d bytes", maxDescription)
	}
	if d.Input, err = s.schema("inputSchema", t.Input); err != nil {
		return nil, err
	}
	var shape struct {
		Type jsontext.Value `json:"type"`
	}
	if err := json.Unmarshal(jsontext.Value(d.Input), &shape, jsontext.AllowDuplicateNames(true)); err != nil || string(shape.Type) != `"object"` {
		return nil, errors.New(`its inputSchema has not the "type": "object"`)
	}
	if t.Output != nil && t.Output.Kind() != 'n' {
		if d.Output, err = s.schema("outputSchema", t.Output); err != nil {
			return nil, err
		}
	}
	if err := s.annotate(r, t.Annotations); err != nil {
		return nil, err
	}
	if r.digest, err = d.digest(); err != nil {
		return nil, fmt.Errorf("its definition has no canonical form: %w", err)
	}
	r.tool, err = r.make()
	return r, err
}

// schema checks the size and the form of a schema and removes the secrets from it.
func (s *ToolServer) schema(key string, v jsontext.Value) (stdjson.RawMessage, error) {
	switch {
	case v == nil:
		return nil, fmt.Errorf("its %s is missing", key)
	case len(v) > transport.MaxSchema:
		return nil, fmt.Errorf("its %s has %d bytes, over the limit of %d", key, len(v), transport.MaxSchema)
	case v.Kind() != '{' && (key == "inputSchema" || v.Kind() != 't' && v.Kind() != 'f'):
		return nil, fmt.Errorf("its %s is no JSON Schema", key)
	}
	return s.clean.json(stdjson.RawMessage(v))
}

// annotate reads the annotations of a tool.
func (s *ToolServer) annotate(r *remoteTool, v jsontext.Value) (err error) {
	if v == nil || v.Kind() == 'n' {
		return nil
	}
	var hints toolHints
	if len(v) > maxDescription || json.Unmarshal(v, &hints, jsontext.AllowInvalidUTF8(true)) != nil {
		return errors.New("its annotations are broken")
	}
	if r.definition.Annotations, err = s.clean.json(stdjson.RawMessage(v)); err != nil {
		return err
	}
	r.idempotent = hints.Idempotent || hints.ReadOnly
	if r.definition.Title == "" {
		r.definition.Title = s.clean.line(hints.Title, 200)
	}
	return nil
}
