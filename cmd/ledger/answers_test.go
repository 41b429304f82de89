package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/indexing"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/projections/index"
)

// An index that turns out to be damaged while a command answers from it is rebuilt, and the
// command answers as before. The test overwrites one page of the database at a time.
func TestACommandAnswersFromADamagedIndexAsBefore(t *testing.T) {
	t.Parallel()
	store := newSeededStore(t)
	commands := [][]string{{"call", "show", "@last"}, {"turn", "show", "@last", "-o", "json"}}
	var want [][]byte
	for _, args := range commands {
		got := ledger(t, store, args...)
		if got.exit != 0 {
			t.Fatalf("ledger %v: exit %d, %s", args, got.exit, got.err)
		}
		want = append(want, got.out)
	}
	path, err := filepath.EvalSymlinks(filepath.Join(store, "index", "ledger.db"))
	noError(t, err)
	intact, err := os.ReadFile(path)
	noError(t, err)
	const page = 4096
	for at := page; at < len(intact); at += 13 * page {
		changed := slices.Clone(intact)
		copy(changed[at:], bytes.Repeat([]byte{0xff}, page))
		folder := filepath.Join(t.TempDir(), "store")
		copyFolder(t, store, folder)
		noError(t, os.RemoveAll(filepath.Join(folder, "index")))
		noError(t, os.Mkdir(filepath.Join(folder, "index"), 0o700))
		noError(t, os.WriteFile(filepath.Join(folder, "index", "ledger.db"), changed, 0o600))
		for i, args := range commands {
			if got := ledger(t, folder, args...); got.exit != 0 || !bytes.Equal(got.out, want[i]) {
				t.Errorf("page %d: ledger %v: exit %d, %s%s; want %s", at/page, args, got.exit, got.out, got.err, want[i])
			}
		}
	}
}

// An Answerer rebuilds an index that its user finds damaged, and asks once more.
func TestAnAnswererAsksAgainAfterARebuild(t *testing.T) {
	t.Parallel()
	a := newApp(&render.Printer{Out: bufio.NewWriter(io.Discard), Err: io.Discard, Env: os.LookupEnv, Now: time.Now}, nil, rand.Reader)
	a.Named = newSeededStore(t)
	answerer := &indexing.Answerer{Printer: a.Printer, Opener: a.Opener}
	asked := 0
	err := answerer.Read(t.Context(), func(_ *stores.Store, r *index.Snapshot) error {
		if asked++; asked == 1 {
			return fmt.Errorf("page 7: %w", index.ErrDamagedIndex)
		}
		_, err := query.Session(r, query.Last)
		return err
	})
	if err != nil || asked != 2 {
		t.Errorf("Read = %v after %d questions, want nil after 2", err, asked)
	}
}
