package eventstoredb

import (
	"context"
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
	return fmt.Sprintf(`{"$userStreamAcl":{"$r":"$all","$w":"$all","$d":"$all","$mr":"$all","$mw":"$all"},`+
		`"$systemStreamAcl":{"$r":["$admins",%q],"$w":"$admins","$d":"$admins","$mr":"$admins","$mw":"$admins"}}`, group)
}

// probed is a stream that is never written to. Servers look at rights before they
// look whether a stream is there.
const probed events.Stream = "rights-probe"

// Rights returns the rights that a ledger needs, and which of them the user lacks.
// It writes nothing: it offers the probe, a record, to a stream of a length that no
// stream has. An error other than a refusal is returned.
func (s *Store) Rights(ctx context.Context, probe events.Record) ([]Right, error) {
	rights := []Right{{Name: "read $all"}, {Name: "read the ledger's streams"}, {Name: "append to the ledger's streams"}}
	for i, ask := range []func(context.Context) error{s.mayReadAll, s.mayRead, func(ctx context.Context) error { return s.mayAppend(ctx, probe) }} {
		err := ask(ctx)
		if err != nil && !errors.Is(err, ErrRefused) {
			return nil, fmt.Errorf("ask whether the user may %s: %w", rights[i].Name, err)
		}
		rights[i].Missing = err
	}
	return rights, nil
}

func (s *Store) mayReadAll(ctx context.Context) error {
	_, err := s.last(ctx)
	return err
}

func (s *Store) mayRead(ctx context.Context) error {
	err := s.drain(ctx, func() source { return reading(s.namespace+string(probed), esdb.Backwards, esdb.End{}, nil, 1) },
		func(message) (bool, error) { return false, nil })
	if verdict, judged := judge(err); err != nil && verdict != missing {
		return judged
	}
	return nil
}

func (s *Store) mayAppend(ctx context.Context, probe events.Record) error {
	sent, err := s.sendable(probed, []events.Record{probe})
	if err != nil {
		return err
	}
	ctx, free := s.bound(ctx)
	defer free()
	a := &appending{store: s, stream: probed, after: math.MaxInt64 - 1, records: []events.Record{probe}, events: sent}
	for p := (&pace{}); ; {
		p.begin()
		_, err := a.send(ctx)
		switch verdict, judged := judge(err); {
		case err == nil || verdict == conflict:
			return nil
		case context.Cause(ctx) != nil:
			return ended(ctx, p.last)
		case verdict != uncertain:
			return judged
		}
		if err := p.failed(ctx, err, s.patience); err != nil {
			return err
		}
	}
}

// forbidden returns an ErrForbidden for a refusal of what every use of a ledger
// needs, and any other error as it is.
func forbidden(what string, err error) error {
	if errors.Is(err, ErrRefused) {
		return fmt.Errorf("%w: it may not %s: %w", ErrForbidden, what, err)
	}
	return err
}
