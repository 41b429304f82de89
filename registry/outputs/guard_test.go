package outputs

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestFrozenDiskStaysAsItIs(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	g := newGuard(mem)
	log, err := g.Create("1.log", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	table, err := g.Create("2.sst", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	g.armed.Store(true)
	g.fail(errors.New("disk died"), false)
	if n, err := log.Write([]byte("lost")); n != 4 || err != nil {
		t.Errorf("Write of a log = %d, %v, want 4, nil", n, err)
	}
	if _, err := table.Write([]byte("lost")); err == nil {
		t.Error("Write of a table = nil, want an error")
	}
	if next, err := g.Create("3.log", vfs.WriteCategoryUnspecified); err != nil {
		t.Errorf("Create of a log = %v, want one that goes nowhere", err)
	} else if err := errors.Join(next.Sync(), next.Close()); err != nil {
		t.Errorf("Sync and Close of it = %v, want nil", err)
	}
	if g.Link("1.log", "4.log") == nil || g.Rename("1.log", "5.log") == nil {
		t.Error("Link and Rename = nil, want errors")
	}
	if err := errors.Join(g.Remove("1.log"), g.RemoveAll("2.sst")); err != nil {
		t.Errorf("Remove = %v, want nil", err)
	}
	names, err := mem.List("")
	if file, statErr := mem.Stat("1.log"); err != nil || statErr != nil || file.Size() != 0 || len(names) != 2 {
		t.Errorf("the disk holds %v, %v, %v, want the two files as they were", names, err, statErr)
	}
	if g.failed() == nil {
		t.Error("failed = nil, want an error")
	}
}
