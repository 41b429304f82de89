package main

import (
	"context"
	"fmt"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/sessions"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// approvalCommand returns the command group `ledger approval`, whose subcommands are ls
// and revoke.
func (a *app) approvalCommand() *cobra.Command {
	return a.group("approval", "Approvals: permissions that a person granted with \"always\"", a.noWaitFlag(a.approvalList()), a.approvalRevoke())
}

// approvalList returns the command `ledger approval ls`.
func (a *app) approvalList() *cobra.Command {
	var filter views.ApprovalFilter
	cmd := &cobra.Command{
		Use: "ls", Short: "List the approvals in effect: agent, action, resources, location, time, person",
		Long: `List the approvals that are not revoked. A person saves an approval by answering a
permission question with "always". It applies to every session of the same agent in
the location where it was saved. A rule that denies overrides every approval.`,
		Example: "  ledger approval ls\n  ledger approval ls --location .\n  ledger approval ls --all -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.answer(cmd.Context(), func(_ *stores.Store, r *index.Snapshot) error { return views.ListApprovals(a.Printer, r, filter) })
		},
	}
	cmd.Flags().StringVar(&filter.Location, "location", "", "only approvals of this folder")
	cmd.Flags().BoolVar(&filter.Expired, "all", false, "list expired approvals, too")
	must(cmd.MarkFlagDirname("location"))
	return cmd
}

// approvalRevoke returns the command `ledger approval revoke`.
func (a *app) approvalRevoke() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "revoke APPROVAL...", Short: "Revoke approvals: later calls ask for permission again",
		Long: `Revoke approvals, so that later calls ask for permission again. APPROVAL is an ID
as ledger approval ls prints it, shortened or not; all patterns of one answer are
revoked together. The log records the revocation and the user who revoked. A
session that runs in another process keeps the approvals with which it began.`,
		Example: "  ledger approval revoke per_…4K2P9Q\n  ledger approval revoke @last --reason \"too wide\"",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: a.complete(query.ApprovalWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.revokeApprovals(cmd.Context(), args, reason)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, which is recorded")
	return cmd
}

// revokeApprovals appends an event that revokes the approvals with the given IDs, with
// the OS user and a reason, and prints the revoked approvals. It appends nothing if an
// ID is unknown or ambiguous.
func (a *app) revokeApprovals(ctx context.Context, ids []string, reason string) error {
	// Check the arguments before this process puts itself on record in the store.
	if err := a.answer(ctx, func(_ *stores.Store, r *index.Snapshot) error {
		_, err := query.Approvals(r, ids)
		return err
	}); err != nil {
		return err
	}
	return a.launcher().With(ctx, a.Open, func(p *sessions.ActiveProcess) error {
		var found []engine.SavedApproval
		err := a.answerer().Answer(ctx, p.Store, func(r *index.Snapshot) (err error) {
			found, err = query.Approvals(r, ids)
			return err
		})
		if err != nil {
			return err
		}
		if err := p.Revoke(ctx, found, osUser(), reason); err != nil {
			return err
		}
		return views.PrintRevoked(a.Printer, found)
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
