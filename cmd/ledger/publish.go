package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/projections/publish/jetstream"
	"github.com/settlement-ledger/ledger/projections/publish/jsonl"
)

// A publication holds the flags of ledger publish.
type publication struct {
	to, topic, name, from string         // of the one job that the flags describe
	only                  publish.Filter // from --kind, --tool and --agent
	follow                bool           // go on after catching up
	config                string         // path of a file of jobs, in place of the other flags
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

// publishCommand returns the command ledger publish.
func (a *app) publishCommand() *cobra.Command {
	var p publication
	cmd := &cobra.Command{
		Use: "publish", Short: "Publish records to NATS JetStream or to a file", Long: publishLong,
		Example: "  ledger publish --to nats://127.0.0.1:4222 --name bus --follow\n" +
			"  ledger publish --to file:settled.jsonl --name settled --kind CallSettled\n" +
			"  ledger publish --to 'nats://ada:${NATS_PASSWORD}@bus' --topic 'agents.{agent}.{kind}' --name agents --from now --follow\n" +
			"  ledger publish --config publish.toml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			orders, err := p.orders(a.Env)
			if err != nil {
				return err
			}
			return a.Write(cmd.Context(), func(s *stores.Store) error {
				for _, o := range orders {
					if err := query.CheckKinds(cmd.Context(), s, o.Filter.Kinds); err != nil {
						return err
					}
				}
				return a.publish(cmd.Context(), s, p, orders)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&p.to, "to", "", "the target: nats://HOST:PORT or file:PATH")
	flags.StringVar(&p.name, "name", "", "the name of the consumer")
	flags.StringVar(&p.topic, "topic", publish.DefaultTopic, "subject or topic at the target")
	flags.StringVar(&p.from, "from", "beginning", "where a new consumer begins: beginning, now or a position")
	flags.StringSliceVar(&p.only.Kinds, "kind", nil, "only records of this kind; may be repeated")
	flags.StringSliceVar(&p.only.Tools, "tool", nil, "only records about this tool; may be repeated")
	flags.StringSliceVar(&p.only.Agents, "agent", nil, "only records of sessions of this agent; may be repeated")
	flags.BoolVarP(&p.follow, "follow", "f", false, "continue after catching up, until interrupted")
	flags.StringVar(&p.config, "config", "", "a configuration file of consumers, in place of the other flags")
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

// orders returns the jobs to run: those of the configuration file, or the one that
// the flags describe. Variables of env are expanded in the target; the job records
// the target without its password.
func (p publication) orders(env func(string) (string, bool)) ([]publish.JobConfig, error) {
	if p.config != "" {
		return publications(p.config, env)
	}
	topic, err := publish.ParseTopic(p.topic)
	if err != nil {
		return nil, fault.Usage("--topic: %w", err)
	}
	from, err := publish.ParseStart(p.from)
	if err != nil {
		return nil, fault.Usage("--from: %q is not beginning, now or a position, such as 1204", p.from)
	}
	to, err := publish.ExpandEnv(p.to, env)
	if err != nil {
		return nil, fault.Usage("--to: %w", err)
	}
	o := publish.JobConfig{To: to, Job: publish.Job{Name: p.name, Target: publish.Redacted(to), Topic: topic, Filter: p.only, Start: from}}
	if err := publish.ValidName(p.name); err != nil {
		return nil, fault.Usage("--name: %w", err)
	}
	if err := fit(&o); err != nil {
		return nil, fault.Usage("--to: %w", err)
	}
	return []publish.JobConfig{o}, nil
}

// publications parses the configuration file at path and sets the policy of each
// job.
func publications(path string, env func(string) (string, bool)) ([]publish.JobConfig, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Usage("--config: %w", err)
	}
	orders, err := publish.ParseConfig(text, env)
	if err != nil {
		return nil, fault.Usage("%s: %w", path, err)
	}
	for i := range orders {
		if err := fit(&orders[i]); err != nil {
			return nil, fault.Usage("%s: %s: to: %w", path, orders[i].Name, err)
		}
	}
	return orders, nil
}

// fileOf returns the path of a file target, written as file:PATH or file:///PATH.
func fileOf(to string) string {
	if u, err := url.Parse(to); err == nil && strings.HasPrefix(to, "file:///") {
		return u.Path
	}
	return strings.TrimPrefix(to, "file:")
}

// linesAtOnce is the batch size of a file target: the lines written with one sync.
const linesAtOnce = 512

// fit sets the policy of o for its target: batches for a file, a number of workers
// for NATS. It makes the path of a file absolute, so that a later run from another
// directory continues the same file. Any other target is an error.
func fit(o *publish.JobConfig) error {
	scheme, rest, _ := strings.Cut(o.To, ":")
	switch {
	case scheme == "file" && rest != "":
		path, err := filepath.Abs(fileOf(o.To))
		if err != nil {
			return err
		}
		o.To, o.Target, o.Policy.Batch = "file:"+path, "file:"+path, linesAtOnce
	case scheme == "nats" || scheme == "tls":
		o.Policy.Workers = jetstream.Workers
	default:
		return fmt.Errorf("%q is no target: name nats://HOST:PORT or file:PATH", publish.Redacted(o.To))
	}
	return nil
}

// openTarget opens the target of a job that fit accepted. at is the position that
// the consumer has reached; a file is continued from there.
func openTarget(ctx context.Context, o publish.JobConfig, at events.Position) (publish.Target, error) {
	if path, ok := strings.CutPrefix(o.To, "file:"); ok {
		return jsonl.Open(path, at)
	}
	return jetstream.Open(ctx, o.To, o.Topic, o.Name)
}

// publish runs the jobs against s. It follows all jobs of a configuration file until
// ctx is done. The mutex keeps the lines of concurrent jobs on the standard error
// apart.
func (a *app) publish(ctx context.Context, s *stores.Store, p publication, orders []publish.JobConfig) error {
	desk := a.Relay(s)
	var complaining sync.Mutex
	for i := range orders {
		orders[i].Failed = func(f publish.FailedAttempt) {
			complaining.Lock()
			defer complaining.Unlock()
			a.complain(orders[i].Name, f)
		}
	}
	if p.config != "" {
		return ended(desk.FollowAll(ctx, orders, openTarget, func(name string, err error, _ time.Duration) {
			complaining.Lock()
			defer complaining.Unlock()
			fmt.Fprintf(a.Err, "%s: %s\n", name, render.Printable(err.Error()))
		}))
	}
	return a.publishOne(ctx, desk, orders[0], p.follow)
}

// publishOne runs one job and prints how far the consumer has come.
func (a *app) publishOne(ctx context.Context, desk *publish.Relay, o publish.JobConfig, follow bool) error {
	before, err := desk.Consumer(ctx, o.Name)
	if err != nil && !errors.Is(err, publish.ErrNoConsumer) {
		return fault.Publishing(err)
	}
	if follow {
		err = ended(desk.FollowConfigured(ctx, o, openTarget))
	} else {
		err = desk.CatchUpConfigured(ctx, o, openTarget)
	}
	// Print the summary also after an interruption.
	after, known := desk.Consumer(context.WithoutCancel(ctx), o.Name)
	if known == nil && (err == nil || after.Position != before.Position) {
		a.published(after, after.Published-min(before.Published, after.Published))
	}
	return fault.Publishing(err)
}

// published prints the state of a consumer and the number of records that this run
// published.
func (a *app) published(c publish.ConsumerState, n uint64) {
	row := struct {
		consumerRow
		Now uint64 `json:"published_now"`
	}{rowOfConsumer(c, nil, a.Now()), n}
	must(a.Object(row, func() { a.Line("%s", render.Printable(publishedText(c, n))) })) // the row always encodes as JSON
}

// publishedText returns the summary of a run for a person.
func publishedText(c publish.ConsumerState, n uint64) string {
	text := fmt.Sprintf("%s: published %d records to %s, through position %s", c.Name, n, c.Target, c.Position)
	if len(c.DeadLetters) > 0 {
		text += fmt.Sprintf("; %d are set aside (ledger consumer show %s)", len(c.DeadLetters), c.Name)
	}
	return text
}

// complain prints a failed attempt to publish. For a record that is retried it
// prints only attempts 1, 2, 4, 8 and so on, so that a long outage produces few
// lines. It always prints a record that becomes a dead letter.
func (a *app) complain(name string, f publish.FailedAttempt) {
	// f.Try has a single bit if it is a power of two.
	if f.Wait > 0 && f.Try&(f.Try-1) != 0 {
		return
	}
	what := "is tried again"
	if f.Wait == 0 {
		what = "is set aside"
	}
	fmt.Fprintf(a.Err, "%s: position %s %s: %s\n", name, f.Position, what, render.Printable(f.Err.Error()))
}

// ended returns nil for an interruption, which is the ordinary end of a command that
// follows, and err otherwise.
func ended(err error) error {
	if errors.Is(err, domain.ErrInterrupted) {
		return nil
	}
	return err
}
