package doctor

import (
	"crypto/rand"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
)

// The median of an even number of times is the later of the two in the middle.
func TestTimingsAreInOrder(t *testing.T) {
	t.Parallel()
	if got := (timings{9, 1, 5}); got.median() != 5 || got.worst() != 9 {
		t.Errorf("median and worst of %v are %v and %v", []time.Duration(got), got.median(), got.worst())
	}
	if got := (timings{4, 1}); got.median() != 4 || got[0] != 4 {
		t.Errorf("median of 4 and 1 is %v, and they are in the order %v", got.median(), []time.Duration(got))
	}
}

// The check cluster fails for a dead member, for a cluster without a leader and for nodes that
// follow different leaders. It adds no finding for a single node or without members.
func TestClusterIsChecked(t *testing.T) {
	t.Parallel()
	node := func(address, state string, alive bool) eventstoredb.Member {
		return eventstoredb.Member{Address: address, State: state, Alive: alive}
	}
	for name, c := range map[string]struct {
		nodes []eventstoredb.Node
		ok    bool
		says  string // the detail; empty: no finding
	}{
		"one alone":  {[]eventstoredb.Node{{Address: "a:1", Members: []eventstoredb.Member{node("a:1", "Leader", true)}}}, true, ""},
		"untold":     {[]eventstoredb.Node{{Address: "a:1"}, {Address: "b:1"}}, true, ""},
		"whole":      {[]eventstoredb.Node{{Address: "a:1", Members: []eventstoredb.Member{node("a:1", "Follower", true), node("b:1", "Leader", true)}}}, true, "a:1 sees 2 nodes: a:1 follower, b:1 leader"},
		"dead":       {[]eventstoredb.Node{{Address: "a:1", Members: []eventstoredb.Member{node("a:1", "Leader", true), node("b:1", "Follower", false)}}}, false, "b:1 dead"},
		"leaderless": {[]eventstoredb.Node{{Address: "a:1", Members: []eventstoredb.Member{node("a:1", "Unknown", true), node("b:1", "Leader", false)}}}, false, "there is no leader"},
		"strangers": {[]eventstoredb.Node{
			{Address: "a:1", Members: []eventstoredb.Member{node("a:1", "Leader", true)}}, {Address: "b:1", Members: []eventstoredb.Member{node("b:1", "Leader", true)}},
		}, false, "follow 2 leaders instead of one"},
	} {
		e := &Report{OK: true}
		e.cluster(c.nodes)
		if c.says == "" {
			if len(e.Checks) > 0 {
				t.Errorf("%s: %+v, want nothing", name, e.Checks)
			}
			continue
		}
		if len(e.Checks) != 1 || e.OK != c.ok || !strings.Contains(e.Checks[0].Detail, c.says) {
			t.Errorf("%s: %+v, want %q, well: %v", name, e.Checks, c.says, c.ok)
		}
	}
}

// If a node answers without its time, the report says so and passes. If the node does not
// answer, the report has no line about clocks.
func TestTheDoctorSaysThatAClockIsNotTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		node eventstoredb.Node
		said int
	}{{eventstoredb.Node{Address: "a:1"}, 1}, {eventstoredb.Node{Address: "a:1", Err: eventstoredb.ErrUnreachable}, 0}} {
		e := &Report{OK: true}
		e.clocks([]eventstoredb.Node{c.node})
		if len(e.Checks) != c.said || !e.OK {
			t.Errorf("of %+v: %+v, want %d lines", c.node, e.Checks, c.said)
		}
	}
}

// A node passes if one of its addresses accepts connections, and the detail lists the others.
// A node without such an address fails.
func TestEveryAddressOfANameIsReported(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	e := &Report{OK: true}
	e.network(eventstoredb.Node{Address: "db:2113", Named: true, Dials: []eventstoredb.DialResult{{Address: "10.0.0.1:2113", Err: refused}, {Address: "10.0.0.2:2113", Took: time.Millisecond}}})
	if got := e.Checks[0]; !got.OK || got.Detail != "db:2113 10.0.0.2 accepts connections, after 1ms; 10.0.0.1 fails: dial: connection refused" || got.Figures["took_us"] != 1000 {
		t.Errorf("one of two: %+v", got)
	}
	e.network(eventstoredb.Node{Address: "db:2113", Dials: []eventstoredb.DialResult{{Address: "10.0.0.1:2113", Err: refused}}})
	if got := e.Checks[1]; got.OK || !strings.Contains(got.Detail, "which another node names") {
		t.Errorf("none: %+v", got)
	}
}

// The report gives the lag of each cached answer, in records for a folder and as positions
// for a database, and omits an answer without a position.
func TestTheDoctorTellsHowFarKeptAnswersAre(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.Context(), "db", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	mint := domain.NewMint(time.Now, rand.Reader)
	for n := range 5 {
		if err := store.Append(t.Context(), "s-1", events.Revision(n), events.Record{ID: mint.Event(), Kind: "K", Version: 1, Data: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	for view, position := range map[string]string{"calls": "5", "catalog": "2", "staleness": "what"} {
		if err := store.SaveCheckpoint(t.Context(), view, []byte(`{"position":"`+position+`"}`+"\nanswer")); err != nil {
			t.Fatal(err)
		}
	}
	a := &Doctor{Printer: &render.Printer{Now: time.Now}}
	for where, folder := range map[string]*stores.Folder{"folder": {}, "database": nil} {
		e := &Report{OK: true}
		s := &stores.Store{Log: store, Checkpoints: store, Folder: folder, Ledger: events.NewLedger(store, mint, time.Now)}
		if err := a.examineViews(t.Context(), e, s); err != nil {
			t.Fatal(err)
		}
		want := "calls is current, catalog is 3 records behind; "
		if folder == nil {
			want = "calls is current, catalog is at position 2 of 5; "
		}
		if len(e.Checks) != 1 || !strings.HasPrefix(e.Checks[0].Detail, want) {
			t.Errorf("in a %s: %+v, want %q", where, e.Checks, want)
		}
	}
}

// The check disk passes for a new store. It reports the failures and the slow writes that the
// last writer of the folder saved.
func TestTheDoctorTellsWhatTheDiskMet(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.Context(), "db", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	a, s := &Doctor{Printer: &render.Printer{Now: time.Now}}, &stores.Store{Log: store, Checkpoints: store, Folder: &stores.Folder{Log: store}}
	e := &Report{OK: true}
	if err := a.examineDisk(t.Context(), e, s); err != nil || !e.OK || len(allNamed(e, "disk")) != 1 {
		t.Errorf("of a new store the doctor says %+v, %v; want it well", e.Checks, err)
	}
	last := `{"closed":"2026-03-01T12:00:00Z","health":{"failures":2,"last_failure":"no such block","slow":3,"last_slow":"sync of 000007.log","stalls":0}}`
	if err := store.SaveCheckpoint(t.Context(), "store/pace", []byte(last)); err != nil {
		t.Fatal(err)
	}
	e = &Report{OK: true}
	if err := a.examineDisk(t.Context(), e, s); err != nil {
		t.Fatal(err)
	}
	told := allNamed(e, "disk")
	if e.OK || len(told) != 2 || !strings.Contains(told[0].Detail, "no such block") || !strings.Contains(told[1].Detail, "000007.log") || !strings.Contains(told[1].Detail, "2026-03-01") {
		t.Errorf("of a store that met failures the doctor says %+v, want both", told)
	}
}

// allNamed returns the findings of the checks with one name.
func allNamed(e *Report, name string) (all []Check) {
	for _, c := range e.Checks {
		if c.Check == name {
			all = append(all, c)
		}
	}
	return all
}
