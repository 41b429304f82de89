# make is the check that a change passes before it is committed. Each target is
# a line that one could type.

GO ?= go
FUZZTIME ?= 20s
STATICCHECK = $(GO) tool -modfile=tools.mod staticcheck

# The programs of the build, in a folder that ./... leaves out.
TOOLS = ./.ci/codecgen ./.ci/words

.PHONY: words generate check build vet lint fmt test test-long race fuzz crash powercuts soak laws mutants bench bench-scale bench-check cover demo

check: build vet fmt lint test

build:
	$(GO) build ./...

vet:
	$(GO) vet ./... $(TOOLS)

fmt:
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not gofmt-clean:"; echo "$$unformatted"; exit 1; }

lint:
	$(STATICCHECK) ./... $(TOOLS)

# The tests: every law and every kind of test, with small counts. go test would run a
# part of the analyses of "vet" again, for half a minute. Many tests wait for processes and
# timeouts, so more of them run at once than there are cores. The test programs are linked
# without DWARF, which reports of races and panics do not need: that saves about three
# seconds for each.
test:
	$(GO) test -vet=off -ldflags=-w -parallel 6 -timeout 15m ./... $(TOOLS)

# The same with the race detector, for which every package is compiled once more: ten
# minutes on 2 cores. A change passes it before it is merged; .ci/run runs it.
race:
	$(GO) test -race -vet=off -ldflags=-w -parallel 6 -timeout 20m ./... $(TOOLS)

# The tests with the long counts of power cuts, kills, flips and random histories,
# and a soak of a minute. They run without the race detector, as each round is one
# that "race" runs with it. Up to 15 minutes on 2 cores.
test-long:
	LEDGER_TEST_LONG=1 $(GO) test -ldflags=-w -count=1 -timeout 20m ./...

# Power cuts in memory, and SIGKILL of the real program, with long counts.
crash:
	LEDGER_TEST_LONG=1 $(GO) test -race -timeout 30m -run 'PowerCut|Crash|SIGKILL|Killed' -count=1 -v ./events/embedded ./registry/outputs ./runner ./cmd/ledger

# Ten thousand power cuts under each durability, on disks that keep their word and
# on some that do not.
powercuts:
	LEDGER_TEST_POWER_CUTS=10000 $(GO) test -timeout 30m -run '^TestPowerCuts$$' -count=1 -v ./events/embedded

# Five minutes of a server that is restarted every few seconds under load.
soak:
	LEDGER_TEST_SOAK=5m $(GO) test -timeout 15m -run 'Soak' -count=1 -v ./events/eventstoredb

# Each law with its sentence, and that its saboteur was caught.
laws:
	@$(GO) test -count=1 -run '^TestLawsAreThoseOfTheDocument$$' -v ./cmd/ledger

# Plausible bugs of one line each, of which the tests must catch every one. Up to
# 10 minutes on 2 cores.
mutants:
	.ci/mutants/run

fuzz:
	.ci/fuzz $(FUZZTIME)

# The table of goals, each measured beside what it is held to, in less than 15
# minutes; every round is in bench.csv. BENCH='-only append' takes a part of it.
bench:
	cd bench && $(GO) run . -csv ../bench.csv $(BENCH)

# The reading commands of the real program over logs of 100,000 to 10,000,000 events, in less
# than 15 minutes; every row is in bench-scale.csv. SIZES='100000 1000000' takes others.
SIZES ?= 100000 1000000 4000000 10000000
bench-scale:
	@mkdir -p $(CURDIR)/.bench-scale
	$(GO) build -o $(CURDIR)/.bench-scale/ledger ./cmd/ledger
	cd bench && $(GO) build -o $(CURDIR)/.bench-scale/bench .
	.bench-scale/bench scale -ledger $(CURDIR)/.bench-scale/ledger -sizes '$(SIZES)' -csv bench-scale.csv $(BENCH); status=$$?; rm -r .bench-scale; exit $$status

# The module of the table with peers, which the others do not reach.
bench-check:
	cd bench && $(GO) vet . && $(GO) test .

# Writes the generated code, after a change of an event struct or of the table of
# kinds. A test of package events fails while it is not up to date.
generate:
	$(GO) generate ./events

# How the code reads: comment lines, words that avoid a noun, type names declared
# twice. WORDS='-sample 100 -seed 7' prints doc comments to judge by eye.
words:
	@$(GO) run ./.ci/words $(WORDS)

cover:
	$(GO) test -coverpkg=./... -coverprofile=cover.out ./... && $(GO) tool cover -func=cover.out | tail -1

demo:
	$(GO) run ./cmd/ledger demo
