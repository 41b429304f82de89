package openai

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/openai/openai-go/v3"

	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
)

// maxErrorBody is the number of bytes of a response with an error that are read.
const maxErrorBody = 64 << 10

// notAStream returns the error of a response that is one JSON document instead of a
// stream: the error that the document reports, or a modelapi.ErrProtocol.
func notAStream(body io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if err != nil {
		return err
	}
	if reported, ok := modelapi.ReportedIn(data); ok {
		return reported
	}
	return fmt.Errorf("%w: it is a document of the type application/json: %s", modelapi.ErrProtocol, modelapi.Excerpt(data))
}

// sendError returns the error of a request that has no stream: a *modelapi.ReportedError
// for a response with an error status, and otherwise err. response is nil if there was
// none. The error of the SDK is not kept, because it has the headers of the request.
func sendError(response *http.Response, err error) error {
	if api, ok := errors.AsType[*openai.Error](err); ok && api.Message != "" {
		return &modelapi.ReportedError{Code: cmp.Or(api.Code, api.Type), Message: api.Message}
	}
	if response == nil || response.StatusCode < http.StatusBadRequest {
		return err
	}
	// The SDK has read the body, and kept it.
	data, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err != nil {
		return err
	}
	if reported, ok := modelapi.ReportedIn(data); ok {
		return reported
	}
	return &modelapi.ReportedError{Message: cmp.Or(modelapi.Excerpt(bytes.TrimSpace(data)), http.StatusText(response.StatusCode))}
}

// unreadableReasoning reports whether the server could not read a reasoning item of the
// request.
func unreadableReasoning(err error) bool {
	reported, ok := errors.AsType[*modelapi.ReportedError](err)
	return ok && reported.Code == "invalid_encrypted_content"
}
