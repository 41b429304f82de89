package main

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
)

// mounted mounts a file system on a new folder and returns the folder. It skips the
// test if the user may not mount. The mount is removed when the test ends.
func mounted(t *testing.T, source, kind string, flags uintptr, data string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount(source, dir, kind, flags, data); err != nil {
		t.Skipf("mounting needs root: %v", err)
	}
	t.Cleanup(func() { noError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

// A store on a read-only mount can be read, verified, checked and copied.
func TestAReadOnlyMountIsReadAndVerified(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]string{"closed": newSeededStore(t), "killed": newCrashedStore(t, newSeededStore(t))} {
		dir := mounted(t, store, "", syscall.MS_BIND, "")
		noError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
			t.Fatalf("write to a read-only mount = %v, want EROFS", err)
		}
		for _, command := range readingCommands {
			got := ledger(t, dir, inStore(t, dir, command)...)
			if got.exit != 0 && !(command == "doctor" && got.exit == fault.ExitFailed) {
				t.Errorf("%s: ledger %s: exit %d, %s%s", name, command, got.exit, got.out, got.err)
			}
		}
		copied := filepath.Join(t.TempDir(), "copy")
		if got := ledger(t, dir, "store", "copy", dir, copied); got.exit != 0 {
			t.Errorf("%s: store copy: exit %d, %s%s", name, got.exit, got.out, got.err)
		}
		there, here := ledger(t, dir, "verify", "--no-index", "-o", "json").out, ledger(t, store, "verify", "--no-index", "-o", "json").out
		if !bytes.Equal(bytes.ReplaceAll(there, []byte(dir), []byte(store)), here) {
			t.Errorf("%s: verify there: %s; here: %s", name, there, here)
		}
	}
}

// The index of a store that cannot be written is in the cache folder, and in memory if that
// cannot be written either; the answers are the same. With --no-wait no file is made.
func TestAReadOnlyStoreIsAnsweredFromTheCacheOrFromMemory(t *testing.T) {
	t.Parallel()
	store := newSeededStore(t)
	dir := mounted(t, store, "", syscall.MS_BIND, "")
	noError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
	cache := t.TempDir()
	run := func(cache string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), commandPath(), append([]string{"--store", dir}, args...)...)
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	found := func() []string {
		files, err := filepath.Glob(filepath.Join(cache, "ledger", "index", "*", "ledger.db"))
		noError(t, err)
		return files
	}
	if out, err := run(cache, "call", "ls", "--no-wait"); err == nil || !strings.Contains(out, "there is no index") || len(found()) != 0 {
		t.Errorf("call ls --no-wait without an index: %v, %s, files %v; want an error and no file", err, out, found())
	}
	for _, args := range [][]string{{"call", "ls", "-o", "json"}, {"session", "show", "@last"}, {"turn", "show", "@last"}, {"registry", "at", "now"}} {
		want := ledger(t, store, args...)
		for name, folder := range map[string]string{"cache": cache, "memory": filepath.Join(dir, "no")} {
			if got, err := run(folder, args...); err != nil || got != string(want.out) {
				t.Errorf("%s: ledger %s: %v, %s; want %s", name, strings.Join(args, " "), err, got, want.out)
			}
		}
	}
	if len(found()) != 1 {
		t.Errorf("the cache has the indexes %v, want one", found())
	}
	if out, err := run(cache, "call", "ls", "--no-wait"); err != nil {
		t.Errorf("call ls --no-wait: %v, %s", err, out)
	}
}

// A store on a full disk can be read and verified, and no reader changes a file of it.
func TestAFullDiskIsReadAndVerified(t *testing.T) {
	t.Parallel()
	died := newCrashedStore(t, newSeededStore(t))
	dir := mounted(t, "none", "tmpfs", 0, "size=64m")
	store := filepath.Join(dir, "store")
	copyFolder(t, died, store)
	filler, err := os.Create(filepath.Join(dir, "filler"))
	noError(t, err)
	for block := make([]byte, 1<<20); err == nil; {
		_, err = filler.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill a disk = %v, want ENOSPC", err)
	}
	noError(t, filler.Close())
	before := digests(t, store)
	for _, command := range readingCommands {
		got := ledger(t, store, inStore(t, store, command)...)
		if got.exit != 0 && !(command == "doctor" && got.exit == fault.ExitFailed) {
			t.Errorf("ledger %s: exit %d, %s%s", command, got.exit, got.out, got.err)
		}
	}
	if after := digests(t, store); !maps.Equal(after, before) {
		t.Errorf("readers changed %v", changedFiles(before, after))
	}
}
