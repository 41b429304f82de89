package openai

import "encoding/json"

// present reports whether a member is there and not null.
func present(data json.RawMessage) bool { return len(data) > 0 && string(data) != "null" }
