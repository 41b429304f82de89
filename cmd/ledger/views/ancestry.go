package views

import (
	"context"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// An ancestor is a session that a fork continues, and the place from which it does.
type ancestor struct {
	Session  domain.SessionID `json:"session"`
	Revision int64            `json:"revision"`
	Event    domain.EventID   `json:"event"`
	Turn     *domain.TurnID   `json:"turn"`
	Call     *domain.CallID   `json:"call"`
}

// maxAncestors bounds the number of ancestors that are read.
const maxAncestors = 1000

// ancestry returns the sessions that a fork continues, its parent first, or an empty list
// for a session that is no fork. It reads the first two events of each.
func ancestry(ctx context.Context, l *events.Ledger, session domain.SessionID) ([]ancestor, error) {
	all := []ancestor{}
	for len(all) < maxAncestors {
		var forked *events.SessionForked
		for v, err := range l.Read(ctx, events.SessionStream(session), 0) {
			if err != nil {
				return all, err
			}
			if e, ok := v.Event.(events.SessionForked); ok {
				forked = &e
			}
			if v.Revision >= 2 {
				break
			}
		}
		if forked == nil {
			break
		}
		all = append(all, ancestor{forked.Parent, forked.Revision, forked.Event, render.OrNull(forked.Turn), render.OrNull(forked.Call)})
		session = forked.Parent
	}
	return all, nil
}

// ancestryText returns the ancestors of a fork for a person.
func ancestryText(all []ancestor) string {
	var parts []string
	for _, a := range all {
		parts = append(parts, fmt.Sprintf("%s at event %d", render.ShortID(a.Session), a.Revision))
	}
	return strings.Join(parts, ", from ")
}
