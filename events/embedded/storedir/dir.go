package storedir

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// The names in a store's folder.
const (
	FormatName = "FORMAT" // marks the folder as a store, with its format
	LockName   = "lock"   // lock file
	OwnerName  = "owner"  // the process that has the store open
	LogName    = "log"    // the Pebble database
)

// Format is the version of the folder and of the keys in the database that this
// package writes, and the latest that it reads.
const Format = 1

// FormatTitle is the prefix of a FORMAT file.
const FormatTitle = "settlement-ledger store, format "

// An Owner identifies the process that has a store open. The folder stores it, so
// that the error of a second process can name the first one.
type Owner struct {
	PID     int       `json:"pid"`              // 0: this process
	Host    string    `json:"host"`             // empty: this host
	Started time.Time `json:"started"`          // when the store was opened; zero: now
	Command string    `json:"command"`          // empty: the name of this program
	Shares  bool      `json:"shares,omitempty"` // the process serves the folder to others, or is about to
}

// filled returns o with its empty fields set for this process.
func (o Owner) filled() Owner {
	o.PID = cmp.Or(o.PID, os.Getpid())
	if o.Host == "" {
		o.Host, _ = os.Hostname() // empty if the host has no name
	}
	if o.Started.IsZero() {
		o.Started = time.Now().UTC()
	}
	o.Command = cmp.Or(o.Command, filepath.Base(os.Args[0]))
	return o
}

// ErrIncomplete means that a folder is a store that lacks files: it was copied in part,
// or files were removed. Open leaves the folder unchanged.
var ErrIncomplete = errors.New("store is not complete")

// FormatDraftName is the file that marks the creation of a store in progress. FORMAT
// is written after the database is durable. So a folder with this file and without
// FORMAT has no records, and its database may be removed.
const FormatDraftName = FormatName + ".new"

// A Dir is the folder of one store. A Dir of Open is locked by this process.
type Dir struct {
	FS    vfs.FS    // file system of the folder
	Path  string    // the folder, as [RealPath] returns it on the disk
	Lock  io.Closer // set by Acquire
	Fresh bool      // Inspect: the store does not exist yet; Publish writes its FORMAT file

	// Before is the content of the owner file that Open found. It is zero unless the
	// previous process ended without a call of Close.
	Before OwnerRecord
}

// An OwnerRecord is the content of the owner file: the process that has the store open,
// and its durability.
type OwnerRecord struct {
	Owner
	Durability string `json:"durability,omitempty"` // a Durability; empty: written by an older program
}

// Open opens or creates the folder of a store, locks it and writes the owner file with
// the content by. It writes to the folder only if Inspect accepts the folder. If the
// folder is fresh, the caller creates the database and calls Publish. In the end the
// caller calls Close. Open waits for readers as Acquire does.
func Open(ctx context.Context, storage vfs.FS, dir string, by OwnerRecord, logger *slog.Logger) (*Dir, error) {
	f := &Dir{FS: storage, Path: dir}
	if err := f.MakeDirs(); err != nil {
		return nil, err
	}
	// Another process may be creating or closing the store, so only an inspection under
	// the lock counts. A folder of something else gets no lock file.
	unsuitable := f.Inspect()
	if unsuitable != nil && !f.hasLock() {
		return nil, unsuitable
	}
	if err := f.Acquire(ctx, logger); err != nil {
		if unsuitable != nil && !errors.Is(err, events.ErrInUse) {
			err = unsuitable
		}
		return nil, err
	}
	err := f.Inspect()
	switch {
	case err != nil:
	case f.Unfinished():
		f.Fresh = false
		err = f.repairFormat()
	case f.Fresh:
		err = f.startCreation()
	default:
		err = f.repairFormat()
	}
	if err == nil {
		f.Before, _ = f.OwnerRecord()
		by.Owner = by.Owner.filled()
		err = f.writeOwner(by)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// hasLock reports whether the folder has a lock file.
func (f *Dir) hasLock() bool {
	_, err := f.FS.Stat(f.PathOf(LockName))
	return err == nil
}

// Unfinished reports whether the folder has a database, an unreadable FORMAT file and
// a FORMAT.new, which marks the creation of a store. FORMAT is written after the
// database is durable, so the database must be kept. If a power cut tore FORMAT, the
// database is empty. If FORMAT was damaged later, the database may hold records.
func (f *Dir) Unfinished() bool {
	_, err := f.ReadFormat(FormatName)
	return f.Fresh && errors.Is(err, events.ErrNotAStore) && f.HoldsLog()
}

// repairFormat rewrites an unreadable FORMAT file, and removes the temporary files of the
// creation.
func (f *Dir) repairFormat() error {
	_, err := f.ReadFormat(FormatName)
	if errors.Is(err, events.ErrNotAStore) {
		err = f.WriteFormat(FormatName)
	}
	if err == nil {
		err = f.removeTemporary()
	}
	if err != nil {
		return fmt.Errorf("open store %s: write %s: %w", f.Path, FormatName, err)
	}
	return nil
}

// startCreation writes FORMAT.new, and removes the database of an earlier creation that
// was interrupted.
func (f *Dir) startCreation() error {
	_, err := f.ReadFormat(FormatDraftName)
	if err == nil { // an earlier creation was interrupted
		err = f.FS.RemoveAll(f.PathOf(LogName))
	} else {
		err = f.WriteFormat(FormatDraftName)
	}
	if err != nil {
		return fmt.Errorf("open store %s: write %s: %w", f.Path, FormatDraftName, err)
	}
	return nil
}

// Publish writes FORMAT to a new folder, which makes it a store. It does not rename
// FORMAT.new, because with a rename that is not atomic a power cut could remove both.
func (f *Dir) Publish() error {
	if err := f.WriteFormat(FormatName); err != nil {
		return fmt.Errorf("write %s: %w", FormatName, err)
	}
	return f.removeTemporary()
}

// removeTemporary removes the temporary files of creation and restore, durably: with one
// of them, a store whose FORMAT is lost later would look unfinished.
func (f *Dir) removeTemporary() error {
	removed := false
	for _, name := range []string{FormatDraftName, RestoringName} {
		err := f.FS.Remove(f.PathOf(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		removed = removed || err == nil
	}
	if !removed {
		return nil
	}
	return pebblefiles.SyncDir(f.FS, f.Path)
}

// WriteFormat writes a FORMAT file under a name, durably.
func (f *Dir) WriteFormat(name string) error {
	err := f.create(f.PathOf(name), fmt.Appendf(nil, "%s%d\n", FormatTitle, Format))
	if err == nil {
		err = pebblefiles.SyncDir(f.FS, f.Path)
	}
	return err
}

// PathOf returns the path of a file in the folder.
func (f *Dir) PathOf(name string) string { return f.FS.PathJoin(f.Path, name) }

// MakeDirs creates the folder and its missing parents, durably.
func (f *Dir) MakeDirs() error {
	if err := pebblefiles.MakeDirs(f.FS, f.Path); err != nil {
		return fmt.Errorf("open store %s: %w", f.Path, err)
	}
	return nil
}

// Inspect decides from the files in the folder what it is, and changes no file. It
// sets Fresh if the folder is empty or the creation of a store in it was interrupted.
// It returns events.ErrNotAStore, events.ErrNewerFormat or ErrIncomplete for a folder
// that must stay unchanged. Without the lock the result may be outdated.
func (f *Dir) Inspect() error {
	names, err := f.FS.List(f.Path)
	if err != nil {
		return fmt.Errorf("open store %s: %w", f.Path, err)
	}
	// An interrupted creation leaves a lock and perhaps a part of FORMAT.new. The other
	// files are created after FORMAT.new is complete, FORMAT last.
	begun := []string{LockName, FormatDraftName}
	if _, err := f.ReadFormat(FormatDraftName); err == nil {
		begun = append(begun, LogName, OwnerName, OwnerName+".new", FormatName)
	}
	_, err = f.ReadFormat(FormatName)
	f.Fresh = errors.Is(err, fs.ErrNotExist) || errors.Is(err, events.ErrNotAStore) && slices.Contains(begun, FormatName)
	if !f.Fresh {
		return f.checkFormat(names)
	}
	if slices.Contains(names, RestoringName) {
		return fmt.Errorf("open store %s: %w: restoring a backup into it was cut off: restore it again", f.Path, events.ErrNotAStore)
	}
	for _, name := range names {
		if !slices.Contains(begun, name) {
			return fmt.Errorf("open store %s: %w: it holds %s and no %s file; name an empty folder, or one that does not exist",
				f.Path, events.ErrNotAStore, name, FormatName)
		}
	}
	return nil
}

// checkFormat returns an error unless the folder is a store of a known format with a
// database.
func (f *Dir) checkFormat(names []string) error {
	found, err := f.ReadFormat(FormatName)
	switch {
	case errors.Is(err, events.ErrNotAStore):
		return fmt.Errorf("open store %s: %w: its %s file is not one of a store", f.Path, err, FormatName)
	case err != nil:
		return fmt.Errorf("open store %s: %w", f.Path, err)
	case found > Format:
		return fmt.Errorf("open store %s: %w: it has format %d, and this program knows formats up to %d; use a newer program",
			f.Path, events.ErrNewerFormat, found, Format)
	case !slices.Contains(names, LogName):
		return fmt.Errorf("open store %s: %w: its %s folder is missing; copy the whole folder, or restore a backup", f.Path, ErrIncomplete, LogName)
	}
	return nil
}

// ReadFormat returns the number in a FORMAT file. It returns events.ErrNotAStore if
// the file has no valid number, and fs.ErrNotExist if it is missing.
func (f *Dir) ReadFormat(name string) (uint64, error) {
	text, err := f.read(name)
	if err != nil {
		return 0, err
	}
	number, ok := strings.CutPrefix(string(text), FormatTitle)
	number, whole := strings.CutSuffix(number, "\n")
	found, err := strconv.ParseUint(number, 10, 32)
	if !ok || !whole || err != nil || found == 0 {
		return 0, events.ErrNotAStore
	}
	return found, nil
}

// Acquire locks the folder for a writer and sets Lock. It waits up to
// pebblefiles.LockWait for readers, and logs a warning after a second. If a writer has
// the lock, it returns an events.ErrInUse that names the owner. If readers keep the
// lock, it returns an events.ErrInUse that names the readers. If ctx ends first, it
// returns the cause of ctx.
func (f *Dir) Acquire(ctx context.Context, logger *slog.Logger) (err error) {
	f.Lock, err = pebblefiles.Lock(ctx, f.FS, f.PathOf(LockName), func() {
		if logger != nil {
			logger.Warn("waiting for processes that read the store", "store", f.Path, "processes", pebblefiles.Users(f.PathOf(LockName)))
		}
	})
	if err == nil {
		return nil
	}
	// An error about the lock file is a *PathError; a lock that is taken is not.
	if _, ok := errors.AsType[*fs.PathError](err); ok || ctx.Err() != nil {
		return fmt.Errorf("open store %s: %w", f.Path, err)
	}
	if errors.Is(err, pebblefiles.ErrReading) {
		return fmt.Errorf("open store %s: %w by processes that read it, for %v now%s: end them first, or name another store",
			f.Path, events.ErrInUse, pebblefiles.LockWait, numbers(pebblefiles.Users(f.PathOf(LockName))))
	}
	return f.InUse()
}

// numbers formats process IDs for an error text. It returns an empty text for an
// empty list.
func numbers(processes []int) string {
	if len(processes) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s)", strings.Trim(fmt.Sprint(processes), "[]"))
}

// Holder returns a description of the process in the owner file, for an error text.
func (f *Dir) Holder() string {
	o, ok := f.OwnerRecord()
	if !ok {
		return "another process"
	}
	who := fmt.Sprintf("process %d (%s on %s, since %s)", o.PID, o.Command, o.Host, o.Started.Format(time.RFC3339))
	if host, err := os.Hostname(); err == nil && o.Host == host && o.PID == os.Getpid() {
		who += ", which is this one"
	}
	return who
}

// OwnerRecord reads the owner file. ok is false if the file is missing or unreadable.
func (f *Dir) OwnerRecord() (s OwnerRecord, ok bool) {
	text, err := f.read(OwnerName)
	if err != nil || json.Unmarshal(text, &s) != nil || s.PID == 0 {
		return OwnerRecord{}, false
	}
	return s, true
}

// writeOwner writes the owner file, atomically and durably.
func (f *Dir) writeOwner(s OwnerRecord) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("open store %s: write %s: %w", f.Path, OwnerName, err)
	}
	return f.write(OwnerName, append(text, '\n'))
}

// Close removes the owner file and unlocks the folder. The database must be closed
// before.
func (f *Dir) Close() error {
	err := f.FS.Remove(f.PathOf(OwnerName))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, f.Lock.Close())
}

// write writes a file of the folder atomically and durably.
func (f *Dir) write(name string, content []byte) error {
	err := f.create(f.PathOf(name)+".new", content)
	if err == nil {
		err = f.FS.Rename(f.PathOf(name)+".new", f.PathOf(name))
	}
	if err == nil {
		err = pebblefiles.SyncDir(f.FS, f.Path)
	}
	if err != nil {
		return fmt.Errorf("open store %s: write %s: %w", f.Path, name, err)
	}
	return nil
}

// create writes and syncs a file. Its entry in the folder is not durable yet.
func (f *Dir) create(path string, content []byte) error {
	file, err := f.FS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write(slices.Clone(content)) // Write may change its argument
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// read returns the first 64 KiB of a file.
func (f *Dir) read(name string) ([]byte, error) { return f.readUpTo(name, 1<<16) }

// ReadAll returns the content of a file.
func (f *Dir) ReadAll(name string) ([]byte, error) { return f.readUpTo(name, math.MaxInt64) }

// readUpTo returns the content of a file, but not more bytes than the argument most.
func (f *Dir) readUpTo(name string, most int64) ([]byte, error) {
	file, err := f.FS.Open(f.PathOf(name))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, most))
	return text, errors.Join(err, file.Close())
}

// HoldsLog reports whether the folder has a database: a database always has a manifest.
func (f *Dir) HoldsLog() bool {
	list, err := pebblefiles.List(f.FS, f.PathOf(LogName))
	for _, one := range list {
		if one.Kind == pebblefiles.Manifest {
			return err == nil
		}
	}
	return false
}

// Holder returns the process that has the store in a folder open for writing. The
// second result is false if there is no such process. Holder changes no file. On
// systems without shared locks (other than Linux), it also returns a killed process
// that left its owner file.
func Holder(dir string) (Owner, bool, error) {
	dir, err := RealPath(dir)
	if err != nil {
		return Owner{}, false, err
	}
	f := &Dir{FS: pebblefiles.Disk, Path: dir}
	lock, err := pebblefiles.LockShared(pebblefiles.Disk, f.PathOf(LockName))
	if lock != nil {
		return Owner{}, false, lock.Close()
	}
	if err != nil && !errors.Is(err, pebblefiles.ErrLocked) {
		return Owner{}, false, fmt.Errorf("look who has store %s open: %w", dir, err)
	}
	s, signed := f.OwnerRecord()
	return s.Owner, signed || err != nil, nil
}

// InUse returns an ErrInUse that names the process that has the folder open.
func (f *Dir) InUse() error {
	return fmt.Errorf("open store %s: %w by %s: end that first, or name another store", f.Path, events.ErrInUse, f.Holder())
}

// RealPath returns the absolute path of a folder without symbolic links. The folder
// and some of its parents may be missing. All callers use this path, because a lock
// within a process is kept by path and would not exclude a user of another path.
func RealPath(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return dir, err
	}
	for parent, rest := abs, ""; ; parent, rest = filepath.Dir(parent), filepath.Join(filepath.Base(parent), rest) {
		found, err := filepath.EvalSymlinks(parent)
		if err == nil {
			return filepath.Join(found, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(parent) == parent {
			return abs, err
		}
	}
}

// RestoringName is the file that lists the files of a restore in progress. It is written
// before these files and removed after FORMAT is written. A folder with this file and
// without FORMAT is not a store.
const RestoringName = "RESTORING"
