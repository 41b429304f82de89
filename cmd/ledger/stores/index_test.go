package stores

import (
	"path/filepath"
	"slices"
	"testing"
)

// The index of a database is in the folder of this node, or in the cache folder under the
// identity of the database, which has no credentials.
func TestTheIndexOfADatabaseIsInTheNodeOrTheCache(t *testing.T) {
	t.Parallel()
	folders := func(address string, environment map[string]string) []string {
		t.Helper()
		at, err := parseAddress(address)
		if err != nil {
			t.Fatal(err)
		}
		found, err := (&Opener{Getenv: func(name string) string { return environment[name] }}).IndexFolders(at)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	both := map[string]string{"LEDGER_NODE": "/node", "XDG_CACHE_HOME": "/cache", "HOME": "/home/ada"}
	one := folders("esdb://ada:secret@db:2113", both)
	if len(one) != 2 || one[0] != "/node/index" || filepath.Dir(one[1]) != "/cache/ledger/index" {
		t.Errorf("IndexFolders = %v, want a folder of the node, then one of the cache", one)
	}
	if again := folders("esdb://bob:other@db:2113", both); !slices.Equal(again, one) {
		t.Errorf("with other credentials IndexFolders = %v, want %v", again, one)
	}
	for _, other := range []string{"esdb://db:2114", "esdb://db:2113?namespace=team"} {
		if found := folders(other, both); found[1] == one[1] {
			t.Errorf("%s has the cache folder of another database: %v", other, found)
		}
	}
	for name, c := range map[string]struct {
		environment map[string]string
		want        []string
	}{
		"a relative cache folder": {map[string]string{"LEDGER_NODE": "/node", "XDG_CACHE_HOME": "cache", "HOME": "/home/ada"}, []string{"/node/index", "/home/ada/.cache/ledger/index/" + filepath.Base(one[1])}},
		"no cache folder":         {map[string]string{"LEDGER_NODE": "/node"}, []string{"/node/index"}},
	} {
		if found := folders("esdb://ada:secret@db:2113", c.environment); !slices.Equal(found, c.want) {
			t.Errorf("with %s IndexFolders = %v, want %v", name, found, c.want)
		}
	}
}
