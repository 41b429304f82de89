package sessionexport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// names returns the names in a folder.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A write that fails leaves the file as it was, and no other file. The error names the file
// and is a full disk to the command.
func TestAFailedWriteLeavesNoFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "[a]*.md")
	full := func(to io.Writer) error {
		if _, err := io.WriteString(to, "half"); err != nil {
			return err
		}
		return &os.PathError{Op: "write", Path: "part", Err: syscall.ENOSPC}
	}
	_, err := writeFile(path, full)
	if f := fault.Of(err); f.Code != "disk_full" || !strings.Contains(err.Error(), path) {
		t.Errorf("a full disk is reported as %s: %v", f.Code, err)
	}
	if got := names(t, filepath.Dir(path)); len(got) > 0 {
		t.Errorf("after the failed write the folder has %q", got)
	}
	// What a killed process left is removed, and nothing else.
	for _, left := range []string{".[a]*.md.123.part", ".abc.md.123.part"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), left), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	done, err := writeFile(path, func(to io.Writer) error { _, err := io.WriteString(to, "whole"); return err })
	if err != nil || done.bytes != 5 || done.sha256 != "5d5766cf2d78701614200418ee1450690d9af12c84d52545e4802f001ad53099" {
		t.Errorf("writeFile = %+v, %v", done, err)
	}
	if _, err := writeFile(path, full); err == nil {
		t.Error("a full disk is no error")
	}
	text, err := os.ReadFile(path)
	if string(text) != "whole" || err != nil {
		t.Errorf("the file has %q, %v", text, err)
	}
	if got := names(t, filepath.Dir(path)); !slices.Equal(got, []string{".abc.md.123.part", "[a]*.md"}) {
		t.Errorf("the folder has %q", got)
	}
}

// newRun returns an export into a folder, and its result.
func newRun(from Source, dir string) (*run, *bytes.Buffer) {
	var out bytes.Buffer
	p := &render.Printer{Out: bufio.NewWriter(&out), Err: io.Discard, Format: render.AsJSON}
	return &run{Config: Config{To: dir, Format: JSONLines}, out: p, from: from, bar: p.Progress()}, &out
}

// An interrupted export into a folder leaves complete files. The next one writes the rest,
// and again what has changed or is damaged.
func TestAnInterruptedExportGoesOn(t *testing.T) {
	t.Parallel()
	from, sessions := source(t, projectionstest.History(4, 300))
	if len(sessions) < 4 {
		t.Fatalf("the history has %d sessions", len(sessions))
	}
	dir := filepath.Join(t.TempDir(), "new")
	for n := range 3 { // sessions that are complete
		r, _ := newRun(from, dir)
		ctx, cancel := context.WithCancel(t.Context())
		err := r.toFolder(&endsAt{Context: ctx, cancel: cancel, at: func() bool { return len(r.rows) > n }}, sessions)
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("the interrupted export ends with %v", err)
		}
		for _, name := range names(t, dir) {
			if text, err := os.ReadFile(filepath.Join(dir, name)); name != manifestName && (err != nil || !bytes.Contains(text, []byte("\n"+`{"type":"end"`))) {
				t.Errorf("%s is not complete: %v", name, err)
			}
		}
	}
	// A line that a killed process left cut, a changed file and one of an older revision.
	manifestFile := filepath.Join(dir, manifestName)
	cut, err := os.OpenFile(manifestFile, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cut.WriteString(`{"file":"ses`); err != nil || cut.Close() != nil {
		t.Fatal(err)
	}
	first := filepath.Join(dir, sessions[0].ID.String()+".jsonl")
	if err := os.WriteFile(first, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, out := newRun(from, dir)
	if err := errors.Join(r.toFolder(t.Context(), sessions), r.report(), r.out.Out.Flush()); err != nil {
		t.Fatal(err)
	}
	var rows []exportRow
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil || len(rows) != len(sessions) {
		t.Fatalf("the report is %s, %v", out, err)
	}
	for i, row := range rows {
		if skipped := i == 1 || i == 2; row.Skipped != skipped {
			t.Errorf("session %d is skipped: %t, want %t", i, row.Skipped, skipped)
		}
	}
	if m, err := openManifest(dir); err != nil || len(m.files) != len(sessions) {
		t.Errorf("the manifest has %d of %d files, %v", len(m.files), len(sessions), err)
	}
	r, _ = newRun(from, dir)
	sessions[3].Revision--
	if err := r.toFolder(t.Context(), sessions); err != nil || r.rows[3].Skipped || !r.rows[0].Skipped {
		t.Errorf("the export of another revision skips it: %v", err)
	}
	if err := os.WriteFile(manifestFile, []byte("notes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.toFolder(t.Context(), sessions); err == nil || !strings.Contains(err.Error(), manifestFile) {
		t.Errorf("another file in place of the manifest is no error: %v", err)
	}
}

// endsAt is a context that is cancelled when a condition holds.
type endsAt struct {
	context.Context
	cancel context.CancelFunc
	at     func() bool
}

func (c *endsAt) Err() error {
	if c.at() {
		c.cancel()
	}
	return c.Context.Err()
}

func (c *endsAt) Done() <-chan struct{} { _ = c.Err(); return c.Context.Done() }
