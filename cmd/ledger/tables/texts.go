package tables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
)

// The bounds of a batch of calls whose texts are read together.
const (
	batchCalls = 256
	batchBytes = 16 << 20
)

// maxGap is the largest number of events that are read in vain to save a read.
const maxGap = 64

// certain is the size from which on a text of the index may be a beginning.
const certain = 252

// errLargeBatch reports that the texts of a batch exceed batchBytes.
var errLargeBatch = errors.New("texts of a batch of calls are too large")

// eachFull passes calls with their whole texts to visit, in order. It reads them from the log
// in one batch, or in halves if they are too large for one.
func eachFull(ctx context.Context, s *stores.Store, all []calls.Call, visit func(fullCall) error) error {
	full, err := withTexts(ctx, s, all)
	if errors.Is(err, errLargeBatch) && len(all) > 1 {
		half := len(all) / 2
		if err := eachFull(ctx, s, all[:half], visit); err != nil {
			return err
		}
		return eachFull(ctx, s, all[half:], visit)
	}
	if err != nil && !errors.Is(err, errLargeBatch) {
		return err
	}
	for _, c := range full {
		if err := visit(c); err != nil {
			return err
		}
	}
	return nil
}

// newFullCall returns a call with the texts that the index has, some of them beginnings.
func newFullCall(c calls.Call) fullCall {
	return fullCall{query.CallWithInput{Call: c, Input: c.Input}, c.Preview, c.Settlement.Detail}
}

// withTexts returns calls with their whole inputs and texts. It reads those that the index
// does not have whole from the log, by the revisions of their events. If they exceed
// batchBytes, it returns an errLargeBatch, with all texts if there is one call.
func withTexts(ctx context.Context, s *stores.Store, all []calls.Call) ([]fullCall, error) {
	full := make([]fullCall, len(all))
	unread := map[domain.SessionID]map[events.Revision][]*fullCall{}
	need := func(c *fullCall, at events.Revision) {
		if unread[c.Session] == nil {
			unread[c.Session] = map[events.Revision][]*fullCall{}
		}
		unread[c.Session][at] = append(unread[c.Session][at], c)
	}
	for i, c := range all {
		full[i] = newFullCall(c)
		if c.InputPreview != "" {
			need(&full[i], c.AskedAt.Revision)
		}
		if len(c.Preview) >= certain || len(c.Settlement.Detail) >= certain {
			need(&full[i], c.SettledAt.Revision)
		}
	}
	bytes := 0
	for session, at := range unread {
		if err := readTexts(ctx, s, session, at, &bytes, len(all) == 1); err != nil {
			return nil, err
		}
	}
	if bytes > batchBytes {
		return full, errLargeBatch
	}
	return full, nil
}

// readTexts sets the texts of the calls of one session, by the revisions of the events that
// have them, and adds their sizes to bytes. Unless all is set, it ends with an errLargeBatch at
// batchBytes.
func readTexts(ctx context.Context, s *stores.Store, session domain.SessionID, at map[events.Revision][]*fullCall, bytes *int, all bool) error {
	for rest := slices.Sorted(maps.Keys(at)); len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n]-rest[n-1] <= maxGap {
			n++
		}
		for v, err := range s.Ledger.Read(ctx, events.SessionStream(session), rest[0]-1) {
			if err != nil {
				return err
			}
			for _, c := range at[v.Revision] {
				if err := c.read(v); err != nil {
					return err
				}
				*bytes += len(c.Input) + len(c.text) + len(c.detail)
			}
			if !all && *bytes > batchBytes {
				return errLargeBatch
			}
			if v.Revision >= rest[n-1] {
				break
			}
		}
		rest = rest[n:]
	}
	return nil
}

// read sets the texts that the event v has.
func (c *fullCall) read(v events.Envelope) error {
	var asked []domain.Call
	switch e := v.Event.(type) {
	case events.ReplyReceived:
		asked = e.Calls
	case events.CallsAdded:
		asked = e.Calls
	case events.CallSettled:
		c.text, c.detail = calls.Shown(e), e.Detail
		return nil
	}
	for _, a := range asked {
		if a.ID == c.ID {
			c.Input = a.Input
			return nil
		}
	}
	return fmt.Errorf("%w: revision %d of session %s has no text of call %s", index.ErrDamagedIndex, v.Revision, c.Session, c.ID)
}
