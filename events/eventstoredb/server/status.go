package server

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/mapping"
)

// statusOf converts an error of the store to a gRPC status, with the error's
// text. It returns an error that already is a status unchanged, and nil for nil.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codeOf(err), err.Error())
}

// codeOf returns the gRPC code for an error of the store, or INTERNAL for an
// unknown error. Clients reconnect after UNAVAILABLE.
func codeOf(err error) codes.Code {
	switch {
	case errors.Is(err, ErrDrained), errors.Is(err, events.ErrClosed):
		return codes.Unavailable
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, events.ErrBadRecord), errors.Is(err, events.ErrTooLarge), errors.Is(err, events.ErrBadQuery):
		return codes.InvalidArgument
	case errors.Is(err, events.ErrDamaged), errors.Is(err, mapping.ErrUnmappable):
		return codes.DataLoss
	}
	return codes.Internal
}

// uncertainStatus returns the status of a failed append. If the error leaves
// open whether the records were written, the status is ABORTED. Clients treat
// ABORTED as a timed-out write, and may repeat the append.
func uncertainStatus(err error) error {
	if code := codeOf(err); code != codes.Internal {
		return status.Error(code, err.Error())
	}
	return status.Error(codes.Aborted, err.Error())
}

// errTooLarge reports an append over the server's limit. Clients recognise the
// text.
var errTooLarge = errors.New("maximum append size exceeded")

// A tooLargeError is the status INVALID_ARGUMENT of an append that is too large.
// It matches errTooLarge, so that a batch reply can carry the limit as a detail.
type tooLargeError struct{ text string }

func (o *tooLargeError) Error() string              { return o.text }
func (o *tooLargeError) GRPCStatus() *status.Status { return status.New(codes.InvalidArgument, o.text) }
func (o *tooLargeError) Is(target error) bool       { return target == errTooLarge }

// tooLarge returns the status of an append over a limit in bytes, and sets the
// trailers in which clients read the limit.
func tooLarge(ctx context.Context, limit int, text string) error {
	setException(ctx, "maximum-append-size-exceeded", "maximum-append-size", strconv.Itoa(limit))
	return &tooLargeError{text}
}

// denied returns PERMISSION_DENIED, and sets the trailer by which clients
// recognise it.
func denied(ctx context.Context, format string, args ...any) error {
	setException(ctx, "access-denied")
	return status.Errorf(codes.PermissionDenied, format, args...)
}

// setException sets the trailer "exception", by which clients tell errors of one
// status code apart, and further trailers in pairs of key and value. It ignores
// the error of a call that has ended, whose client no longer reads trailers.
func setException(ctx context.Context, name string, more ...string) {
	pairs := []string{"exception", name}
	for _, text := range more {
		pairs = append(pairs, trailerText(text))
	}
	_ = grpc.SetTrailer(ctx, metadata.Pairs(pairs...))
}

// trailerText returns text in printable ASCII, as a trailer requires. It
// escapes other characters as Go string literals do.
func trailerText(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		quoted := strconv.QuoteToASCII(text)
		return quoted[1 : len(quoted)-1]
	}
	return text
}
