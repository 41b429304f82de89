package indexing

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// A database is answered from the folder of the node, from the cache folder if that cannot
// be written, and from memory if neither can. The answers are the same.
func TestADatabaseIsAnsweredFromTheFirstFolderThatTakesAnIndex(t *testing.T) {
	t.Parallel()
	log := eventstest.NewSlice()
	if err := projectionstest.Append(t.Context(), log, projectionstest.History(5, 200)); err != nil {
		t.Fatal(err)
	}
	s := &stores.Store{Ledger: events.NewLedger(log, domain.NewMint(time.Now, nil), time.Now)}
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	blocked = filepath.Join(blocked, "folder")
	want := -1
	for _, c := range []struct {
		name        string
		node, cache string
		nodes, hits int // the databases of the node and of the cache afterwards
	}{
		{"the node", t.TempDir(), t.TempDir(), 1, 0},
		{"the cache", blocked, t.TempDir(), 0, 1},
		{"memory", blocked, blocked, 0, 0},
	} {
		environment := map[string]string{"LEDGER_NODE": c.node, "XDG_CACHE_HOME": c.cache}
		a := &Answerer{Printer: &render.Printer{Now: time.Now, Err: os.Stderr}, Opener: &stores.Opener{Named: "esdb://ada:secret@db:2113", Getenv: func(name string) string { return environment[name] }}}
		found := -1
		err := a.Answer(t.Context(), s, func(r *index.Snapshot) error {
			all, err := r.Calls(index.CallQuery{})
			found = len(all)
			return err
		})
		if want == -1 {
			want = found
		}
		if err != nil || found != want || found < 1 {
			t.Errorf("from %s: %d calls, %v, want %d", c.name, found, err, want)
		}
		nodes, _ := filepath.Glob(filepath.Join(c.node, "index", "ledger.db"))
		hits, _ := filepath.Glob(filepath.Join(c.cache, "ledger", "index", "*", "ledger.db"))
		if len(nodes) != c.nodes || len(hits) != c.hits {
			t.Errorf("from %s: the node has %v and the cache %v, want %d and %d", c.name, nodes, hits, c.nodes, c.hits)
		}
	}
}
