package eventstoredb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// ErrForbidden says that a user lacks a right that every use of a ledger needs. It
// is an ErrRefused.
var ErrForbidden = errors.New("user lacks a right that the ledger needs")

// A Right is something that a user is to be allowed.
type Right struct {
	Name    string
	Missing error // what the server said; nil: the user has the right
}

// DefaultACL is the data of an event of the type update-default-acl by which an
// administrator, in the stream $settings, lets the users of a group read $all. All
// else is as servers have it without such an event. The last event in the stream
// decides alone.
func DefaultACL(group string) string {
	quoted, _ := json.Marshal(group) // a string always has JSON
	return `{"$userStreamAcl":{"$r":"$all","$w":"$all","$d":"$all","$mr":"$all","$mw":"$all"},` +
		`"$systemStreamAcl":{"$r":["$admins",` + string(quoted) + `],"$w":"$admins","$d":"$admins","$mr":"$admins","$mw":"$admins"}}`
}

// probeStream is a stream that is never written to. Servers look at rights before they
// look whether a stream is there.
const probeStream events.Stream = "rights-probe"

// Rights returns the rights that a ledger needs, and which of them the user lacks.
// It writes nothing: it offers the probe, a record, to a stream of a length that no
// stream has. An error other than a refusal is returned.
func (s *Store) Rights(ctx context.Context, probe events.Record) ([]Right, error) {
	rights := []Right{{Name: "read $all"}, {Name: "read the ledger's streams"}, {Name: "append to the ledger's streams"}}
	for i, check := range []func(context.Context) error{s.mayReadAll, s.mayRead, func(ctx context.Context) error { return s.mayAppend(ctx, probe) }} {
		err := check(ctx)
		if err != nil && !errors.Is(err, ErrRefused) {
			return nil, fmt.Errorf("ask whether the user may %s: %w", rights[i].Name, err)
		}
		rights[i].Missing = err
	}
	return rights, nil
}

func (s *Store) mayReadAll(ctx context.Context) error {
	_, err := s.lastPosition(ctx)
	return err
}

func (s *Store) mayRead(ctx context.Context) error {
	err := s.consume(ctx, func() fetchFunc {
		return readEvents(s.namespace+string(probeStream), esdb.Backwards, esdb.End{}, nil, 1)
	}, func(serverMessage) (bool, error) { return false, nil })
	return refusal(err, notFound)
}

func (s *Store) mayAppend(ctx context.Context, probe events.Record) error {
	sent, err := s.encodeAppend(probeStream, []events.Record{probe})
	if err != nil {
		return err
	}
	ctx, release := s.withStoreLifetime(ctx)
	defer release()
	a := &appendOp{store: s, stream: probeStream, after: math.MaxInt64 - 1, records: []events.Record{probe}, events: sent}
	err = s.retry(ctx, func(*retryBackoff) error {
		_, err := a.sendOnce(ctx)
		return err
	})
	return refusal(err, wrongLength)
}

// refusal returns nil for a nil error and for one of the class with which a server
// answers a probe that it allows, and any other error.
func refusal(err error, allowed errorClass) error {
	switch class, classified := classify(err); {
	case err == nil || class == allowed:
		return nil
	case class == permanent:
		return classified
	}
	return err
}

// forbiddenError returns an ErrForbidden for a refusal of what every use of a ledger
// needs, and any other error as it is.
func forbiddenError(action string, err error) error {
	if errors.Is(err, ErrRefused) {
		return fmt.Errorf("%w: it may not %s: %w", ErrForbidden, action, err)
	}
	return err
}
