package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/settlement-ledger/ledger/cmd/ledger/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := bench.Command(ctx, table(), os.Args, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// table is the whole table of goals.
func table() bench.Table { return bench.Own().With(peers()) }

func peers() bench.Table {
	ledger := func(r bench.Reading) bench.Score { return bench.Score{Contestant: "ledger", Reading: r} }
	rate := func(contestant string) bench.Score { return bench.Score{Contestant: contestant, Reading: bench.Rate} }
	const ours = "durable appends, 64 writers"
	return bench.Table{
		Trials: []bench.Trial{
			{Name: "append-64", Contestants: []bench.Contestant{
				{Name: "sqlite", Open: bench.Appending(64, openSQLite)},
				{Name: "sqlite-grouped", Open: bench.Appending(64, openSQLiteGrouped)},
				{Name: "nats", Open: bench.Appending(64, openNATS)},
				{Name: "bbolt", Open: bench.Appending(64, openBolt)},
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
				{Name: "pebble", Open: scanPebble},
				{Name: "sqlite", Open: scanSQLite},
				{Name: "nats", Open: scanNATS},
			}},
		},
		Rows: []bench.Row{
			{"append-64-sqlite", ours, "SQLite, WAL, synchronous=FULL, a transaction each", "append-64", ledger(bench.Rate), rate("sqlite"), bench.AtLeast(10)},
			{"append-64-sqlite-grouped", ours, "the same, grouped by hand", "append-64", ledger(bench.Rate), rate("sqlite-grouped"), bench.AtLeast(1.3)},
			{"append-64-nats", ours, "NATS JetStream file store, sync always", "append-64", ledger(bench.Rate), rate("nats"), bench.AtLeast(10)},
			{"append-64-bbolt", ours, "bbolt Batch", "append-64", ledger(bench.Rate), rate("bbolt"), bench.AtLeast(10)},
			{"append-64-badger", ours, "Badger SyncWrites", "append-64", ledger(bench.Rate), rate("badger"), bench.AtLeast(10)},
			{"cpu-64", "processor time of an append, 64 writers", "bare Pebble, batches of the same bytes", "cpu-64", ledger(bench.CPU), bench.Score{Contestant: "pebble", Reading: bench.CPU}, bench.AtMost(2)},
			{"scan-headers", "read of 1,000,000 events, headers only", "bare Pebble iterator over the same keys", "scan", rate("headers"), rate("pebble"), bench.AtLeast(0.7)},
			{"scan-owned", "ReadAll of 1,000,000 events, with their bytes", "bare Pebble iterator over the same keys", "scan", rate("owned"), rate("pebble"), bench.AtLeast(0.6)},
			{"scan-lent", "Lend of 1,000,000 events, with their bytes", "bare Pebble iterator over the same keys", "scan", rate("lent"), rate("pebble"), bench.AtLeast(0.6)},
			{"scan-sqlite", "read of 1,000,000 events, headers only", "SQLite SELECT of the same columns in order", "scan", rate("headers"), rate("sqlite"), bench.AtLeast(2.5)},
			{"scan-nats", "read of 1,000,000 events, headers only", "NATS JetStream consumer, headers only", "scan", rate("headers"), rate("nats"), bench.AtLeast(10)},
		},
	}
}
