package openai

import (
	"errors"

	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
)

// unreadableReasoning reports whether the server could not read a reasoning item of the
// request.
func unreadableReasoning(err error) bool {
	reported, ok := errors.AsType[*modelapi.ReportedError](err)
	return ok && reported.Code == "invalid_encrypted_content"
}
