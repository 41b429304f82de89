package eventstoredb

import (
	"context"
	"errors"
	"fmt"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The errors of a Store that package events does not have. Match them with errors.Is.
// The package doc gives the calls that return each of them.
var (
	// ErrBadAddress is returned for an invalid connection string, with the reason.
	ErrBadAddress = errors.New("connection string is not valid")
	// ErrUnreachable is returned if no node responds within the retry timeout. An
	// append with this error stored no record.
	ErrUnreachable = errors.New("server does not answer")
	// ErrUnauthenticated is returned if the server rejects the credentials.
	ErrUnauthenticated = errors.New("server does not accept the credentials")
	// ErrRefused is returned if the server denies a call with another status.
	ErrRefused = errors.New("server refused the request")
	// ErrTooOld is returned for a server version with a known fault that loses events
	// or positions.
	ErrTooOld = errors.New("server is too old to keep the promises of a store")
	// ErrPreRelease is returned for a server version that the client cannot parse.
	ErrPreRelease = errors.New("server has a version that the client cannot read")
	// ErrDeleted ends a loop over a stream that was deleted or truncated. It comes
	// with events.ErrDamaged.
	ErrDeleted = errors.New("stream was deleted or truncated on the server")
	// ErrBroken is returned for a panic of the official client.
	ErrBroken = errors.New("EventStoreDB client failed")

	// ErrTLS is the Err of a Node if one side alone uses TLS. Only Probe reports
	// ErrTLS, ErrCertificate and ErrForeign.
	ErrTLS = errors.New("client and server disagree about TLS")
	// ErrCertificate is the Err of a Node whose certificate is rejected.
	ErrCertificate = errors.New("certificate of the server is not accepted")
	// ErrForeign is the Err of a Node that is not EventStoreDB.
	ErrForeign = errors.New("server is not an EventStoreDB")
)

// A grpcError is an error with a status that the server or the transport set.
type grpcError interface {
	error
	GRPCStatus() *status.Status
}

// An errorClass is the class of an error of the client. It decides whether a call is
// repeated.
type errorClass int

const (
	// retryable: the result is unknown, and a retry may succeed.
	retryable errorClass = iota
	// permanent: a retry would give the same error.
	permanent
	// wrongLength: the stream does not have the expected length.
	wrongLength
	// notFound: the stream does not exist.
	notFound
)

// classify returns the class of an error of the client, which must not be nil, and the
// error for the caller. A permanent error is wrapped in a sentinel of this package or
// of package events. Most other errors lose the client's own wrapping. An unknown error
// is retryable: to end a call too early would do more harm than to retry it until the
// retry timeout.
func classify(err error) (errorClass, error) {
	if errors.Is(err, ErrBroken) || errors.Is(err, ErrTooOld) || errors.Is(err, ErrPreRelease) || errors.Is(err, events.ErrClosed) {
		return permanent, err
	}
	clientErr, _ := errors.AsType[*esdb.Error](err)
	code := codes.Unknown
	if clientErr != nil {
		switch clientErr.Code() {
		case esdb.ErrorCodeWrongExpectedVersion:
			return wrongLength, err
		case esdb.ErrorCodeResourceNotFound:
			if _, answered := errors.AsType[grpcError](err); !answered {
				return notFound, err
			} // a node without a leader responds with this status too, which is retryable
		case esdb.ErrorCodeStreamDeleted:
			return permanent, fmt.Errorf("%w: %w", events.ErrDamaged, ErrDeleted)
		}
		err = innermost(clientErr)
	}
	if s, ok := errors.AsType[grpcError](err); ok {
		code = s.GRPCStatus().Code()
	}
	switch code {
	case codes.Unauthenticated:
		return permanent, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	case codes.DataLoss:
		return permanent, fmt.Errorf("%w: %w", events.ErrDamaged, err)
	case codes.PermissionDenied, codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.ResourceExhausted, codes.Unimplemented:
		return permanent, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return retryable, err
}

// innermost returns the error that clientErr wraps, or clientErr if it wraps no error.
// The wrapping has only a code and a fixed text.
func innermost(clientErr *esdb.Error) error {
	if inner := clientErr.Err(); inner != nil {
		return inner
	}
	return clientErr
}

// connectionLost reports whether an error means that the connection or its node
// cannot be used again, so that the client must be replaced.
func connectionLost(err error) bool {
	if clientErr, ok := errors.AsType[*esdb.Error](err); ok && clientErr.Code() == esdb.ErrorCodeConnectionClosed {
		return true
	}
	s, ok := errors.AsType[grpcError](err)
	return ok && (s.GRPCStatus().Code() == codes.Unavailable || s.GRPCStatus().Code() == codes.DeadlineExceeded)
}

// unreachableError wraps last, the last error of a call, in ErrUnreachable. It returns
// nil for nil. An error that already matches ErrUnreachable is returned unchanged.
func unreachableError(last error) error {
	if last == nil || errors.Is(last, ErrUnreachable) {
		return last
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, last)
}

// contextError returns the cause of ctx, which has ended. If last, the last error of
// the call, is not nil, contextError adds it, since it is usually the reason why the
// call took so long.
func contextError(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	if last == nil || errors.Is(cause, events.ErrClosed) {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, unreachableError(last))
}

// recoverPanic calls f and returns a panic of f as ErrBroken, with the value of the
// panic. It cannot recover panics on goroutines of the client.
func recoverPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: it panicked: %v", ErrBroken, p)
		}
	}()
	return f()
}
