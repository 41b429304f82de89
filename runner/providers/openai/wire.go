package openai

import (
	"encoding/json"
	"fmt"

	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
)

// present reports whether a member is there and not null.
func present(data json.RawMessage) bool { return len(data) > 0 && string(data) != "null" }

// maxCalls is the largest number of calls, or of output items, of a reply. Each of them is
// found by a search among the others.
const maxCalls = 4096

// errTooManyCalls is the error of a reply with more of them.
var errTooManyCalls = fmt.Errorf("%w: the reply has more than %d calls or output items", modelapi.ErrProtocol, maxCalls)
