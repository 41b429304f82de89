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

// The errors of a Store beside those of package events. Callers match them
// with errors.Is.
var (
	ErrBadAddress      = errors.New("connection string is not valid")
	ErrUnreachable     = errors.New("server does not answer")
	ErrUnauthenticated = errors.New("server does not accept the credentials")
	ErrRefused         = errors.New("server refuses")
	ErrTooOld          = errors.New("server is too old to keep the promises of a store")
	ErrPreRelease      = errors.New("server has a version that the client cannot read")
	ErrDeleted         = errors.New("stream was deleted or cut short by somebody")
	ErrBroken          = errors.New("client of EventStoreDB broke")

	// Of a Visit alone.
	ErrTLS         = errors.New("TLS is spoken by one side alone")
	ErrCertificate = errors.New("certificate of the server is not accepted")
	ErrForeign     = errors.New("server is no EventStoreDB")
)

// A grpcError is an error that came over the wire.
type grpcError interface {
	error
	GRPCStatus() *status.Status
}

// A errorClass says what an error of the client means for the call that got it.
type errorClass int

const (
	retryable   errorClass = iota // it may have happened or not, and may succeed when it is tried again
	permanent                     // trying again gives the same
	wrongLength                   // the stream has another length
	notFound                      // there is no such stream
)

// classify returns what an error of the client means, and the error as one of
// ours where it is final.
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
			} // a node says so that knows of no leader, or is none any more
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

// innermost returns what the client wrapped, which says more than its own words.
func innermost(clientErr *esdb.Error) error {
	if inner := clientErr.Err(); inner != nil {
		return inner
	}
	return clientErr
}

// connectionLost reports whether an error says that the connection, or the node behind
// it, is of no further use.
func connectionLost(err error) bool {
	if clientErr, ok := errors.AsType[*esdb.Error](err); ok && clientErr.Code() == esdb.ErrorCodeConnectionClosed {
		return true
	}
	s, ok := errors.AsType[grpcError](err)
	return ok && (s.GRPCStatus().Code() == codes.Unavailable || s.GRPCStatus().Code() == codes.DeadlineExceeded)
}

// unreachableError returns an ErrUnreachable that tells what was seen last.
func unreachableError(last error) error {
	if last == nil || errors.Is(last, ErrUnreachable) {
		return last
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, last)
}

// contextError returns the cause of a context that ended, with what the server was
// last seen to do.
func contextError(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	if last == nil || errors.Is(cause, events.ErrClosed) {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, unreachableError(last))
}

// recoverPanic calls f and returns its panic as an ErrBroken.
func recoverPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: it panicked: %v", ErrBroken, p)
		}
	}()
	return f()
}
