package mcp

import (
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/settlement-ledger/ledger/domain"
)

// A rawResult is a result of tools/call as the server wrote it. Keys are compared exactly,
// and a key that occurs twice is an error.
type rawResult struct {
	ResultType    jsontext.Value  `json:"resultType"`
	Content       *[]contentBlock `json:"content"`
	Structured    jsontext.Value  `json:"structuredContent"`
	IsError       bool            `json:"isError"`
	InputRequests jsontext.Value  `json:"inputRequests"`
	RequestState  string          `json:"requestState"`
	Task          jsontext.Value  `json:"task"`
}

// A contentBlock is one part of a result.
type contentBlock struct {
	Type        string            `json:"type"`
	Text        string            `json:"text,omitzero"`
	MIME        string            `json:"mimeType,omitzero"`
	Data        *string           `json:"data,omitempty"`
	URI         string            `json:"uri,omitzero"`
	Name        string            `json:"name,omitzero"`
	Title       string            `json:"title,omitzero"`
	Description string            `json:"description,omitzero"`
	Resource    *resourceContents `json:"resource,omitempty"`
}

// resourceContents are the contents of an embedded resource.
type resourceContents struct {
	URI  string  `json:"uri"`
	MIME string  `json:"mimeType,omitzero"`
	Text string  `json:"text,omitzero"`
	Blob *string `json:"blob,omitempty"`
}

// A resultKind says what a result is.
type resultKind int

const (
	// completeResult is the output of the tool.
	completeResult resultKind = iota + 1
	// failedResult is a failure that the tool reports.
	failedResult
	// inputResult asks for input before the call continues.
	inputResult
)

// errBadResult reports a result that is none of the kinds. Its text says why.
var errBadResult = errors.New("the result cannot be used")

// parseResult decodes a result of tools/call. It returns an errBadResult for every result
// that is not known to be one of the kinds.
func parseResult(data []byte) (r rawResult, kind resultKind, err error) {
	bad := func(format string, args ...any) (rawResult, resultKind, error) {
		return rawResult{}, 0, fmt.Errorf("%w: %s", errBadResult, fmt.Sprintf(format, args...))
	}
	if jsontext.Value(data).Kind() != '{' {
		return bad("it is no JSON object")
	}
	if err := json.Unmarshal(data, &r, jsontext.AllowInvalidUTF8(true)); err != nil {
		return bad("%s", malformed(err))
	}
	kindText := "complete"
	if r.ResultType != nil {
		if r.ResultType.Kind() != '"' {
			return bad("its resultType is no string")
		}
		if err := json.Unmarshal(r.ResultType, &kindText, jsontext.AllowInvalidUTF8(true)); err != nil {
			return bad("its resultType is broken")
		}
	}
	switch kindText {
	case "complete":
	case "input_required":
		return r, inputResult, nil
	case "task":
		return bad("the server started a task, which this client does not poll, so the outcome is unknown")
	default:
		return bad("its resultType %.100q is unknown to this client, so the outcome is unknown", kindText)
	}
	switch {
	case r.IsError:
		return r, failedResult, nil
	case r.Task.Kind() == '{' && (r.ResultType == nil || r.Content == nil):
		return bad("the server started a task, which this client does not poll, so the outcome is unknown")
	case r.InputRequests != nil:
		return bad("it asks for input and says that it is complete")
	case r.Content == nil && (r.Structured == nil || r.Structured.Kind() == 'n'):
		return bad("it has neither content nor structuredContent")
	}
	return r, completeResult, nil
}

// malformed words an error of the decoder without the text of the result.
func malformed(err error) string {
	if fault, ok := errors.AsType[*json.SemanticError](err); ok {
		return fmt.Sprintf("a value of another type is at %.200q", fault.JSONPointer)
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return "a key occurs twice"
	}
	return "its JSON is broken"
}

// clean returns the block without secrets. It returns an error for data that is no base64.
func (b contentBlock) clean(c cleaner) (contentBlock, error) {
	for _, text := range []*string{&b.Type, &b.Text, &b.MIME, &b.URI, &b.Name, &b.Title, &b.Description} {
		*text = c.text(*text)
	}
	var err error
	if b.Data, err = cleanData(c, b.Data); err != nil {
		return b, fmt.Errorf("its %.50s: %w", b.Type, err)
	}
	if b.Resource != nil {
		r := *b.Resource
		for _, text := range []*string{&r.URI, &r.MIME, &r.Text} {
			*text = c.text(*text)
		}
		if r.Blob, err = cleanData(c, r.Blob); err != nil {
			return b, fmt.Errorf("its resource: %w", err)
		}
		b.Resource = &r
	}
	return b, nil
}

// cleanData returns base64 without secrets in the data.
func cleanData(c cleaner, data *string) (*string, error) {
	if data == nil {
		return nil, nil
	}
	plain, err := base64.StdEncoding.DecodeString(*data)
	if err != nil {
		return nil, errors.New("the data is no base64")
	}
	clean := base64.StdEncoding.EncodeToString(c.bytes(plain))
	return &clean, nil
}

// present returns the content that the model reads for a block. Texts of several blocks
// are separated.
func (b contentBlock) present() domain.Content {
	switch {
	case b.Type == "text":
		return domain.Text(b.Text)
	case (b.Type == "image" || b.Type == "audio") && b.Data != nil:
		return media(b.MIME, b.Type, *b.Data)
	case b.Type == "resource" && b.Resource != nil && b.Resource.Blob != nil:
		return media(b.Resource.MIME, b.Resource.URI, *b.Resource.Blob)
	case b.Type == "resource" && b.Resource != nil:
		return domain.Text(fmt.Sprintf("[resource %s]\n%s", b.Resource.URI, b.Resource.Text))
	case b.Type == "resource_link":
		words := []string{"[link to a resource]", b.URI, b.Name, b.Title, b.MIME, b.Description}
		return domain.Text(strings.Join(strings.Fields(strings.Join(words, " ")), " "))
	}
	data, err := json.Marshal(b)
	if err != nil {
		return domain.Text("[content without a JSON form]")
	}
	return domain.Text(fmt.Sprintf("[content of the type %q, which this client does not know] %s", b.Type, data))
}

// media returns base64 data as a file. The data was checked before.
func media(mime, name, data string) domain.Content {
	plain, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return domain.Text("[data that is no base64]")
	}
	if mime == "" {
		mime = "application/octet-stream"
	}
	return domain.Media{MIME: mime, Name: name, Data: plain}
}

// presentBlocks returns the content of blocks, with a line end between two texts.
func presentBlocks(blocks []contentBlock) []domain.Content {
	var all []domain.Content
	for _, b := range blocks {
		next := b.present()
		if text, ok := next.(domain.Text); ok && len(all) > 0 {
			if last, ok := all[len(all)-1].(domain.Text); ok {
				all[len(all)-1] = last + "\n" + text
				continue
			}
		}
		all = append(all, next)
	}
	return all
}

// A callOutput is the output of a successful call.
type callOutput struct {
	document stdjson.RawMessage
	// dropped is the size of the content beside a structured output, in bytes.
	dropped int64
}

// A blocksOutput is the document of a tool without an output schema.
type blocksOutput struct {
	Content    []contentBlock `json:"content"`
	Structured jsontext.Value `json:"structuredContent,omitzero"`
}

// blocksSchema is the output schema of a tool that has none of its own.
const blocksSchema = `{"type":"object","properties":{"content":{"type":"array","items":{"type":"object"}},"structuredContent":{}},"required":["content"]}`

// output returns the output of a complete result without secrets. If the tool has an output
// schema and the result has structured content, the output is that content alone.
func (r rawResult) output(c cleaner, hasSchema bool) (callOutput, error) {
	blocks, err := r.blocks(c)
	if err != nil {
		return callOutput{}, err
	}
	doc := blocksOutput{Content: blocks}
	if r.Structured != nil {
		clean, err := c.json(stdjson.RawMessage(r.Structured))
		if err != nil {
			return callOutput{}, fmt.Errorf("%w: its structuredContent is broken", errBadResult)
		}
		doc.Structured = jsontext.Value(clean)
		if hasSchema {
			return callOutput{clean, droppedBytes(blocks, clean)}, nil
		}
	}
	data, err := json.Marshal(doc)
	if err != nil {
		return callOutput{}, fmt.Errorf("%w: %w", errBadResult, err)
	}
	return callOutput{document: data}, nil
}

// blocks returns the content without secrets. It is never nil.
func (r rawResult) blocks(c cleaner) ([]contentBlock, error) {
	blocks := []contentBlock{}
	if r.Content == nil {
		return blocks, nil
	}
	for _, b := range *r.Content {
		clean, err := b.clean(c)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBadResult, err)
		}
		blocks = append(blocks, clean)
	}
	return blocks, nil
}

// droppedBytes returns the size of the blocks that do not repeat a structured output: they
// are neither its JSON nor all of its single value.
func droppedBytes(blocks []contentBlock, structured stdjson.RawMessage) (n int64) {
	same, err := domain.Canonical(structured)
	text, repeated := singleValue(structured)
	if repeated != nil && equalBlocks(blocks, repeated) {
		return 0
	}
	for _, b := range blocks {
		if b.Type == "text" && err == nil {
			if other, e := domain.Canonical(stdjson.RawMessage(b.Text)); e == nil && string(other) == string(same) || text != nil && b.Text == *text {
				continue
			}
		}
		data, _ := json.Marshal(b) // strings and base64 always have a JSON form
		n += int64(len(data))
	}
	return n
}

// singleValue returns the value of an object with a single key, if it is a text or a list
// of blocks. Servers that declare an output schema for content of any type write such
// objects.
func singleValue(structured stdjson.RawMessage) (text *string, blocks []contentBlock) {
	var object map[string]jsontext.Value
	if json.Unmarshal(structured, &object) != nil || len(object) != 1 {
		return nil, nil
	}
	for _, value := range object {
		switch {
		case value.Kind() == '"' && json.Unmarshal(value, &text) == nil:
			return text, nil
		case value.Kind() == '[' && json.Unmarshal(value, &blocks) == nil:
			return nil, blocks
		}
	}
	return nil, nil
}

// equalBlocks reports whether two lists of blocks have the same JSON.
func equalBlocks(a, b []contentBlock) bool {
	one, oneErr := json.Marshal(a)
	other, otherErr := json.Marshal(b)
	return oneErr == nil && otherErr == nil && string(one) == string(other)
}

// failure returns the text of a failure that the tool reports.
func (r rawResult) failure(c cleaner) string {
	blocks, err := r.blocks(c)
	if err != nil {
		return ""
	}
	var b strings.Builder
	for _, content := range presentBlocks(blocks) {
		switch content := content.(type) {
		case domain.Text:
			b.WriteString(string(content))
		case domain.Media:
			fmt.Fprintf(&b, "\n[a file of the type %s with %d bytes]\n", content.MIME, len(content.Data))
		}
	}
	if strings.TrimSpace(b.String()) == "" && r.Structured != nil {
		if clean, err := c.json(stdjson.RawMessage(r.Structured)); err == nil {
			return string(clean)
		}
	}
	return b.String()
}

// An outputCodec is the codec of the output of a remote tool.
type outputCodec struct{ schema stdjson.RawMessage }

// Schema returns the output schema.
func (c outputCodec) Schema() stdjson.RawMessage { return c.schema }

// Decode returns the document.
func (outputCodec) Decode(d stdjson.RawMessage) (callOutput, error) {
	return callOutput{document: d}, nil
}

// Encode returns the document.
func (outputCodec) Encode(o callOutput) (stdjson.RawMessage, error) { return o.document, nil }

// presentOutput renders the content of a tool without an output schema. A result with
// structured content only is presented as its JSON.
func presentOutput(_ stdjson.RawMessage, out domain.Encoded[callOutput]) []domain.Content {
	var doc blocksOutput
	if json.Unmarshal(out.JSON(), &doc) != nil {
		return nil
	}
	if len(doc.Content) == 0 && doc.Structured != nil {
		return []domain.Content{domain.Text(string(doc.Structured))}
	}
	if len(doc.Content) == 0 {
		return []domain.Content{domain.Text("")}
	}
	return presentBlocks(doc.Content)
}

// presentStructured renders a structured output that is a list of blocks with media as
// these blocks. It returns nil for every other one, which is presented as its JSON.
func presentStructured(_ stdjson.RawMessage, out domain.Encoded[callOutput]) []domain.Content {
	_, blocks := singleValue(out.JSON())
	all := presentBlocks(blocks)
	for _, c := range all {
		if _, ok := c.(domain.Media); ok {
			return all
		}
	}
	return nil
}
