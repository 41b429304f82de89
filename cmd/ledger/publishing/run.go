package publishing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// A Config holds the printer and the opener that the functions of this package use.
type Config struct {
	*render.Printer // of results, and of failed attempts on the standard error
	*stores.Opener  // makes the relay of a store
}

// Run publishes the records of s with the jobs that f.Jobs returned.
//
// With a configuration file it runs all jobs until ctx ends. Otherwise there is one job,
// which Run runs until it has published all records of the log, or with f.Follow until
// ctx ends. It then prints the state of the consumer. If a run lasts until ctx ends, an
// interruption is no error.
//
// Before it starts a job, Run returns a usage fault if a job selects an unknown kind.
func Run(ctx context.Context, c Config, s *stores.Store, f Flags, jobs []publish.JobConfig) error {
	for _, job := range jobs {
		if err := query.CheckKinds(ctx, s, job.Filter.Kinds); err != nil {
			return err
		}
	}
	relay := c.Relay(s)
	var printing sync.Mutex // held while a job writes a line to the standard error
	for i := range jobs {
		jobs[i].Failed = func(failed publish.FailedAttempt) {
			printing.Lock()
			defer printing.Unlock()
			c.printFailure(jobs[i].Name, failed)
		}
	}
	if f.Config != "" {
		return interruptionIsNoError(relay.FollowAll(ctx, jobs, OpenTarget, func(name string, err error, _ time.Duration) {
			printing.Lock()
			defer printing.Unlock()
			fmt.Fprintf(c.Err, "%s: %s\n", name, render.Printable(err.Error()))
		}))
	}
	return c.runOne(ctx, relay, jobs[0], f.Follow)
}

// runOne runs one job and then prints the state of its consumer and the number of
// published records. After an error it prints them only if the consumer advanced. If
// follow is set, an interruption is no error.
func (c Config) runOne(ctx context.Context, relay *publish.Relay, job publish.JobConfig, follow bool) error {
	before, err := relay.Consumer(ctx, job.Name)
	if err != nil && !errors.Is(err, publish.ErrNoConsumer) {
		return fault.Publishing(err)
	}
	if follow {
		err = interruptionIsNoError(relay.FollowConfigured(ctx, job, OpenTarget))
	} else {
		err = relay.CatchUpConfigured(ctx, job, OpenTarget)
	}
	after, loadErr := relay.Consumer(context.WithoutCancel(ctx), job.Name)
	if loadErr == nil && (err == nil || after.Position != before.Position) {
		err = errors.Join(err, c.printSummary(after, after.Published-min(before.Published, after.Published)))
	}
	return fault.Publishing(err)
}

// printSummary prints the state of a consumer and the number of records that this run
// published.
func (c Config) printSummary(state publish.ConsumerState, published uint64) error {
	row := struct {
		ConsumerRow
		Now uint64 `json:"published_now"`
	}{newConsumerRow(state, nil, c.Now()), published}
	return c.Object(row, func() { c.Line("%s", render.Printable(summary(state, published))) })
}

// summary returns the result of a run for a person.
func summary(state publish.ConsumerState, published uint64) string {
	text := fmt.Sprintf("%s: published %d records to %s, through position %s", state.Name, published, state.Target, state.Position)
	if len(state.DeadLetters) > 0 {
		text += fmt.Sprintf("; %s (ledger consumer show %s)", render.Count(len(state.DeadLetters), "dead letter"), state.Name)
	}
	return text
}

// printFailure prints a failed attempt to publish a record. While the record is retried
// it prints only attempts 1, 2, 4, 8 and so on, so that a long outage produces few
// lines. It always prints the last attempt, after which the record becomes a dead
// letter.
func (c Config) printFailure(name string, f publish.FailedAttempt) {
	// f.Try has a single bit if it is a power of two.
	if f.Wait > 0 && f.Try&(f.Try-1) != 0 {
		return
	}
	result := "is retried"
	if f.Wait == 0 {
		result = "is a dead letter"
	}
	fmt.Fprintf(c.Err, "%s: position %s %s: %s\n", name, f.Position, result, render.Printable(f.Err.Error()))
}

// interruptionIsNoError returns nil if err is an interruption, and err otherwise. An
// interruption is the normal end of a command that follows the log.
func interruptionIsNoError(err error) error {
	if errors.Is(err, domain.ErrInterrupted) {
		return nil
	}
	return err
}
