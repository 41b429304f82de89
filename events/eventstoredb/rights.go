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

// ErrForbidden is the error for a user without a right that every use of a ledger
// needs. Errors that match it also match ErrRefused.
var ErrForbidden = errors.New("user lacks a right that the ledger needs")

// A Right is a right of a user in the database.
type Right struct {
	// Name is the right in words, such as "read $all".
	Name string
	// Missing is the refusal of the server. Nil: the user has the right.
	Missing error
}

// DefaultACL returns the data of an event of type update-default-acl. An
// administrator appends it to the stream $settings to let a group of users read $all.
// All other rights remain as they are on a server without the event. Only the last
// such event of the stream is in effect.
func DefaultACL(group string) string {
	quoted, _ := json.Marshal(group) // encoding a string never fails
	return `{"$userStreamAcl":{"$r":"$all","$w":"$all","$d":"$all","$mr":"$all","$mw":"$all"},` +
		`"$systemStreamAcl":{"$r":["$admins",` + string(quoted) + `],"$w":"$admins","$d":"$admins","$mr":"$admins","$mw":"$admins"}}`
}

// probeStream is a stream that no program writes. A server checks rights before it
// looks for the stream, so its response shows the right.
const probeStream events.Stream = "rights-probe"

// Rights reports which of the rights that a ledger needs the user has, by trying
// each. It stores no record: it appends the record probe after a revision that no
// stream has. It returns every error except a refusal.
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

// mayReadAll returns nil if the user may read $all, and ErrRefused or another error
// otherwise.
func (s *Store) mayReadAll(ctx context.Context) error {
	_, err := s.lastPosition(ctx)
	return err
}

// mayRead returns nil if the user may read the probe stream. The user may then also
// read every stream of the ledger that has the same access rights.
func (s *Store) mayRead(ctx context.Context) error {
	err := s.consume(ctx, func() fetchFunc {
		return readEvents(s.namespace+string(probeStream), esdb.Backwards, esdb.End{}, nil, 1)
	}, func(serverMessage) (bool, error) { return false, nil })
	return refusal(err, notFound)
}

// mayAppend returns nil if the user may append to the probe stream. The append
// conflicts with the length of the stream, so it stores no record.
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

// refusal returns nil if err shows that the server permits the probe: err is nil, or
// has the class allowed. Otherwise it returns err. A permanent err is returned as
// classify wraps it.
func refusal(err error, allowed errorClass) error {
	switch class, classified := classify(err); {
	case err == nil || class == allowed:
		return nil
	case class == permanent:
		return classified
	}
	return err
}

// forbiddenError wraps err in ErrForbidden if err is a refusal of the server. It
// returns every other error, and nil, unchanged.
func forbiddenError(action string, err error) error {
	if errors.Is(err, ErrRefused) {
		return fmt.Errorf("%w: it may not %s: %w", ErrForbidden, action, err)
	}
	return err
}
