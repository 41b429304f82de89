package views

import (
	"cmp"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// An approvalRow is one pattern of a saved approval in results. If a person approved
// several patterns with one answer, each pattern is a row and the rows share an ID.
type approvalRow struct {
	Approval domain.PermissionID `json:"approval"` // the permission request that the person answered with "always"
	Session  domain.SessionID    `json:"session"`  // the session that made the request
	Agent    domain.AgentID      `json:"agent"`    // the agent that made the request; the approval applies to no other agent
	Location string              `json:"location"` // the folder in which the approval applies, to all sessions
	Action   string              `json:"action"`   // the permitted action, as rules name it
	Resource string              `json:"resource"` // the pattern of permitted resources
	Saved    render.Timestamp    `json:"saved"`
	Expires  render.Timestamp    `json:"expires"` // null: never
	Expired  bool                `json:"expired"` // at the time of the command
	Person   *string             `json:"person"`  // the OS user who answered; null: not recorded
}

// newApprovalRow returns the row of a saved approval. It sets Expired by the clock of
// out.
func newApprovalRow(out *render.Printer, saved engine.SavedApproval) approvalRow {
	return approvalRow{
		Approval: saved.Permission, Session: saved.Session, Agent: saved.Agent, Location: saved.Location, Action: saved.Action, Resource: saved.Resource,
		Saved: render.Timestamp(saved.At), Expires: render.Timestamp(saved.Expires), Expired: expired(saved, out.Now()), Person: render.OrNull(saved.Person),
	}
}

// approvalRows returns the rows of saved approvals, in the same order.
func approvalRows(out *render.Printer, all []engine.SavedApproval) []approvalRow {
	rows := make([]approvalRow, len(all))
	for i, saved := range all {
		rows[i] = newApprovalRow(out, saved)
	}
	return rows
}

// expired reports whether a saved approval has expired at the time now. An approval
// without an expiry time, whose Expires is zero, never expires.
func expired(saved engine.SavedApproval, now time.Time) bool {
	return !saved.Expires.IsZero() && !now.Before(saved.Expires)
}

// An ApprovalFilter selects the approvals that ListApprovals prints.
type ApprovalFilter struct {
	Location string // a folder; empty: all folders
	Expired  bool   // expired approvals too
}

// ListApprovals prints the selected approvals that are not revoked, in the order of the log.
func ListApprovals(out *render.Printer, r *index.Snapshot, filter ApprovalFilter) error {
	state, err := query.SavedApprovals(r)
	if err != nil {
		return err
	}
	location := filter.Location
	if location != "" {
		if location, err = query.AbsoluteLocation("location", location); err != nil {
			return err
		}
	}
	var selected []engine.SavedApproval
	for _, saved := range state.Saved {
		if (location == "" || saved.Location == location) && (filter.Expired || !expired(saved, out.Now())) {
			selected = append(selected, saved)
		}
	}
	rows := approvalRows(out, selected)
	return render.Rows(out, rows, func() { approvalTable(out, rows, "No approvals. Answering a question with always saves one.") })
}

// approvalTable prints approvals as a table. If rows is empty it prints the text in the
// parameter empty.
func approvalTable(out *render.Printer, rows []approvalRow, empty string) {
	t := render.Table{Head: []string{"APPROVAL", "~AGENT", "~ACTION", "~RESOURCE", "~LOCATION", "SAVED", "EXPIRES", "~BY"}, Empty: empty}
	for _, r := range rows {
		expires := "never"
		switch {
		case r.Expired:
			expires = "expired"
		case !render.TimeOf(r.Expires).IsZero():
			expires = cmp.Or(out.Ago(render.TimeOf(r.Expires)), out.ShortTime(render.TimeOf(r.Expires)))
		}
		t.Add(render.ShortID(r.Approval), render.Printable(string(r.Agent)), render.Printable(r.Action), render.OneLine(r.Resource, render.TextWidth), render.OneLine(r.Location, render.TextWidth), out.ShortTime(render.TimeOf(r.Saved)), expires,
			render.Printable(render.ValueOf(r.Person)))
	}
	out.Table(t)
}

// PrintRevoked prints approvals that were revoked.
func PrintRevoked(out *render.Printer, revoked []engine.SavedApproval) error {
	rows := approvalRows(out, revoked)
	return render.Rows(out, rows, func() {
		for _, r := range rows {
			out.Line("Revoked %s %s of %s in %s.", render.Printable(r.Action), render.Printable(r.Resource), render.Printable(string(r.Agent)), render.Printable(r.Location))
		}
	})
}
