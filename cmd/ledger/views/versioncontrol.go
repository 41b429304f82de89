package views

import (
	"context"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A versionControlRow is the state of a working copy in JSON results.
type versionControlRow struct {
	System string  `json:"system"` // git
	Commit *string `json:"commit"`
	Branch *string `json:"branch"`
	State  *string `json:"state"` // clean or dirty; null: not known
}

// newVersionControlRow returns the row of a working copy, or nil for none.
func newVersionControlRow(v events.VersionControl) *versionControlRow {
	if v.IsZero() {
		return nil
	}
	return &versionControlRow{v.System, render.OrNull(v.Commit), render.OrNull(v.Branch), render.OrNull(string(v.State))}
}

// text returns the working copy on one line for a person.
func (v *versionControlRow) text() string {
	if v == nil {
		return ""
	}
	return render.Printable(strings.Join(strings.Fields(v.System+" "+render.ValueOf(v.Branch)+" "+render.ValueOf(v.Commit)+" "+render.ValueOf(v.State)), " "))
}

// openedWorkingCopy returns the working copy that the opening of a session records, or nil.
// It reads the first event.
func openedWorkingCopy(ctx context.Context, l *events.Ledger, session domain.SessionID) (*versionControlRow, error) {
	for v, err := range l.Read(ctx, events.SessionStream(session), 0) {
		if err != nil {
			return nil, err
		}
		if e, ok := v.Event.(events.SessionOpened); ok {
			return newVersionControlRow(e.VersionControl), nil
		}
		break
	}
	return nil, nil
}
