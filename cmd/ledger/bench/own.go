package bench

import "github.com/settlement-ledger/ledger/projections/index"

// Own returns the Suite with the trials and rows that need no other module. Most rows
// compare the embedded store with a floor: the fastest plain implementation of the same
// task.
func Own() Suite {
	t := Suite{}
	for _, part := range []Suite{appends(), settlings(), weights(), rebuilds(), deliveries(), openings(), outputRows(), memories()} {
		t = t.With(part)
	}
	return t
}

// ours returns the Score for reading r of the contestant with the name ledger, which is
// the embedded store.
func ours(r Reading) Score { return Score{"ledger", r} }

// appends returns the benchmarks of durable appends to the store, by 1, 64 and 256 writers,
// against writes and syncs of a plain file. A log grows, so no log reaches more of a file
// written over in place than the growing file does: the goals against the flat file are
// those against the growing one, times that share, which rows of their own measure.
func appends() Suite {
	const each, grouped, flat = "one file, write and fdatasync for each event", "one file with group commit", "one file with group commit, written over in place"
	many := func(writers int) []Contestant {
		return []Contestant{
			{"ledger", Appending(writers, OpenLedger)},
			{"file", Appending(writers, openGrouped(openGrowing))}, {"flat", Appending(writers, openGrouped(openFlat))},
		}
	}
	file, over := func(r Reading) Score { return Score{"file", r} }, func(r Reading) Score { return Score{"flat", r} }
	return Suite{
		Trials: []Trial{
			{"append-1", []Contestant{{"ledger", Appending(1, OpenLedger)}, {"file", Appending(1, openPerEvent)}}},
			{"append-64", many(64)}, {"append-256", many(256)},
		},
		Rows: []Row{
			{"append-1", "durable appends, 1 writer", each, "append-1", ours(Rate), file(Rate), AtLeast(0.9)},
			{"append-64", "durable appends, 64 writers", grouped, "append-64", ours(Rate), file(Rate), AtLeast(0.8)},
			{"append-64-p99", "p99 of an append, 64 writers", "p99 of " + grouped, "append-64", ours(Tail), file(Tail), AtMost(2)},
			{"append-256", "durable appends, 256 writers", grouped, "append-256", ours(Rate), file(Rate), AtLeast(0.5)},
			{"append-64-flat", "durable appends, 64 writers", flat, "append-64", ours(Rate), over(Rate), AtLeast(0.4)},
			{"append-64-flat-p99", "p99 of an append, 64 writers", "p99 of " + flat, "append-64", ours(Tail), over(Tail), AtMost(4.5)},
			{"append-256-flat", "durable appends, 256 writers", flat, "append-256", ours(Rate), over(Rate), AtLeast(0.33)},
			{"append-64-flat-floor", "durable appends to " + grouped + ", 64 writers", flat, "append-64", file(Rate), over(Rate), Floor()},
			{"append-64-flat-p99-floor", "p99 of an append to " + grouped + ", 64 writers", "p99 of " + flat, "append-64", file(Tail), over(Tail), Floor()},
			{"append-256-flat-floor", "durable appends to " + grouped + ", 256 writers", flat, "append-256", file(Rate), over(Rate), Floor()},
		},
	}
}

// settlings compares the settlement of a call with one append.
func settlings() Suite {
	return Suite{
		Trials: []Trial{
			{"settle-1", []Contestant{{"ledger", settling(1)}, {"append", Appending(1, OpenLedger)}}},
			{"settle-64", []Contestant{{"ledger", settling(64)}, {"pair", pairing(64)}, {"append", Appending(64, OpenLedger)}}},
		},
		Rows: []Row{
			{"settle-1", "settling a no-op tool, 1 session", "one durable append, 1 writer", "settle-1", ours(Each), Score{"append", Each}, AtMost(2.3)},
			{"settle-64", "settling a no-op tool, 64 sessions", "one durable append, 64 writers", "settle-64", ours(Each), Score{"append", Each}, AtMost(2.6)},
			{"settle-64-floor", "two durable appends in series, of the bytes of a settlement, 64 writers", "one durable append, 64 writers", "settle-64", Score{"pair", Each}, Score{"append", Each}, Floor()},
		},
	}
}

// weights compares the bytes on disk with the bytes of the events' JSON.
func weights() Suite {
	return Suite{
		Trials: []Trial{{"weight", []Contestant{{"ledger", weighing}}}},
		Rows: []Row{
			{"bytes-written", "bytes written for an event until compaction rests", "bytes of its JSON", "weight", ours(Written), ours(Payload), AtMost(2.5)},
			{"bytes-resting", "bytes that the files hold for an event then", "bytes of its JSON", "weight", ours(Resting), ours(Payload), AtMost(2.5)},
		},
	}
}

// rebuilds compares the rebuild of an index with the decoding of JSON.
func rebuilds() Suite {
	const floor = "encoding/json decode of the payloads alone, one core"
	return Suite{
		Trials: []Trial{{"rebuild", []Contestant{
			{"one", rebuild(1, (*index.Index).RebuildWithText)}, {"all", rebuild(0, (*index.Index).RebuildWithText)},
			{"no-text", rebuild(0, (*index.Index).RebuildWithoutText)}, {"json", overHistory(decodePayloads)},
		}}},
		Rows: []Row{
			{"rebuild-1", "rebuild of the index from 1,000,000 events, one core", floor, "rebuild", Score{"one", Rate}, Score{"json", Rate}, AtLeast(0.25)},
			{"rebuild-all", "rebuild of the index from 1,000,000 events, all cores", floor, "rebuild", Score{"all", Rate}, Score{"json", Rate}, AtLeast(0.35)},
			{"rebuild-no-text", "the same without full text", floor, "rebuild", Score{"no-text", Rate}, Score{"json", Rate}, AtLeast(0.7)},
		},
	}
}

// deliveries compares the time from an append to its delivery to followers with the time
// of the append itself.
func deliveries() Suite {
	return Suite{
		Trials: []Trial{{"follow", []Contestant{{"append", following(0)}, {"one", following(1)}, {"thousand", following(1000)}}}},
		Rows: []Row{
			{"follow-1", "p50 from append to delivery, 1 follower", "p50 of the append itself", "follow", Score{"one", Middle}, Score{"append", Middle}, AtMost(1.2)},
			{"follow-1000", "p99 from append to delivery, 1,000 followers", "p50 of the append itself", "follow", Score{"thousand", Tail}, Score{"append", Middle}, AtMost(10)},
		},
	}
}

// openings compares the opening of a large store with that of a small one.
func openings() Suite {
	const small = "the same with 50,000 events"
	return Suite{
		Trials: []Trial{
			{"open-closed", []Contestant{{"large", openingClosed("large", 5_000_000)}, {"small", openingClosed("small", 50_000)}}},
			{"open-killed", []Contestant{{"large", openingKilled("large", 5_000_000)}, {"small", openingKilled("small", 50_000)}}},
		},
		Rows: []Row{
			{"open-closed", "open 5,000,000 events of 100 bytes, closed before", small, "open-closed", Score{"large", Took}, Score{"small", Took}, AtMost(2)},
			{"open-killed", "open 5,000,000 events of 100 bytes, killed under load", small, "open-killed", Score{"large", Took}, Score{"small", Took}, AtMost(2)},
		},
	}
}

// outputRows compares outputs with plain files, and appends with and without an
// output being written.
func outputRows() Suite {
	t := Suite{
		Trials: []Trial{{"stall", []Contestant{{"beside", besideOutput(256 << 20)}, {"alone", besideOutput(0)}}}},
		Rows: []Row{{
			"append-beside-output", "p99 of appends, 8 writers, while a 256 MiB output is written", "without it",
			"stall", Score{"beside", Tail}, Score{"alone", Tail}, AtMost(3),
		}},
	}
	for _, o := range []struct {
		words string
		size  int64
		goal  float64
	}{{"64KiB", 64 << 10, 1.6}, {"1MiB", 1 << 20, 0.8}, {"16MiB", 16 << 20, 0.45}, {"256MiB", 256 << 20, 0.4}} {
		id := "output-" + o.words
		t = t.With(Suite{
			Trials: []Trial{{id, []Contestant{{"ledger", keeping(o.size)}, {"file", filing(o.size)}}}},
			Rows:   []Row{{id, "write an output of " + o.words + ", durable", "a plain file, fsync of it and its folder", id, ours(Flow), Score{"file", Flow}, AtLeast(o.goal)}},
		})
	}
	return t
}

// memories bounds the memory of processes that do one task. Its rows compare no
// contestants.
func memories() Suite {
	t := Suite{}
	for _, m := range []struct {
		task, words string
		contestant  Contestant
		goal        float64
	}{
		{"memory-append", "peak memory, 64 writers", Contestant{"ledger", apart("memory-append", emptyFolder)}, 256},
		{"memory-follow", "peak memory, 1,000 followers", Contestant{"ledger", apart("memory-follow", emptyFolder)}, 256},
		{"memory-rebuild", "peak memory, rebuild of the index from 1,000,000 events", Contestant{"ledger", apart("memory-rebuild", withHistory)}, 256},
		{"memory-output", "peak memory, an output of 1 GiB", Contestant{"ledger", apart("memory-output", emptyFolder)}, 256},
		{"memory-caches", "memory held after a read of 1,000,000 events", Contestant{"ledger", apart("memory-caches", withHistory)}, 64},
	} {
		t = t.With(Suite{
			Trials: []Trial{{m.task, []Contestant{m.contestant}}},
			Rows:   []Row{{m.task, m.words, "MiB of a process of its own", m.task, ours(Peak), Score{}, AtMost(m.goal)}},
		})
	}
	return t
}
