package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/settlement-ledger/ledger/cmd/ledger/bench"
)

// main measures the table and exits with the status of bench.Command. An interrupt or
// SIGTERM cancels the context of the run.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := bench.Command(ctx, table(), os.Args, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// table returns the trials and rows of package cmd/ledger/bench together with those of
// the function peers.
func table() bench.Suite { return bench.Own().With(peers()) }

// peers returns the trials and rows that compare the embedded store with other
// databases. Some trials have the name of a trial in package cmd/ledger/bench:
// Suite.With adds their contestants to that trial, so that all of them run in the same
// rounds. docs/performance.md discusses the results.
func peers() bench.Suite {
	ledger := func(r bench.Reading) bench.Score { return bench.Score{Contestant: "ledger", Reading: r} }
	rate := func(contestant string) bench.Score { return bench.Score{Contestant: contestant, Reading: bench.Rate} }
	const ours = "durable appends, 64 writers"
	return bench.Suite{
		Trials: []bench.Trial{
			{Name: "append-64", Contestants: []bench.Contestant{
				{Name: "sqlite", Open: bench.Appending(64, openSQLite)},
				{Name: "sqlite-grouped", Open: bench.Appending(64, openSQLiteGrouped)},
				{Name: "nats", Open: bench.Appending(64, openNATS)},
				{Name: "bbolt", Open: bench.Appending(64, openBolt)},
				{Name: "bbolt-default", Open: bench.Appending(64, openBoltDefault)},
				{Name: "badger", Open: bench.Appending(64, openBadger)},
			}},
			{Name: "cpu-64", Contestants: []bench.Contestant{
				{Name: "ledger", Open: bench.Appending(64, bench.OpenLedger)},
				{Name: "pebble", Open: bench.Appending(64, openPebble)},
			}},
			{Name: "scan", Contestants: []bench.Contestant{
				{Name: "headers", Open: bench.Scanning(bench.ScanHeaders)},
				{Name: "owned", Open: bench.Scanning(bench.ScanAll)},
				{Name: "lent", Open: bench.Scanning(bench.ScanLent)},
				{Name: "pebble", Open: scanPebble(iterate)},
				{Name: "pebble-copied", Open: scanPebble(iterateCopies)},
				{Name: "sqlite", Open: scanSQLite},
				{Name: "nats", Open: scanNATS},
			}},
		},
		Rows: []bench.Row{
			{
				ID: "append-64-sqlite", Measure: ours,
				Against: "SQLite, WAL, synchronous=FULL, a transaction each", Trial: "append-64",
				Ours: ledger(bench.Rate), Theirs: rate("sqlite"), Goal: bench.AtLeast(10),
			},
			{
				ID: "append-64-sqlite-grouped", Measure: ours,
				Against: "the same, grouped by hand", Trial: "append-64",
				Ours: ledger(bench.Rate), Theirs: rate("sqlite-grouped"), Goal: bench.AtLeast(1.3),
			},
			{
				ID: "append-64-nats", Measure: ours,
				Against: "NATS JetStream file store, sync always", Trial: "append-64",
				Ours: ledger(bench.Rate), Theirs: rate("nats"), Goal: bench.AtLeast(10),
			},
			{
				ID: "append-64-bbolt", Measure: ours,
				Against: "bbolt Batch, tuned to 64 writers", Trial: "append-64",
				Ours: ledger(bench.Rate), Theirs: rate("bbolt"), Goal: bench.AtLeast(1.3),
			},
			{
				ID: "append-64-bbolt-floor", Measure: "durable appends to one file with group commit, 64 writers",
				Against: "bbolt Batch, tuned to 64 writers", Trial: "append-64",
				Ours: rate("file"), Theirs: rate("bbolt"), Goal: bench.Floor(),
			},
			{
				ID: "append-64-bbolt-default", Measure: ours,
				Against: "bbolt Batch, MaxBatchDelay as it comes", Trial: "append-64",
				Ours: ledger(bench.Rate), Theirs: rate("bbolt-default"), Goal: bench.AtLeast(10),
			},
			{
				ID: "append-64-badger", Measure: ours,
				Against: "Badger SyncWrites", Trial: "append-64",
				Ours: ledger(bench.Rate), Theirs: rate("badger"), Goal: bench.AtLeast(10),
			},
			{
				ID: "cpu-64", Measure: "processor time of an append, 64 writers",
				Against: "bare Pebble, batches of the same bytes", Trial: "cpu-64",
				Ours: ledger(bench.CPU), Theirs: bench.Score{Contestant: "pebble", Reading: bench.CPU}, Goal: bench.AtMost(2),
			},
			{
				ID: "scan-headers", Measure: "read of 1,000,000 events, headers only",
				Against: "bare Pebble iterator over the same keys", Trial: "scan",
				Ours: rate("headers"), Theirs: rate("pebble"), Goal: bench.AtLeast(0.7),
			},
			{
				ID: "scan-owned-copied", Measure: "ReadAll of 1,000,000 events, with their bytes",
				Against: "bare Pebble iterator over the same keys that copies each value", Trial: "scan",
				Ours: rate("owned"), Theirs: rate("pebble-copied"), Goal: bench.AtLeast(0.8),
			},
			{
				ID: "scan-owned-floor", Measure: "bare Pebble iterator over the same keys that copies each value",
				Against: "one that does not", Trial: "scan",
				Ours: rate("pebble-copied"), Theirs: rate("pebble"), Goal: bench.Floor(),
			},
			{
				ID: "scan-lent", Measure: "Lend of 1,000,000 events, with their bytes",
				Against: "bare Pebble iterator over the same keys", Trial: "scan",
				Ours: rate("lent"), Theirs: rate("pebble"), Goal: bench.AtLeast(0.6),
			},
			{
				ID: "scan-sqlite", Measure: "read of 1,000,000 events, headers only",
				Against: "SQLite SELECT of the same columns in order", Trial: "scan",
				Ours: rate("headers"), Theirs: rate("sqlite"), Goal: bench.AtLeast(2.5),
			},
			{
				ID: "scan-nats", Measure: "read of 1,000,000 events, headers only",
				Against: "NATS JetStream consumer, headers only", Trial: "scan",
				Ours: rate("headers"), Theirs: rate("nats"), Goal: bench.AtLeast(5),
			},
			{
				ID: "scan-nats-floor", Measure: "bare Pebble iterator over the same keys",
				Against: "NATS JetStream consumer, headers only", Trial: "scan",
				Ours: rate("pebble"), Theirs: rate("nats"), Goal: bench.Floor(),
			},
		},
	}
}
