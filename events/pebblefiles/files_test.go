package pebblefiles

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// database makes a closed database with a table and a log.
func database(t testing.TB) vfs.FS {
	t.Helper()
	storage := vfs.NewMem()
	use(t, storage, func(db *pebble.DB) error {
		return errors.Join(db.Set([]byte("a"), bytes.Repeat([]byte("x"), 5000), pebble.Sync), db.Flush(), db.Set([]byte("b"), []byte("y"), pebble.Sync))
	})
	return storage
}

func use(t testing.TB, storage vfs.FS, do func(*pebble.DB) error) {
	t.Helper()
	db, err := pebble.Open("db", &pebble.Options{FS: storage, FormatMajorVersion: FormatVersion})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(do(db), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func change(t testing.TB, storage vfs.FS, name string, do func([]byte) []byte) {
	t.Helper()
	text, err := readFile(storage, "db/"+name)
	if err == nil {
		err = WriteFile(storage, "db", name, do(text))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestASealIsTakenAwayOnlyFromWhatWasSealed(t *testing.T) {
	t.Parallel()
	storage := database(t)
	if end, err := Unseal(storage, "db"); end != 0 || err != nil {
		t.Errorf("Unseal without a seal = %d, %v; want 0", end, err)
	}
	if err := Seal(storage, "db", 42); err != nil {
		t.Fatal(err)
	}
	list, err := List(storage, "db")
	if err != nil {
		t.Fatal(err)
	}
	flip := func(text []byte) []byte { text[len(text)/2] ^= 1; return text }
	longer := func(text []byte) []byte { return append(text, 0) }
	for _, f := range list {
		if !isSealed(f.Name) && f.Name != sealName {
			continue
		}
		whole, err := readFile(storage, "db/"+f.Name)
		if err != nil {
			t.Fatal(err)
		}
		changes := []func([]byte) []byte{longer}
		if f.Bytes > 0 && f.Kind != Table {
			changes = append(changes, flip)
		}
		for _, do := range changes {
			change(t, storage, f.Name, do)
			if _, err := Unseal(storage, "db"); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), f.Name) {
				t.Errorf("Unseal with %s changed = %v, want %v that names it", f.Name, err, ErrDamaged)
			}
			change(t, storage, f.Name, func([]byte) []byte { return whole })
		}
		if f.Name == sealName {
			continue
		}
		if err := storage.Remove("db/" + f.Name); err != nil {
			t.Fatal(err)
		}
		if _, err := Unseal(storage, "db"); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "missing") {
			t.Errorf("Unseal without %s = %v, want %v", f.Name, err, ErrDamaged)
		}
		if err := WriteFile(storage, "db", f.Name, whole); err != nil {
			t.Fatal(err)
		}
	}
	if end, ok := Sealed(storage, "db"); end != 42 || !ok {
		t.Errorf("Sealed = %d, %t; want 42", end, ok)
	}
	for range 2 { // the number counts until the next Seal
		if end, err := Unseal(storage, "db"); end != 42 || err != nil {
			t.Errorf("Unseal = %d, %v; want 42", end, err)
		}
		if end, closed := Sealed(storage, "db"); end != 42 || closed {
			t.Errorf("Sealed after Unseal = %d, %t; want 42 and not closed", end, closed)
		}
	}
}

// A program without seals may have opened the database since. The list of files in
// the seal then no longer counts, and its number still does.
func TestASealThatIsOutdatedCountsForItsNumberAlone(t *testing.T) {
	t.Parallel()
	storage := database(t)
	if err := Seal(storage, "db", 42); err != nil {
		t.Fatal(err)
	}
	use(t, storage, func(db *pebble.DB) error { return db.Set([]byte("c"), nil, pebble.Sync) })
	if end, closed := Sealed(storage, "db"); end != 42 || closed {
		t.Errorf("Sealed = %d, %t; want 42 and not closed", end, closed)
	}
	for d, err := range Check(t.Context(), storage, "db", nil) {
		t.Errorf("found %v, %v; want nothing", d, err)
	}
	if end, err := Unseal(storage, "db"); end != 42 || err != nil {
		t.Errorf("Unseal = %d, %v; want 42", end, err)
	}
}

// A table of the same name and length with other records is not the one that was
// sealed. A seal of format 1 knows no sums of tables.
func TestASealTellsATableFromAnotherOfItsLength(t *testing.T) {
	t.Parallel()
	tables := func(value byte) (vfs.FS, []File) {
		storage := vfs.NewMem()
		use(t, storage, func(db *pebble.DB) error {
			return errors.Join(db.Set([]byte("a"), bytes.Repeat([]byte{value}, 5000), pebble.Sync), db.Flush())
		})
		list, err := List(storage, "db")
		if err != nil {
			t.Fatal(err)
		}
		return storage, slices.DeleteFunc(list, func(f File) bool { return f.Kind != Table })
	}
	storage, mine := tables('x')
	other, theirs := tables('y')
	if len(mine) != 1 || !slices.Equal(mine, theirs) {
		t.Fatalf("the tables are %v and %v, want one of the same name and length", mine, theirs)
	}
	if err := Seal(storage, "db", 1); err != nil {
		t.Fatal(err)
	}
	exchanged, err := readFile(other, "db/"+mine[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	change(t, storage, mine[0].Name, func([]byte) []byte { return exchanged })
	if _, err := Unseal(storage, "db"); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), mine[0].Name) {
		t.Errorf("Unseal with another table = %v, want %v that names it", err, ErrDamaged)
	}
	change(t, storage, sealName, func(text []byte) []byte {
		_, lines, err := parseSeal(text)
		if err != nil {
			t.Fatal(err)
		}
		old := fmt.Appendf([]byte(sealTitle1), "end 1\n")
		for _, l := range lines {
			if KindOf(l.name) == Table {
				l.sum = noSum
			}
			old = fmt.Appendf(old, "file %s %d %s\n", l.name, l.bytes, l.sum)
		}
		return sealEnd(old)
	})
	if end, err := Unseal(storage, "db"); end != 1 || err != nil {
		t.Errorf("Unseal of a seal of format 1 = %d, %v; want 1", end, err)
	}
}

func TestCheckNamesTheBlock(t *testing.T) {
	t.Parallel()
	storage := database(t)
	list, err := List(storage, "db")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if f.Kind != Table {
			continue
		}
		change(t, storage, f.Name, func(text []byte) []byte { text[3] ^= 1; return text })
		var found []*Damage
		for d, err := range Check(t.Context(), storage, "db", nil) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, d)
		}
		if len(found) != 1 || found[0].File != f.Name || found[0].Offset != 0 || found[0].Length == 0 {
			t.Fatalf("found %v, want the first block of %s", found, f.Name)
		}
		file, err := ReportDamages(storage, found).Open("db/" + f.Name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		p := make([]byte, 8)
		if _, err := file.ReadAt(p, found[0].Length-1); !errors.Is(err, ErrDamaged) {
			t.Errorf("ReadAt of the damage = %v, want %v", err, ErrDamaged)
		}
		if _, err := file.ReadAt(p, found[0].Length); err != nil {
			t.Errorf("ReadAt behind the damage = %v, want nil", err)
		}
		return
	}
	t.Fatal("there is no table")
}

func TestReadOnlyChangesNothing(t *testing.T) {
	t.Parallel()
	storage := database(t)
	only := ReadOnly(storage)
	_, create := only.Create("db/x", vfs.WriteCategoryUnspecified)
	_, open := only.OpenReadWrite("db/seal", vfs.WriteCategoryUnspecified)
	_, reuse := only.ReuseForWrite("db/LOCK", "db/x", vfs.WriteCategoryUnspecified)
	for name, err := range map[string]error{
		"Create": create, "OpenReadWrite": open, "ReuseForWrite": reuse, "Link": only.Link("db/LOCK", "db/x"), "Rename": only.Rename("db/LOCK", "db/x"),
		"Remove": only.Remove("db/LOCK"), "RemoveAll": only.RemoveAll("db"), "MkdirAll": only.MkdirAll("x", 0o700),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s = %v, want %v", name, err, syscall.EROFS)
		}
	}
	db, err := pebble.Open("db", &pebble.Options{FS: only, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	value, closer, err := db.Get([]byte("b"))
	if err != nil || string(value) != "y" {
		t.Errorf("Get through ReadOnly = %q, %v; want y", value, err)
	}
	if err := errors.Join(closer.Close(), db.Close()); err != nil {
		t.Error(err)
	}
}

// No seal that is not whole is believed.
func FuzzParseSeal(f *testing.F) {
	storage := database(f)
	text, err := sealOf(storage, "db", 7)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(sealTitle + "end x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		end, lines, err := parseSeal(text)
		if err != nil {
			if !errors.Is(err, ErrDamaged) || end != 0 || lines != nil {
				t.Errorf("parseSeal(%q) = %d, %v, %v; want %v alone", text, end, lines, err, ErrDamaged)
			}
			return
		}
		if _, _, err := parseSeal(append(bytes.Clone(text[:len(text)-1]), '0', '\n')); err == nil {
			t.Errorf("parseSeal takes %q with another sum", text)
		}
	})
}
