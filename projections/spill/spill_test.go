package spill_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/settlement-ledger/ledger/projections/spill"
)

// A value is a value of the maps of the tests.
type value struct{ N int }

// A Map with a small limit answers as a Go map does after random changes.
func TestAMapAnswersAsAGoMap(t *testing.T) {
	t.Parallel()
	store, err := spill.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	text := func(k int) string { return fmt.Sprint("key ", k) }
	options := spill.Options[int, value]{Text: text, Limit: 20}
	// Two maps of one Store are apart.
	all := [2]*spill.Map[int, value]{spill.NewMap(store, options), spill.NewMap(store, options)}
	want := [2]map[int]int{{}, {}}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for step := range 20_000 {
		i, k := random.IntN(2), random.IntN(200)
		m := all[i]
		switch random.IntN(6) {
		case 0:
			m.Delete(k)
			delete(want[i], k)
		case 1, 2:
			m.Put(k, &value{step})
			want[i][k] = step
		case 3: // changed in place
			if v := m.Get(k); v != nil {
				v.N = step
				m.Put(k, v)
				want[i][k] = step
			}
		default:
			v, n := m.Get(k), 0
			if v != nil {
				n = v.N
			}
			if expected, ok := want[i][k]; ok != (v != nil) || n != expected {
				t.Fatalf("seed %d, step %d: Get(%d) = %v, want %d %t", seed, step, k, v, expected, ok)
			}
		}
		m.Trim()
		if step%2_000 == 0 {
			var got []int
			for v := range m.All() {
				got = append(got, v.N)
			}
			slices.Sort(got)
			if expected := slices.Sorted(maps.Values(want[i])); !slices.Equal(got, expected) {
				t.Fatalf("seed %d, step %d: All = %v, want %v", seed, step, got, expected)
			}
		}
	}
	if err := store.Err(); err != nil {
		t.Error(err)
	}
}

// Open reports a temporary folder that does not exist, and Close removes the folder that
// Open made.
func TestTheFolderOfAStoreIsRemoved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	store, err := spill.Open()
	if err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d entries while open, want 1", len(entries))
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("%v is left", entries)
	}
	t.Setenv("TMPDIR", dir+"/missing")
	if _, err := spill.Open(); err == nil {
		t.Error("Open in a folder that does not exist succeeds")
	}
}
