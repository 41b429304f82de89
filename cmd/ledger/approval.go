package main

import (
	"cmp"
	"context"
	"fmt"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/sessions"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// approvalCommand returns the command approval: ls and revoke.
func (a *app) approvalCommand() *cobra.Command {
	return a.group("approval", "Approvals: what a person allowed for always", a.approvalList(), a.approvalRevoke())
}

// An approvalRow is one saved approval in the results: one pattern. Several rows share an
// ID if the person approved several patterns with one answer.
type approvalRow struct {
	Approval domain.PermissionID `json:"approval"` // the permission request that the person answered with "always"
	Session  domain.SessionID    `json:"session"`  // the session that made the request
	Location string              `json:"location"` // the folder in which the approval applies, to all sessions
	Action   string              `json:"action"`   // the permitted action, as rules name it
	Resource string              `json:"resource"` // the pattern of permitted resources
	Saved    render.Timestamp    `json:"saved"`
	Expires  render.Timestamp    `json:"expires"` // null: never
	Expired  bool                `json:"expired"` // at the time of the command
	Person   *string             `json:"person"`  // the OS user who answered; null: not recorded
}

// approvalRowOf converts a saved approval. It sets Expired by the app's clock.
func (a *app) approvalRowOf(saved engine.SavedApproval) approvalRow {
	return approvalRow{
		Approval: saved.Permission, Session: saved.Session, Location: saved.Location, Action: saved.Action, Resource: saved.Resource,
		Saved: render.Timestamp(saved.At), Expires: render.Timestamp(saved.Expires), Expired: expired(saved, a.Now()), Person: render.OrNull(saved.Person),
	}
}

// approvalRows converts saved approvals and keeps their order.
func (a *app) approvalRows(all []engine.SavedApproval) []approvalRow {
	rows := make([]approvalRow, len(all))
	for i, saved := range all {
		rows[i] = a.approvalRowOf(saved)
	}
	return rows
}

// expired reports whether an approval has expired at now. An approval with a zero Expires
// never does.
func expired(saved engine.SavedApproval, now time.Time) bool {
	return !saved.Expires.IsZero() && !now.Before(saved.Expires)
}

// approvalList returns the command approval ls.
func (a *app) approvalList() *cobra.Command {
	var location string
	var all bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List the approvals that count: action, resources, where, since when, by whom",
		Long: `List the approvals that persons saved by answering a question with always, and
that were not revoked. An approval counts in the location where it was saved, for
every session there. A rule that denies is stronger than any approval.`,
		Example: "  ledger approval ls\n  ledger approval ls --location .\n  ledger approval ls --all -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error { return a.listApprovals(cmd.Context(), s, location, all) })
		},
	}
	cmd.Flags().StringVar(&location, "location", "", "only those of this folder")
	cmd.Flags().BoolVar(&all, "all", false, "those that expired, too")
	must(cmd.MarkFlagDirname("location"))
	return cmd
}

// listApprovals prints the approvals that are not revoked, in the order of the log. A
// location that is not empty selects the approvals of that folder; all includes expired ones.
func (a *app) listApprovals(ctx context.Context, s *stores.Store, location string, all bool) error {
	state, err := stores.Current(ctx, s, engine.Approvals())
	if err != nil {
		return err
	}
	if location != "" {
		if location, err = query.AbsoluteLocation("location", location); err != nil {
			return err
		}
	}
	var selected []engine.SavedApproval
	for _, saved := range state.Saved {
		if (location == "" || saved.Location == location) && (all || !expired(saved, a.Now())) {
			selected = append(selected, saved)
		}
	}
	rows := a.approvalRows(selected)
	return render.Rows(a.Printer, rows, func() { a.approvalTable(rows, "No approvals. Answering a question with always saves one.") })
}

// approvalTable prints approvals as a table, or the text empty if rows is empty.
func (a *app) approvalTable(rows []approvalRow, empty string) {
	t := render.Table{Head: []string{"APPROVAL", "~ACTION", "~RESOURCE", "~LOCATION", "SAVED", "EXPIRES", "~BY"}, Empty: empty}
	for _, r := range rows {
		expires := "never"
		switch {
		case r.Expired:
			expires = "expired"
		case !render.TimeOf(r.Expires).IsZero():
			expires = cmp.Or(a.Ago(render.TimeOf(r.Expires)), a.ShortTime(render.TimeOf(r.Expires)))
		}
		t.Add(render.ShortID(r.Approval), render.Printable(r.Action), render.OneLine(r.Resource, render.TextWidth), render.OneLine(r.Location, render.TextWidth), a.ShortTime(render.TimeOf(r.Saved)), expires,
			render.Printable(render.ValueOf(r.Person)))
	}
	a.Table(t)
}

// approvalRevoke returns the command approval revoke.
func (a *app) approvalRevoke() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "revoke APPROVAL...", Short: "Take approvals back: what they allowed is asked about again",
		Long: `Take approvals back, so that what they allowed is asked about again. APPROVAL is
an ID as ledger approval ls prints it, shortened or not; all patterns that one
answer saved are revoked together. That is recorded, with the user who did it. A
session that runs in another process goes by the approvals it began with.`,
		Example: "  ledger approval revoke per_…4K2P9Q\n  ledger approval revoke @last --reason \"too wide\"",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: a.complete(query.ApprovalWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.revokeApprovals(cmd.Context(), args, reason)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

// revokeApprovals appends the revocation of the named approvals, with the OS user and a
// reason, and prints them. It appends nothing if an ID is unknown or ambiguous.
func (a *app) revokeApprovals(ctx context.Context, ids []string, reason string) error {
	// Check the arguments before this process puts itself on record in the store.
	if err := a.Read(ctx, func(s *stores.Store) error {
		_, err := query.Approvals(ctx, s, ids)
		return err
	}); err != nil {
		return err
	}
	return a.launcher().With(ctx, a.Open, func(p *sessions.ActiveProcess) error {
		found, err := query.Approvals(ctx, p.Store, ids)
		if err != nil {
			return err
		}
		if err := p.Revoke(ctx, found, osUser(), reason); err != nil {
			return err
		}
		rows := a.approvalRows(found)
		return render.Rows(a.Printer, rows, func() {
			for _, r := range rows {
				a.Line("Revoked %s %s in %s.", render.Printable(r.Action), render.Printable(r.Resource), render.Printable(r.Location))
			}
		})
	})
}

// osUser returns the name of the OS user of this process, "uid N" for a user without a name,
// and "" if the user is unknown.
func osUser() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	if u.Username != "" {
		return u.Username
	}
	return strings.TrimSpace(fmt.Sprint("uid ", u.Uid))
}
