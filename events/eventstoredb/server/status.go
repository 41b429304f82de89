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

// statusOf returns the status under which a caller is told of an error of the
// store. One that is a status already stays what it is.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codeOf(err), err.Error())
}

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

// openEnd returns the status of an append of which it is not known whether it
// took place. Clients know it as a write that timed out, and ask again.
func uncertainStatus(err error) error {
	if code := codeOf(err); code != codes.Internal {
		return status.Error(code, err.Error())
	}
	return status.Error(codes.Aborted, err.Error())
}

// errTooLarge is an append over the limit of the server, as its callers are
// told of it.
var errTooLarge = errors.New("maximum append size exceeded")

// An oversize is the status of an append that is too large.
type tooLargeError struct{ text string }

func (o *tooLargeError) Error() string              { return o.text }
func (o *tooLargeError) GRPCStatus() *status.Status { return status.New(codes.InvalidArgument, o.text) }
func (o *tooLargeError) Is(target error) bool       { return target == errTooLarge }

// tooLarge returns the status of an append over the limit, and sets the
// trailers that clients read.
func tooLarge(ctx context.Context, limit int, text string) error {
	setException(ctx, "maximum-append-size-exceeded", "maximum-append-size", strconv.Itoa(limit))
	return &tooLargeError{text}
}

// denied returns the status of a call that its caller may not make, and sets
// the trailer that clients read.
func denied(ctx context.Context, format string, args ...any) error {
	setException(ctx, "access-denied")
	return status.Errorf(codes.PermissionDenied, format, args...)
}

// setException sets the trailers by which clients know an error that has a name. A
// call of which there is no more to be told has no use for them.
func setException(ctx context.Context, name string, more ...string) {
	pairs := []string{"exception", name}
	for _, text := range more {
		pairs = append(pairs, trailerText(text))
	}
	_ = grpc.SetTrailer(ctx, metadata.Pairs(pairs...))
}

// trailerText returns text as a trailer can hold it, which is printable ASCII. Any
// other is written with the escapes of Go.
func trailerText(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		quoted := strconv.QuoteToASCII(text)
		return quoted[1 : len(quoted)-1]
	}
	return text
}
