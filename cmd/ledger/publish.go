package main

import (
	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/cmd/ledger/publishing"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// publishing returns the printer and the opener for package publishing.
func (a *app) publishing() publishing.Config {
	return publishing.Config{Printer: a.Printer, Opener: a.Opener}
}

const publishLong = `Publish records unchanged to a NATS server with JetStream, or to a file of JSON
lines. Each consumer has a name. The store keeps the position of each consumer, and a
later run continues from there; a new consumer begins at --from: the beginning, now,
or after a position. One process at a time runs a consumer; a second one fails with
the ID of the first.

Every record arrives at least once, the records of a stream in order, and a
repeated record has the same ID. If the target is not available, publishing waits
and retries. A record that the target refuses becomes a dead letter: ledger
consumer show lists it.

The command ends when it has caught up; with --follow it runs until it is
interrupted, which is its normal end.

Targets:
  nats://[USER:PASSWORD@]HOST[:PORT][?creds=FILE][&ca=FILE][&stream=NAME], or tls://
  file:PATH

In --to and in the configuration, ${NAME} is replaced by an environment variable, so
that a password need not be written down. In --topic, {category}, {stream}, {kind},
{session}, {agent} and {tool} are replaced by the values of the record. The topic is
the subject on a NATS server.

--config runs several consumers: one table [[publish]] in TOML for each, with name,
to, topic, from, kinds, categories, streams, tools and agents. It follows the log.`

// publishCommand returns the command `ledger publish`.
func (a *app) publishCommand() *cobra.Command {
	var f publishing.Flags
	cmd := &cobra.Command{
		Use: "publish", Short: "Publish records to NATS JetStream or to a file", Long: publishLong,
		Example: "  ledger publish --to nats://127.0.0.1:4222 --name bus --follow\n" +
			"  ledger publish --to file:settled.jsonl --name settled --kind CallSettled\n" +
			"  ledger publish --to 'nats://ada:${NATS_PASSWORD}@bus' --topic 'agents.{agent}.{kind}' --name agents --from now --follow\n" +
			"  ledger publish --config publish.toml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			jobs, err := f.Jobs(a.Env)
			if err != nil {
				return err
			}
			return a.Write(cmd.Context(), func(s *stores.Store) error {
				return publishing.Run(cmd.Context(), a.publishing(), s, f, jobs)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.To, "to", "", "the target: nats://HOST:PORT or file:PATH")
	flags.StringVar(&f.Name, "name", "", "the name of the consumer")
	flags.StringVar(&f.Topic, "topic", publish.DefaultTopic, "subject or topic at the target")
	flags.StringVar(&f.From, "from", "beginning", "where a new consumer begins: beginning, now or a position")
	flags.StringSliceVar(&f.Filter.Kinds, "kind", nil, "only records of this kind; may be repeated")
	flags.StringSliceVar(&f.Filter.Tools, "tool", nil, "only records about this tool; may be repeated")
	flags.StringSliceVar(&f.Filter.Agents, "agent", nil, "only records of sessions of this agent; may be repeated")
	flags.BoolVarP(&f.Follow, "follow", "f", false, "continue after catching up, until interrupted")
	flags.StringVar(&f.Config, "config", "", "a configuration file of consumers, in place of the other flags")
	cmd.MarkFlagsMutuallyExclusive("config", "to")
	cmd.MarkFlagsMutuallyExclusive("config", "name")
	cmd.MarkFlagsOneRequired("config", "to")
	cmd.MarkFlagsRequiredTogether("to", "name")
	must(cmd.RegisterFlagCompletionFunc("name", a.completeConsumers))
	must(cmd.RegisterFlagCompletionFunc("tool", a.complete(query.ToolWords)))
	must(cmd.RegisterFlagCompletionFunc("agent", a.complete(query.AgentWords)))
	must(cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(events.Kinds(), cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}
