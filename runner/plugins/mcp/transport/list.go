package transport

import (
	"encoding/json"
)

// decodableList returns the part of a result of tools/list that the SDK needs: the names
// and input schemas, from which it makes the headers of later calls, and the next cursor.
// It leaves out tools that the SDK could not decode, and the time to live, so that the SDK
// asks the server each time.
func decodableList(result json.RawMessage) json.RawMessage {
	var in struct {
		Tools  []json.RawMessage `json:"tools"`
		Cursor json.RawMessage   `json:"nextCursor"`
	}
	type entry struct {
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"inputSchema"`
	}
	out := struct {
		Tools  []entry `json:"tools"`
		Cursor string  `json:"nextCursor,omitempty"`
	}{Tools: []entry{}}
	_ = json.Unmarshal(result, &in) // a broken list has no tools for the SDK
	_ = json.Unmarshal(in.Cursor, &out.Cursor)
	for _, raw := range in.Tools {
		var e entry
		if json.Unmarshal(raw, &e) == nil && len(e.Schema) > 0 && len(e.Schema) <= MaxSchema && e.Schema[0] == '{' {
			out.Tools = append(out.Tools, e)
		}
	}
	data, err := json.Marshal(out)
	if err != nil {
		return json.RawMessage(`{"tools":[]}`)
	}
	return data
}

// MaxSchema is the size of a schema in bytes.
const MaxSchema = 256 << 10
