package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// permissionCommand returns the command group `ledger permission`, whose subcommand is ls.
func (a *app) permissionCommand() *cobra.Command {
	return a.group("permission", "Permissions: list requests and questions, and who decided", a.noWaitFlag(a.permissionList()))
}

// permissionList returns the command `ledger permission ls`.
func (a *app) permissionList() *cobra.Command {
	var filter views.RequestFilter
	cmd := &cobra.Command{
		Use: "ls", Short: "List permission requests and questions with who decided them, in the order of the log",
		Long: `List the permission requests and the questions of calls, each with its decision: the
effect, who decided, the person and the rule. A call that a rule allows makes no
request. --pending lists those that wait for an answer.`,
		Example: "  ledger permission ls --session @last\n  ledger permission ls --pending\n  ledger permission ls --by user --since 2d\n  ledger permission ls --where 'effect = deny and action = bash' -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.answer(cmd.Context(), func(_ *stores.Store, r *index.Snapshot) error { return views.ListRequests(a.Printer, r, filter) })
		},
	}
	a.listFlags(cmd, &filter.Filter, query.RequestList)
	cmd.Flags().BoolVar(&filter.Pending, "pending", false, "only requests and questions without an answer")
	return cmd
}
