package embedded

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
	formatName = "FORMAT" // marks the folder as a store, with its format
	lockName   = "lock"   // lock file
	ownerName  = "owner"  // the process that has the store open
	logName    = "log"    // the Pebble database
)

// Format is the version of the folder and of the keys in the database that this
// package writes, and the latest that it reads.
const Format = 1

// formatTitle is the prefix of a FORMAT file.
const formatTitle = "settlement-ledger store, format "

// An Owner identifies the process that has a store open. It is stored in the folder for
// the error that a second process gets.
type Owner struct {
	PID     int       `json:"pid"`              // 0: this process
	Host    string    `json:"host"`             // empty: this host
	Started time.Time `json:"started"`          // when the store was opened; zero: now
	Command string    `json:"command"`          // empty: the name of this program
	Shares  bool      `json:"shares,omitempty"` // the process serves the folder to others, or is about to
}

// filled returns o with defaults for its empty fields.
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
// or files were removed. Open leaves it unchanged.
var ErrIncomplete = errors.New("store is not complete")

// formatDraftName is the name of the FORMAT file until the database exists. FORMAT is
// written last, so a folder without it has no records.
const formatDraftName = formatName + ".new"

// A folder is the folder of one store, locked by this process.
type folder struct {
	fs    vfs.FS
	dir   string
	lock  io.Closer
	fresh bool // the store is being created; publish writes its FORMAT file

	// before is the owner file of the last process, if that did not call Close.
	before ownerRecord
}

// An ownerRecord is the content of the owner file: the process that has the store open,
// and its durability.
type ownerRecord struct {
	Owner
	Durability string `json:"durability,omitempty"` // a Durability; empty: written by an older program
}

// syncs reports whether the process acknowledged appends only after their sync.
func (s ownerRecord) syncs() bool { return s.Durability == Sync().String() }

// openFolder opens or creates the folder of a store and locks it. It writes nothing to a
// folder that holds something else.
func openFolder(ctx context.Context, storage vfs.FS, dir string, cfg Config) (*folder, error) {
	f := &folder{fs: storage, dir: dir}
	if err := f.makeDirs(); err != nil {
		return nil, err
	}
	// Another process may be creating or closing the store, so only an inspection under
	// the lock counts. A folder of something else gets no lock file.
	unsuitable := f.inspect()
	if unsuitable != nil && !f.hasLock() {
		return nil, unsuitable
	}
	if err := f.acquire(ctx, cfg.Logger); err != nil {
		if unsuitable != nil && !errors.Is(err, events.ErrInUse) {
			err = unsuitable
		}
		return nil, err
	}
	err := f.inspect()
	switch {
	case err != nil:
	case f.unfinished():
		f.fresh = false
		err = f.repairFormat()
	case f.fresh:
		err = f.startCreation()
	default:
		err = f.repairFormat()
	}
	if err == nil {
		f.before, _ = f.ownerRecord()
		err = f.writeOwner(ownerRecord{cfg.Owner.filled(), cfg.Durability.String()})
	}
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// hasLock reports whether the folder has a lock file.
func (f *folder) hasLock() bool {
	_, err := f.fs.Stat(f.path(lockName))
	return err == nil
}

// unfinished reports whether the folder has a database, an unreadable FORMAT file and a
// FORMAT.new that marks the creation of a store. FORMAT is written after the database is
// durable, so the database is kept: it is empty if a power cut tore FORMAT, and may hold
// records if FORMAT was damaged later.
func (f *folder) unfinished() bool {
	_, err := f.readFormat(formatName)
	return f.fresh && errors.Is(err, events.ErrNotAStore) && f.holdsLog()
}

// repairFormat rewrites an unreadable FORMAT file, and removes the temporary files of the
// creation.
func (f *folder) repairFormat() error {
	_, err := f.readFormat(formatName)
	if errors.Is(err, events.ErrNotAStore) {
		err = f.writeFormat(formatName)
	}
	if err == nil {
		err = f.removeTemporary()
	}
	if err != nil {
		return fmt.Errorf("open store %s: write %s: %w", f.dir, formatName, err)
	}
	return nil
}

// startCreation writes FORMAT.new, and removes the database of an earlier creation that
// was interrupted.
func (f *folder) startCreation() error {
	_, err := f.readFormat(formatDraftName)
	if err == nil { // an earlier creation was interrupted
		err = f.fs.RemoveAll(f.path(logName))
	} else {
		err = f.writeFormat(formatDraftName)
	}
	if err != nil {
		return fmt.Errorf("open store %s: write %s: %w", f.dir, formatDraftName, err)
	}
	return nil
}

// publish writes FORMAT to a new folder, which makes it a store. It does not rename
// FORMAT.new, because with a rename that is not atomic a power cut could remove both.
func (f *folder) publish() error {
	if err := f.writeFormat(formatName); err != nil {
		return fmt.Errorf("write %s: %w", formatName, err)
	}
	return f.removeTemporary()
}

// removeTemporary removes the temporary files of creation and restore, durably: with one
// of them, a store whose FORMAT is lost later would look unfinished.
func (f *folder) removeTemporary() error {
	removed := false
	for _, name := range []string{formatDraftName, restoringName} {
		err := f.fs.Remove(f.path(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		removed = removed || err == nil
	}
	if !removed {
		return nil
	}
	return pebblefiles.SyncDir(f.fs, f.dir)
}

// writeFormat writes a FORMAT file under a name, durably.
func (f *folder) writeFormat(name string) error {
	err := f.create(f.path(name), fmt.Appendf(nil, "%s%d\n", formatTitle, Format))
	if err == nil {
		err = pebblefiles.SyncDir(f.fs, f.dir)
	}
	return err
}

// path returns the path of a file in the folder.
func (f *folder) path(name string) string { return f.fs.PathJoin(f.dir, name) }

// makeDirs creates the folder and its missing parents, durably.
func (f *folder) makeDirs() error {
	if err := pebblefiles.MakeDirs(f.fs, f.dir); err != nil {
		return fmt.Errorf("open store %s: %w", f.dir, err)
	}
	return nil
}

// inspect sets fresh if the folder is empty or its creation was interrupted. It returns
// ErrNotAStore, ErrNewerFormat or ErrIncomplete for a folder that must stay unchanged.
func (f *folder) inspect() error {
	names, err := f.fs.List(f.dir)
	if err != nil {
		return fmt.Errorf("open store %s: %w", f.dir, err)
	}
	// An interrupted creation leaves a lock and perhaps a part of FORMAT.new. The other
	// files are created after FORMAT.new is complete, FORMAT last.
	begun := []string{lockName, formatDraftName}
	if _, err := f.readFormat(formatDraftName); err == nil {
		begun = append(begun, logName, ownerName, ownerName+".new", formatName)
	}
	_, err = f.readFormat(formatName)
	f.fresh = errors.Is(err, fs.ErrNotExist) || errors.Is(err, events.ErrNotAStore) && slices.Contains(begun, formatName)
	if !f.fresh {
		return f.checkFormat(names)
	}
	if slices.Contains(names, restoringName) {
		return fmt.Errorf("open store %s: %w: restoring a backup into it was cut off: restore it again", f.dir, events.ErrNotAStore)
	}
	for _, name := range names {
		if !slices.Contains(begun, name) {
			return fmt.Errorf("open store %s: %w: it holds %s and no %s file; name an empty folder, or one that does not exist",
				f.dir, events.ErrNotAStore, name, formatName)
		}
	}
	return nil
}

// checkFormat returns an error unless the folder is a store of a known format with a
// database.
func (f *folder) checkFormat(names []string) error {
	found, err := f.readFormat(formatName)
	switch {
	case errors.Is(err, events.ErrNotAStore):
		return fmt.Errorf("open store %s: %w: its %s file is not one of a store", f.dir, err, formatName)
	case err != nil:
		return fmt.Errorf("open store %s: %w", f.dir, err)
	case found > Format:
		return fmt.Errorf("open store %s: %w: it has format %d, and this program knows formats up to %d; use a newer program",
			f.dir, events.ErrNewerFormat, found, Format)
	case !slices.Contains(names, logName):
		return fmt.Errorf("open store %s: %w: its %s folder is missing; copy the whole folder, or restore a backup", f.dir, ErrIncomplete, logName)
	}
	return nil
}

// readFormat returns the number in a FORMAT file, or ErrNotAStore if it has no number.
func (f *folder) readFormat(name string) (uint64, error) {
	text, err := f.read(name)
	if err != nil {
		return 0, err
	}
	number, ok := strings.CutPrefix(string(text), formatTitle)
	number, whole := strings.CutSuffix(number, "\n")
	found, err := strconv.ParseUint(number, 10, 32)
	if !ok || !whole || err != nil || found == 0 {
		return 0, events.ErrNotAStore
	}
	return found, nil
}

// acquire locks the folder. It waits for readers, and logs that after a second. If a
// writer has the lock it returns an ErrInUse that names the owner.
func (f *folder) acquire(ctx context.Context, logger *slog.Logger) (err error) {
	f.lock, err = pebblefiles.Lock(ctx, f.fs, f.path(lockName), func() {
		if logger != nil {
			logger.Warn("waiting for processes that read the store", "store", f.dir, "processes", pebblefiles.Users(f.path(lockName)))
		}
	})
	if err == nil {
		return nil
	}
	// An error about the lock file is a *PathError; a lock that is taken is not.
	if _, ok := errors.AsType[*fs.PathError](err); ok || ctx.Err() != nil {
		return fmt.Errorf("open store %s: %w", f.dir, err)
	}
	if errors.Is(err, pebblefiles.ErrReading) {
		return fmt.Errorf("open store %s: %w by processes that read it, for %v now%s: end them first, or name another store",
			f.dir, events.ErrInUse, pebblefiles.LockWait, numbers(pebblefiles.Users(f.path(lockName))))
	}
	return f.inUse()
}

// numbers formats process numbers for an error, and is empty without any.
func numbers(processes []int) string {
	if len(processes) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s)", strings.Trim(fmt.Sprint(processes), "[]"))
}

// holder returns a description of the process in the owner file.
func (f *folder) holder() string {
	o, ok := f.ownerRecord()
	if !ok {
		return "another process"
	}
	who := fmt.Sprintf("process %d (%s on %s, since %s)", o.PID, o.Command, o.Host, o.Started.Format(time.RFC3339))
	if host, err := os.Hostname(); err == nil && o.Host == host && o.PID == os.Getpid() {
		who += ", which is this one"
	}
	return who
}

// ownerRecord reads the owner file.
func (f *folder) ownerRecord() (s ownerRecord, ok bool) {
	text, err := f.read(ownerName)
	if err != nil || json.Unmarshal(text, &s) != nil || s.PID == 0 {
		return ownerRecord{}, false
	}
	return s, true
}

// writeOwner writes the owner file.
func (f *folder) writeOwner(s ownerRecord) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("open store %s: write %s: %w", f.dir, ownerName, err)
	}
	return f.write(ownerName, append(text, '\n'))
}

// close removes the owner file and unlocks the folder.
func (f *folder) close() error {
	err := f.fs.Remove(f.path(ownerName))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, f.lock.Close())
}

// write writes a file of the folder atomically and durably.
func (f *folder) write(name string, content []byte) error {
	err := f.create(f.path(name)+".new", content)
	if err == nil {
		err = f.fs.Rename(f.path(name)+".new", f.path(name))
	}
	if err == nil {
		err = pebblefiles.SyncDir(f.fs, f.dir)
	}
	if err != nil {
		return fmt.Errorf("open store %s: write %s: %w", f.dir, name, err)
	}
	return nil
}

// create writes and syncs a file. Its entry in the folder is not durable yet.
func (f *folder) create(path string, content []byte) error {
	file, err := f.fs.Create(path, vfs.WriteCategoryUnspecified)
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
func (f *folder) read(name string) ([]byte, error) { return f.readUpTo(name, 1<<16) }

// readAll returns the content of a file.
func (f *folder) readAll(name string) ([]byte, error) { return f.readUpTo(name, math.MaxInt64) }

func (f *folder) readUpTo(name string, most int64) ([]byte, error) {
	file, err := f.fs.Open(f.path(name))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, most))
	return text, errors.Join(err, file.Close())
}
