package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// registryCommand returns the command group `ledger registry`, whose subcommand is at.
func (a *app) registryCommand() *cobra.Command {
	return a.group("registry", "Registry: the tool behind each name at any past time", a.noWaitFlag(a.registryAt()))
}

// registryAt returns the command `ledger registry at`, which shows the registrations in
// effect at a time.
func (a *app) registryAt() *cobra.Command {
	var filter views.RegistryFilter
	cmd := &cobra.Command{
		Use: "at [POSITION|TIME|now]", Short: "Show the registrations in effect at a time, and those that they hid",
		Long: `Show the layers and their registrations right after the event at a position, or
after all events up to a time, by the times of the events. A time is RFC 3339, a
date or a time of day in the local zone, or a duration before now, such as 10m.

Without --location or --session each layer is shown by itself. With them, the
layers that a turn there uses are combined: application, location, session; a
registration of a later layer hides one of the same name in an earlier layer.`,
		Example: "  ledger registry at now\n  ledger registry at 1204 --session @last\n  ledger registry at 2026-09-01T12:00:00Z --all -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			filter.Moment = append(args, "now")[0]
			return a.answer(cmd.Context(), func(s *stores.Store, r *index.Snapshot) error {
				return views.ShowRegistry(cmd.Context(), a.Printer, s, r, filter)
			})
		},
	}
	cmd.Flags().StringVar(&filter.Location, "location", "", "combine the layers of this location (a folder)")
	cmd.Flags().StringVar(&filter.Session, "session", "", "combine the layers of this session and its location")
	cmd.Flags().BoolVar(&filter.Closed, "all", false, "show closed layers and registrations, too")
	must(cmd.RegisterFlagCompletionFunc("session", a.complete(query.SessionWords)))
	must(cmd.MarkFlagDirname("location"))
	return cmd
}
