package embedded

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/backup"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// digestThrough returns the digest of the records of a store up to a position.
func digestThrough(t testing.TB, s *Store, through events.Position) string {
	t.Helper()
	d := events.NewDigest()
	for e, err := range s.ReadAll(t.Context(), events.Position{}) {
		must(t, err)
		if e.Position.Compare(through) > 0 {
			break
		}
		d.Add(e)
	}
	return d.String()
}

// restored restores a backup and returns the open store.
func restored(t testing.TB, storage vfs.FS, src, dst string) (*Store, backup.Manifest) {
	t.Helper()
	b, err := backup.Restore(t.Context(), src, dst, storage)
	must(t, err)
	s, err := Open(t.Context(), dst, Config{FS: storage})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s, b
}

func TestABackupUnderLoadIsOfOneMoment(t *testing.T) {
	t.Parallel()
	for name, storage := range map[string]vfs.FS{"memory": vfs.NewMem(), "disk": vfs.Default} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := "root"
			if storage == vfs.Default {
				root = t.TempDir()
			}
			backUpUnderLoad(t, storage, root)
		})
	}
}

func backUpUnderLoad(t *testing.T, storage vfs.FS, root string) {
	path := func(name string) string { return storage.PathJoin(root, name) }
	s, err := Open(t.Context(), path("store"), Config{FS: storage})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	var appended atomic.Int64
	for i := range 64 {
		writers.Go(func() {
			p, stream, length := newRecordWriter(byte(i)), events.Stream(fmt.Sprintf("s-%d", i)), events.Revision(0)
			for ; ctx.Err() == nil; length++ {
				if err := s.Append(context.Background(), stream, length, p.records(1, 300)...); err != nil {
					t.Errorf("Append during a backup = %v", err)
					return
				}
				appended.Add(1)
			}
		})
	}
	var made []backup.Manifest
	for i := range 3 {
		for from := appended.Load(); appended.Load() < from+500; {
			must(t, s.Append(t.Context(), "main", events.Revision(len(made)), newRecordWriter(byte(100+i)).records(1, 10)...))
			break
		}
		b, _, err := s.Backup(t.Context(), path("backup"))
		must(t, err)
		made = append(made, b)
	}
	stop()
	writers.Wait()
	last := made[len(made)-1]
	if made[0].Records == 0 || last.Records <= made[0].Records {
		t.Errorf("backups of %d, then %d records: want more each time", made[0].Records, last.Records)
	}
	for _, b := range made {
		if got := digestThrough(t, s, b.Position); got != b.Digest {
			t.Errorf("digest to %s = %s, and the backup's is %s", b.Position, got, b.Digest)
		}
	}
	again, b := restored(t, storage, path("backup"), path("again"))
	if b.Digest != last.Digest || digestThrough(t, again, again.Head()) != last.Digest || again.Head() != last.Position {
		t.Errorf("restored to %s, %s; want %s, %s", again.Head(), b.Digest, last.Position, last.Digest)
	}
	must(t, again.Append(t.Context(), "after", 0, newRecordWriter(200).records(1, 10)...))
	if names, err := storage.List(path("store")); err != nil || strings.Contains(strings.Join(names, " "), snapshotName) {
		t.Errorf("the store's folder holds %v, %v; want no snapshot", names, err)
	}
	must(t, s.Close())
}

func TestASecondBackupWritesOnlyWhatIsNotThere(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(2000, 1000)...))
	must(t, s.Compact(t.Context()))
	_, first, err := s.Backup(t.Context(), "backup")
	must(t, err)
	must(t, s.Append(t.Context(), "s-1", 2000, newRecordWriter(2).records(1, 10)...))
	made, second, err := s.Backup(t.Context(), "backup")
	must(t, err)
	if made.Records != 2001 || second.Bytes*4 > first.Bytes || second.Files >= first.Files {
		t.Errorf("the second backup wrote %+v, and the first %+v: want far less", second, first)
	}
	names, err := storage.List("backup/files")
	must(t, err)
	distinct := map[string]bool{}
	for _, f := range made.Files {
		distinct[f.SHA256] = true
	}
	if len(names) != len(distinct) {
		t.Errorf("the backup holds %d files, want the %d that it needs", len(names), len(distinct))
	}
}

// A backup that fails at any write leaves the earlier backup intact, or is itself
// complete.
func TestABackupThatFailsLeavesTheOneBefore(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	disk := &fullDisk{left: 1 << 30, only: func(op errorfs.Op) bool {
		return strings.Contains(op.Path, "backup") || strings.Contains(op.Path, snapshotName)
	}}
	s, err := Open(t.Context(), "store", Config{FS: errorfs.Wrap(storage, disk)})
	must(t, err)
	p, length := newRecordWriter(1), events.Revision(0)
	grow := func() {
		must(t, s.Append(t.Context(), "s-1", length, p.records(3, 50)...))
		length += 3
	}
	grow()
	last, _, err := s.Backup(t.Context(), "backup")
	must(t, err)
	failed := 0
	for left := 0; ; left += 1 + left/8 {
		grow()
		disk.set(left, false)
		made, _, err := s.Backup(t.Context(), "backup")
		disk.set(1<<30, false)
		if err == nil {
			last = made
		} else {
			failed++
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("Backup on a full disk = %v, want an error that says so", err)
			}
		}
		dst := fmt.Sprintf("again-%d", left)
		b, restoreErr := backup.Restore(t.Context(), "backup", dst, storage)
		if restoreErr != nil {
			t.Fatalf("Restore after a backup that failed with %d writes left = %v", left, restoreErr)
		}
		if b.Digest != last.Digest && b.Records != uint64(length) {
			t.Fatalf("restored %d records, want the %d of the last backup or the %d of this", b.Records, last.Records, length)
		}
		if err == nil {
			break
		}
	}
	if failed < 5 {
		t.Errorf("%d backups failed, want some at each step", failed)
	}
	grow() // the store goes on
	must(t, s.Close())
}

func TestABackupThatIsInterruptedLeavesTheOneBefore(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(3, 50)...))
	first, _, err := s.Backup(t.Context(), "backup")
	must(t, err)
	must(t, s.Append(t.Context(), "s-1", 3, newRecordWriter(2).records(3, 50)...))
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	part := partFunc(func(ctx context.Context, dir string, before func() error) error {
		err := errors.Join(before(), storage.MkdirAll(dir, 0o755))
		cancel(reason)
		return err
	})
	if _, _, err := s.Backup(ctx, "backup", backup.NamedComponent{Name: "outputs", Component: part}); !errors.Is(err, reason) {
		t.Errorf("Backup interrupted = %v, want %v", err, reason)
	}
	if b, err := backup.Restore(t.Context(), "backup", "again", storage); err != nil || b.Digest != first.Digest {
		t.Errorf("Restore = %+v, %v; want the backup before", b, err)
	}
}

type partFunc func(ctx context.Context, dir string, before func() error) error

func (f partFunc) Snapshot(ctx context.Context, dir string, before func() error) error {
	return f(ctx, dir, before)
}

// A backup copies each component after the records that refer to it.
func TestABackupHoldsItsParts(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	part := partFunc(func(_ context.Context, dir string, before func() error) error {
		if err := before(); err != nil {
			return err
		}
		// What is appended now is not in the snapshot of the records.
		must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(1, 10)...))
		must(t, storage.MkdirAll(dir, 0o755))
		return writeFile(storage, storage.PathJoin(dir, "thing"), "kept")
	})
	made, _, err := s.Backup(t.Context(), "backup", backup.NamedComponent{Name: "outputs", Component: part})
	must(t, err)
	if made.Records != 0 {
		t.Errorf("the backup has %d records, want none: the parts come after them", made.Records)
	}
	if _, err := backup.Restore(t.Context(), "backup", "again", storage); err != nil {
		t.Fatal(err)
	}
	if got, err := readFile(storage, "again/outputs/thing"); err != nil || got != "kept" {
		t.Errorf("restored %q, %v; want the part", got, err)
	}
}

func writeFile(storage vfs.FS, path, text string) error {
	f, err := storage.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	return errors.Join(err, f.Sync(), f.Close())
}

func readFile(storage vfs.FS, path string) (string, error) {
	f, err := storage.Open(path)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(f)
	return string(text), errors.Join(err, f.Close())
}

func TestABackupRefusesAFolderOfSomethingElse(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	must(t, storage.MkdirAll("other", 0o755))
	must(t, writeFile(storage, "other/notes.txt", "mine"))
	must(t, storage.MkdirAll("fake", 0o755))
	must(t, writeFile(storage, "fake/BACKUP", "mine"))
	must(t, storage.MkdirAll("newer", 0o755))
	must(t, writeFile(storage, "newer/BACKUP", "settlement-ledger backup, format 9\n{}\nx\n"))
	must(t, storage.MkdirAll("taken", 0o755))
	lock, err := storage.Lock("taken/lock")
	must(t, err)
	defer lock.Close()
	for dst, want := range map[string]error{"other": backup.ErrNotABackup, "fake": backup.ErrNotABackup, "taken": events.ErrInUse} {
		if _, _, err := s.Backup(t.Context(), dst); !errors.Is(err, want) {
			t.Errorf("Backup to %s = %v, want %v", dst, err, want)
		}
	}
	for _, dst := range []string{"store", "store/backup"} {
		if _, _, err := s.Backup(t.Context(), dst); err == nil || !strings.Contains(err.Error(), "the folder is the store's") {
			t.Errorf("Backup to %s = %v, want a refusal", dst, err)
		}
	}
	if got, err := readFile(storage, "other/notes.txt"); err != nil || got != "mine" {
		t.Errorf("notes.txt holds %q, %v; want it left as it was", got, err)
	}
	if names, err := storage.List("other"); err != nil || len(names) != 1 {
		t.Errorf("other holds %v, %v; want it left as it was", names, err)
	}
	for src, want := range map[string]error{"other": backup.ErrNotABackup, "fake": backup.ErrNotABackup, "newer": events.ErrNewerFormat, "nowhere": backup.ErrNotABackup} {
		if _, err := backup.Restore(t.Context(), src, "again", storage); !errors.Is(err, want) {
			t.Errorf("Restore(%s) = %v, want %v", src, err, want)
		}
	}
}

func TestARestoreNamesWhatIsDamagedAndLeavesNoStore(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(20, 500)...))
	must(t, s.Compact(t.Context()))
	must(t, s.Append(t.Context(), "s-1", 20, newRecordWriter(2).records(2, 50)...))
	made, _, err := s.Backup(t.Context(), "backup")
	must(t, err)
	if _, err := backup.Restore(t.Context(), "backup", "store", storage); !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("Restore over a store = %v, want %v", err, backup.ErrNotEmpty)
	}
	damaged := func(path, name string, damage func(text []byte) []byte) {
		t.Helper()
		text, err := readFile(storage, path)
		must(t, err)
		must(t, writeFile(storage, path, string(damage([]byte(text)))))
		defer func() { must(t, writeFile(storage, path, text)) }()
		if _, err := backup.Restore(t.Context(), "backup", "again", storage); !errors.Is(err, backup.ErrBadBackup) || !strings.Contains(err.Error(), name) {
			t.Errorf("Restore with %s damaged = %v, want %v that names it", name, err, backup.ErrBadBackup)
		}
		if names, err := storage.List("again"); err == nil && len(names) > 0 {
			t.Errorf("Restore with %s damaged left %v", name, names)
		}
	}
	flip := func(text []byte) []byte { text[len(text)/2] ^= 4; return text }
	cut := func(text []byte) []byte { return text[:len(text)-1] }
	for _, f := range made.Files {
		if f.Bytes == 0 {
			continue
		}
		damaged("backup/files/"+f.SHA256, f.Path, flip)
		damaged("backup/files/"+f.SHA256, f.Path, cut)
	}
	damaged("backup/BACKUP", "BACKUP", flip)
	damaged("backup/BACKUP", "BACKUP", cut)
	gone := made.Files[1]
	text, err := readFile(storage, "backup/files/"+gone.SHA256)
	must(t, err)
	must(t, storage.Remove("backup/files/"+gone.SHA256))
	if _, err := backup.Restore(t.Context(), "backup", "again", storage); !errors.Is(err, backup.ErrBadBackup) || !strings.Contains(err.Error(), gone.Path+"") {
		t.Errorf("Restore with a file missing = %v, want %v that names it", err, backup.ErrBadBackup)
	}
	must(t, writeFile(storage, "backup/files/"+gone.SHA256, text))
	again, _ := restored(t, storage, "backup", "again")
	if n := len(all(t, again)); n != 22 {
		t.Errorf("restored %d records, want 22", n)
	}
}

// A backup of a store with damaged records fails, and the error names the records.
func TestABackupOfDamagedRecordsIsRefused(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(5, 50)...))
	first, _, err := s.Backup(t.Context(), "backup")
	must(t, err)
	must(t, s.db.Set(layout.EntryKey(3), []byte("rotten"), nil))
	if _, _, err := s.Backup(t.Context(), "backup"); !errors.Is(err, events.ErrDamaged) || !strings.Contains(err.Error(), "position 3") {
		t.Errorf("Backup of a damaged store = %v, want %v at position 3", err, events.ErrDamaged)
	}
	if b, err := backup.Restore(t.Context(), "backup", "again", storage); err != nil || b.Digest != first.Digest {
		t.Errorf("Restore = %+v, %v; want the backup before", b, err)
	}
}

// A damaged file of an earlier backup is found within rereadIn backups and written
// again.
func TestABackupReplacesDamagedFiles(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(200, 1000)...))
	must(t, s.Compact(t.Context()))
	first, _, err := s.Backup(t.Context(), "backup")
	must(t, err)
	for _, f := range first.Files {
		if !strings.HasSuffix(f.Path, ".sst") {
			continue
		}
		text, err := readFile(storage, "backup/files/"+f.SHA256)
		must(t, err)
		rotten := []byte(text)
		rotten[len(rotten)/2] ^= 1
		must(t, writeFile(storage, "backup/files/"+f.SHA256, string(rotten)))
	}
	for range rereadIn {
		_, _, err := s.Backup(t.Context(), "backup")
		must(t, err)
	}
	if _, err := backup.Restore(t.Context(), "backup", "again", storage); err != nil {
		t.Errorf("Restore after %d more backups = %v, want what rotted written again", rereadIn, err)
	}
}

// A file of the earlier backup that has another length than its name promises is
// written again by the next backup.
func TestABackupDoesNotTrustANameAlone(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(200, 1000)...))
	must(t, s.Compact(t.Context()))
	first, _, err := s.Backup(t.Context(), "backup")
	must(t, err)
	for _, f := range first.Files {
		if f.Bytes == 0 {
			continue
		}
		text, err := readFile(storage, "backup/files/"+f.SHA256)
		must(t, err)
		must(t, writeFile(storage, "backup/files/"+f.SHA256, text[:len(text)-1]))
	}
	_, _, err = s.Backup(t.Context(), "backup")
	must(t, err)
	if _, err := backup.Restore(t.Context(), "backup", "again", storage); err != nil {
		t.Errorf("Restore after one more backup = %v, want what was cut written again", err)
	}
}

// A restless file system returns other bytes of a snapshot's file at each open.
type restless struct {
	vfs.FS
	opened map[string]int
}

func (r restless) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	file, err := r.FS.Open(name, options...)
	if err != nil || !strings.HasSuffix(name, "/thing") {
		return file, err
	}
	r.opened[name]++
	return &shifted{file, byte(r.opened[name])}, nil
}

type shifted struct {
	vfs.File
	by byte
}

func (s *shifted) Read(p []byte) (int, error) {
	n, err := s.File.Read(p)
	for i := range p[:n] {
		p[i] += s.by
	}
	return n, err
}

// A file whose bytes change between the first and the second read ends the backup
// with an error.
func TestABackupHoldsEachCopyToItsSum(t *testing.T) {
	t.Parallel()
	storage := restless{vfs.NewMem(), map[string]int{}}
	s := open(t, storage)
	if _, _, err := s.Backup(t.Context(), "backup", backup.NamedComponent{Name: "outputs", Component: thing(storage)}); !errors.Is(err, events.ErrDamaged) || !strings.Contains(err.Error(), "outputs/thing") {
		t.Errorf("Backup of a file that is not the same twice = %v, want %v that names it", err, events.ErrDamaged)
	}
	if _, err := storage.Stat("backup/" + backupName); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder has a %s file, %v; want none", backupName, err)
	}
}

// A backup whose manifest does not match its records leaves no store, although each
// file matches its SHA-256.
func TestARestoreHoldsTheRecordsToTheirDigest(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(3, 50)...))
	made, _, err := s.Backup(t.Context(), "backup")
	must(t, err)
	other := events.NewDigest()
	for name, change := range map[string]func(*backup.Manifest){
		"another digest":   func(b *backup.Manifest) { b.Digest = other.String() },
		"more records":     func(b *backup.Manifest) { b.Records++ },
		"another position": func(b *backup.Manifest) { b.Position = events.NewPosition(4, 4) },
	} {
		b := made
		change(&b)
		must(t, putBackup(storage, "backup", b))
		if _, err := backup.Restore(t.Context(), "backup", "again", storage); !errors.Is(err, backup.ErrBadBackup) {
			t.Errorf("Restore of a backup that says %s = %v, want %v", name, err, backup.ErrBadBackup)
		}
		if _, err := Open(t.Context(), "again", Config{FS: pebblefiles.ReadOnly(storage)}); err == nil {
			t.Errorf("Restore of a backup that says %s left a store", name)
		}
	}
}

// An earlier backup stays intact if the store has lost records, is another store, or
// has a damaged file.
func TestABackupIsReplacedOnlyByOneThatHoldsIt(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(20, 100)...))
	good, _, err := s.Backup(t.Context(), "backup")
	must(t, err)
	must(t, s.Close())
	for name, n := range map[string]int{"fewer": 19, "others": 30} {
		other, err := Open(t.Context(), name, Config{FS: storage})
		must(t, err)
		must(t, other.Append(t.Context(), "s-1", 0, newRecordWriter(byte(n)).records(n, 100)...))
		if _, _, err := other.Backup(t.Context(), "backup"); !errors.Is(err, storedir.ErrIncomplete) {
			t.Errorf("Backup of a store with %s records = %v, want %v", name, err, storedir.ErrIncomplete)
		}
		must(t, other.Close())
	}
	if b, err := backup.Restore(t.Context(), "backup", "again", storage); err != nil || b.Digest != good.Digest {
		t.Errorf("Restore = %+v, %v; want the backup before", b, err)
	}
}

// A lackingPart is a component that reports data as missing to which records refer.
type lackingPart struct {
	partFunc
	lacks []string
}

func (p lackingPart) Missing(_ context.Context, _ string, records iter.Seq2[events.Entry, error]) ([]string, error) {
	for _, err := range records {
		if err != nil {
			return nil, err
		}
	}
	return p.lacks, nil
}

func TestABackupThatLacksAPartReplacesNoneThatHasIt(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	part := lackingPart{partFunc: func(_ context.Context, dir string, before func() error) error {
		return errors.Join(before(), storage.MkdirAll(dir, 0o755), writeFile(storage, storage.PathJoin(dir, "thing"), "kept"))
	}}
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(3, 10)...))
	_, _, err := s.Backup(t.Context(), "backup", backup.NamedComponent{Name: "outputs", Component: part})
	must(t, err)
	part.lacks = []string{"thing"}
	if _, _, err := s.Backup(t.Context(), "backup", backup.NamedComponent{Name: "outputs", Component: part}); !errors.Is(err, storedir.ErrIncomplete) || !strings.Contains(err.Error(), "thing") {
		t.Errorf("Backup without the thing = %v, want %v that names it", err, storedir.ErrIncomplete)
	}
	for range 2 {
		if made, _, err := s.Backup(t.Context(), "fresh", backup.NamedComponent{Name: "outputs", Component: part}); err != nil || len(made.Missing) != 1 {
			t.Errorf("Backup into a folder without one = %+v, %v; want it to name the thing", made, err)
		}
	}
}

// The names and the forms in the folders of package backup, which its files keep.
const (
	backupName     = "BACKUP"
	rereadIn       = 8 // backups in which each file is reread once
	restoringTitle = "settlement-ledger restore, format 1\n"
)

// putBackup writes a BACKUP file with a valid sum.
func putBackup(storage vfs.FS, dir string, b backup.Manifest) error {
	object, err := json.Marshal(b)
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, "settlement-ledger backup, format 1\n%s\n", object)
	return pebblefiles.WriteFile(storage, dir, backupName, fmt.Appendf(text, "%x\n", sha256.Sum256(text)))
}
