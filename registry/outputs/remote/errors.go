package remote

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// The errors of this package. Match them with errors.Is. The package doc describes
// each.
var (
	// ErrUnreachable reports that a node does not respond, or that the connection to
	// the node breaks. The node may have executed the request.
	ErrUnreachable = errors.New("node cannot be reached")
	// ErrNotANode reports a response that is not one of this version of the protocol.
	ErrNotANode = errors.New("server is not a ledger node that this program understands")
	// ErrDenied reports that the node rejected the credentials or the origin of the
	// request.
	ErrDenied = errors.New("node does not accept the credentials")
	// ErrChecksum reports bytes that were changed in transit, in every attempt.
	ErrChecksum = errors.New("checksum mismatch in transit")
	// ErrTooLarge reports a blob over ServerConfig.Limit.
	ErrTooLarge = errors.New("output is larger than the node accepts")
	// ErrBadAddress reports an address that Open does not accept.
	ErrBadAddress = errors.New("address of a node is not valid")
)

// An errorCode is the name of an error in the header Ledger-Error, with the HTTP status
// of a response that reports this error. The names are part of the protocol and do not
// change.
type errorCode struct {
	code   string
	err    error
	status int
}

// errorCodes are all errors that a client recognises by errors.Is. An error can match
// several of them; the first match gives the status of the response.
var errorCodes = []errorCode{
	{"not_found", outputs.ErrNotFound, http.StatusNotFound},
	{"pruned", outputs.ErrPruned, http.StatusGone},
	{"exists", outputs.ErrExists, http.StatusConflict},
	{"too_large", ErrTooLarge, http.StatusRequestEntityTooLarge},
	{"bad_ref", domain.ErrBadRef, http.StatusBadRequest},
	{"mangled", ErrChecksum, http.StatusBadRequest},
	{"denied", ErrDenied, http.StatusUnauthorized},
	{"disk_full", syscall.ENOSPC, http.StatusInsufficientStorage},
	{"broken", outputs.ErrBroken, http.StatusServiceUnavailable},
	{"closed", outputs.ErrClosed, http.StatusServiceUnavailable},
	{"damaged", outputs.ErrDamaged, http.StatusInternalServerError},
	{"not_kept", outputs.ErrNotKept, http.StatusInternalServerError},
}

// maxText is the greatest length in bytes of an error text on the wire.
const maxText = 4 << 10

// encodeError returns the value of the header Ledger-Error for an error, and the status
// of the response. For an error that matches no code, the value has only the text of
// the error, and the status is 500.
func encodeError(err error) (text string, status int) {
	form, status := url.Values{"text": {truncate(err.Error())}}, http.StatusInternalServerError
	for _, w := range slices.Backward(errorCodes) {
		if errors.Is(err, w.err) {
			form.Add("is", w.code)
			status = w.status
		}
	}
	if p, ok := errors.AsType[*outputs.PrunedError](err); ok {
		form.Set("retained", encodeRetained(p.Retained))
		form.Set("policy", p.Policy)
		form.Set("at", p.At.UTC().Format(time.RFC3339Nano))
	}
	return form.Encode(), status
}

// truncate cuts a text at maxText bytes, between characters, and marks the cut.
func truncate(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// A remoteError is an error that a node returned. It has the text of the error at the
// node and wraps the same sentinels, so that errors.Is gives the same result at the
// client.
type remoteError struct {
	text string
	is   []error
}

func (a *remoteError) Error() string   { return a.text }
func (a *remoteError) Unwrap() []error { return a.is }

// decodeError is the inverse of encodeError. It returns an ErrNotANode for a malformed
// header. It ignores unknown codes, which a newer node may send.
func decodeError(text string) error {
	form, err := url.ParseQuery(text)
	if err != nil || !form.Has("text") {
		return fmt.Errorf("read its error: %w", ErrNotANode)
	}
	a := &remoteError{text: form.Get("text")}
	for _, name := range form["is"] {
		if i := slices.IndexFunc(errorCodes, func(w errorCode) bool { return w.code == name }); i >= 0 {
			a.is = append(a.is, errorCodes[i].err)
		}
	}
	if !form.Has("retained") {
		return a
	}
	at, atErr := time.Parse(time.RFC3339Nano, form.Get("at"))
	retained, err := decodeRetained(form.Get("retained"))
	if err = errors.Join(atErr, err); err != nil {
		return fmt.Errorf("read its report of a pruned output: %w: %w", ErrNotANode, err)
	}
	a.is = append(a.is, &outputs.PrunedError{Retained: retained, Policy: form.Get("policy"), At: at.UTC()})
	return a
}
