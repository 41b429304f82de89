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

// A verdict says what an error of the client means for the call that got it.
type verdict int

const (
	uncertain verdict = iota // it may have happened or not, and may succeed when it is tried again
	final                    // trying again gives the same
	conflict                 // the stream has another length
	missing                  // there is no such stream
)

// judge returns what an error of the client means, and the error as one of
// ours where it is final.
func judge(err error) (verdict, error) {
	if errors.Is(err, ErrBroken) || errors.Is(err, ErrTooOld) || errors.Is(err, ErrPreRelease) || errors.Is(err, events.ErrClosed) {
		return final, err
	}
	of, _ := errors.AsType[*esdb.Error](err)
	code := codes.Unknown
	if of != nil {
		switch of.Code() {
		case esdb.ErrorCodeWrongExpectedVersion:
			return conflict, err
		case esdb.ErrorCodeResourceNotFound:
			if _, answered := errors.AsType[grpcError](err); !answered {
				return missing, err
			} // a node says so that knows of no leader, or is none any more
		case esdb.ErrorCodeStreamDeleted:
			return final, fmt.Errorf("%w: %w", events.ErrDamaged, ErrDeleted)
		}
		err = plain(of)
	}
	if s, ok := errors.AsType[grpcError](err); ok {
		code = s.GRPCStatus().Code()
	}
	switch code {
	case codes.Unauthenticated:
		return final, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	case codes.DataLoss:
		return final, fmt.Errorf("%w: %w", events.ErrDamaged, err)
	case codes.PermissionDenied, codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.ResourceExhausted, codes.Unimplemented:
		return final, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return uncertain, err
}

// plain returns what the client wrapped, which says more than its own words.
func plain(of *esdb.Error) error {
	if inner := of.Err(); inner != nil {
		return inner
	}
	return of
}

// gone reports whether an error says that the connection, or the node behind
// it, is of no further use.
func gone(err error) bool {
	if of, ok := errors.AsType[*esdb.Error](err); ok && of.Code() == esdb.ErrorCodeConnectionClosed {
		return true
	}
	s, ok := errors.AsType[grpcError](err)
	return ok && (s.GRPCStatus().Code() == codes.Unavailable || s.GRPCStatus().Code() == codes.DeadlineExceeded)
}

// unreachable returns an ErrUnreachable that tells what was seen last.
func unreachable(last error) error {
	if last == nil || errors.Is(last, ErrUnreachable) {
		return last
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, last)
}

// ended returns the cause of a context that ended, with what the server was
// last seen to do.
func ended(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	if last == nil || errors.Is(cause, events.ErrClosed) {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, unreachable(last))
}

// protected calls f and returns its panic as an ErrBroken.
func protected(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: it panicked: %v", ErrBroken, p)
		}
	}()
	return f()
}
