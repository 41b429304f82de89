package query

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// A CallWithInput is a call with its whole input.
type CallWithInput struct {
	calls.Call
	Input json.RawMessage // as the model sent it; JSON null for a result without a call
}

// CallsWithInputs returns calls with their whole inputs. The projection of calls keeps
// only short inputs. CallsWithInputs reads the longer inputs from the log, by the revisions
// of their events.
func CallsWithInputs(ctx context.Context, s *stores.Store, all []calls.Call) ([]CallWithInput, error) {
	found := make([]CallWithInput, len(all))
	missing := map[domain.SessionID][]*CallWithInput{}
	for i, c := range all {
		found[i] = CallWithInput{c, render.RawJSON(c.Input)}
		if c.InputPreview != "" {
			missing[c.Session] = append(missing[c.Session], &found[i])
		}
	}
	for session, unread := range missing {
		if err := readInputs(ctx, s, session, unread); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// maxGap is the largest number of events that readInputs reads in vain to save a read.
const maxGap = 64

// readInputs sets the inputs of the calls in unread, which belong to one session. It
// reads the events that asked for them, and the events between those that are near to
// each other.
func readInputs(ctx context.Context, s *stores.Store, session domain.SessionID, unread []*CallWithInput) error {
	at := map[events.Revision][]*CallWithInput{}
	for _, c := range unread {
		at[c.AskedAt.Revision] = append(at[c.AskedAt.Revision], c)
	}
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
				c.Input = inputOf(v.Event, c.ID)
			}
			if v.Revision >= rest[n-1] {
				break
			}
		}
		rest = rest[n:]
	}
	return nil
}

// inputOf returns the input of a call in the event that asked for it: a reply, or the
// calls that another call added. It returns nil if the event has no such call. An input
// that is not JSON is returned as a JSON string.
func inputOf(e events.Event, id domain.CallID) json.RawMessage {
	var asked []domain.Call
	switch e := e.(type) {
	case events.ReplyReceived:
		asked = e.Calls
	case events.CallsAdded:
		asked = e.Calls
	}
	for _, c := range asked {
		if c.ID == id {
			return render.RawJSON(c.Input)
		}
	}
	return nil
}
