package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/publishing"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
)

// consumerCommand returns the command group `ledger consumer`, whose subcommands are ls,
// show, retry and forget.
func (a *app) consumerCommand() *cobra.Command {
	return a.group("consumer", "Consumers: position, lag and dead letters of publishing",
		a.consumerList(), a.consumerShow(), a.consumerRetry(), a.consumerForget())
}

// consumerList returns the command `ledger consumer ls`.
func (a *app) consumerList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the consumers with their positions and lag",
		Long: `List the consumers: target, position, lag in records, age of the oldest waiting
record, dead letters, and the last error. The lag does not count records that the
filter of the consumer excludes.`,
		Example: "  ledger consumer ls\n  ledger consumer ls -o json | jq '.[] | select(.lag > 0)'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error { return publishing.List(cmd.Context(), a.publishing(), s) })
		},
	}
}

// consumerShow returns the command `ledger consumer show`, which lists the dead letters
// of a consumer.
func (a *app) consumerShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "List the dead letters of a consumer",
		Example: "  ledger consumer show bus\n  ledger consumer show bus -o jsonl | jq -r .event",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeConsumers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error {
				return publishing.ShowDeadLetters(cmd.Context(), a.publishing(), s, args[0])
			})
		},
	}
}

// consumerRetry returns the command `ledger consumer retry`.
func (a *app) consumerRetry() *cobra.Command {
	return &cobra.Command{
		Use: "retry NAME [POSITION...]", Short: "Publish dead letters again",
		Long: `Publish dead letters again: those at the given positions, or all. A running
consumer, in ledger publish or ledger serve, retries them within about a second;
any other when it runs next. They arrive out of order: later records of their
stream have been published before.`,
		Example: "  ledger consumer retry bus\n  ledger consumer retry bus 1204",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: a.completeConsumers,
		RunE: func(cmd *cobra.Command, args []string) error {
			var positions []events.Position
			for _, text := range args[1:] {
				p, err := events.ParsePosition(text)
				if err != nil {
					return fault.Usage("%q is not a position, such as 1204", text)
				}
				positions = append(positions, p)
			}
			return a.Write(cmd.Context(), func(s *stores.Store) error {
				return publishing.Retry(cmd.Context(), a.publishing(), s, args[0], positions)
			})
		},
	}
}

// consumerForget returns the command `ledger consumer forget`.
func (a *app) consumerForget() *cobra.Command {
	return &cobra.Command{
		Use: "forget NAME", Short: "Remove a consumer and its dead letters",
		Long: `Remove a consumer, its position and its dead letters. Published records stay at the
target. A later run with the same name begins at its --from. A running consumer
cannot be removed.`,
		Example: "  ledger consumer forget bus",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeConsumers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Write(cmd.Context(), func(s *stores.Store) error {
				return publishing.Forget(cmd.Context(), a.publishing(), s, args[0])
			})
		},
	}
}

// completeConsumers completes the name of a consumer.
func (a *app) completeConsumers(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	_ = a.Read(cmd.Context(), func(s *stores.Store) error { // a shell cannot show errors
		all, err := a.Relay(s).Consumers(cmd.Context())
		for _, c := range all {
			if strings.HasPrefix(c.Name, typed) {
				words = append(words, c.Name+"\t"+c.Target)
			}
		}
		return err
	})
	return words, cobra.ShellCompDirectiveNoFileComp
}
