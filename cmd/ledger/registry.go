package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/spf13/cobra"
)

// registryCommand returns the group ledger registry.
func (a *app) registryCommand() *cobra.Command {
	return a.group("registry", "The registry: what each name meant, at any moment", a.registryAt())
}

// registryAt returns the command ledger registry at.
func (a *app) registryAt() *cobra.Command {
	var filter views.RegistryFilter
	cmd := &cobra.Command{
		Use: "at [POSITION|TIME|now]", Short: "Show which registrations were in effect, and which they hid",
		Long: `Show the layers and their registrations as they were once the event at a
position was on record, or once all events up to a time were, by their own
clocks. A time is RFC 3339, a date or a time of the day in the local zone, or how
long ago, such as 10m.

Without --location or --session each layer is judged by itself. With them, the
layers that a turn there sees are laid over each other: application, location,
session.`,
		Example: "  ledger registry at now\n  ledger registry at 1204 --session @last\n  ledger registry at 2026-09-01T12:00:00Z --all -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			filter.Moment = append(args, "now")[0]
			return a.Read(cmd.Context(), func(s *stores.Store) error { return views.ShowRegistry(cmd.Context(), a.Printer, s, filter) })
		},
	}
	cmd.Flags().StringVar(&filter.Location, "location", "", "as seen in this directory or workspace")
	cmd.Flags().StringVar(&filter.Session, "session", "", "as seen by this session, in its location")
	cmd.Flags().BoolVar(&filter.Closed, "all", false, "closed layers and registrations, too")
	must(cmd.RegisterFlagCompletionFunc("session", a.complete(query.SessionWords)))
	must(cmd.MarkFlagDirname("location"))
	return cmd
}
