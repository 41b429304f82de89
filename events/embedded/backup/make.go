package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// The names in a backup's folder.
const (
	manifestName = "BACKUP" // the Manifest
	poolName     = "files"  // folder of the files, named by their SHA-256
)

// backupTitle is the prefix of a BACKUP file.
const backupTitle = "settlement-ledger backup, format "

// backupFormat is the format of the folder of a backup.
const backupFormat = 1

// The errors of Make and Restore. Callers match them with errors.Is.
var (
	ErrNotABackup = errors.New("not a backup")
	ErrNotEmpty   = errors.New("folder is not empty")
	ErrBadBackup  = errors.New("backup is damaged")
)

// A NamedComponent is a component with the name of its folder in the store.
type NamedComponent struct {
	Name string
	Component
}

// A Manifest describes a backup: its records and its files.
type Manifest struct {
	Position events.Position `json:"position"` // of the last record
	Records  uint64          `json:"records"`
	Digest   string          `json:"digest"` // the events.Digest of the records
	Made     time.Time       `json:"made"`   // when the snapshot began, in UTC
	Files    []Copy          `json:"files"`
	Missing  []string        `json:"missing,omitempty"` // names of component data to which records refer and which the store lacked
	Turn     uint64          `json:"turn,omitempty"`    // number of earlier backups into the folder
}

// A Copy is a file of a store in a backup.
type Copy struct {
	Path   string `json:"path"` // relative to the store, with slashes
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Bytes returns the total size of the files of the backup.
func (b Manifest) Bytes() (total int64) {
	for _, f := range b.Files {
		total += f.Bytes
	}
	return total
}

// Written counts the files that a backup wrote.
type Written struct {
	Files int   // files that the folder did not have yet
	Bytes int64 // their size
}

// Make copies the durable records of a store, and the component data to which they
// refer, into the folder dst, as of one time. The store stays usable. Make creates
// the folder if it is missing. If the folder holds other files than a backup, Make
// returns ErrNotABackup and leaves it unchanged.
//
// A file that an earlier backup in the folder has is not written again. At the end
// Make removes the files that only the earlier backup needed. Before the backup is
// complete, Make reads every record of the snapshot, and every file that the folder
// does not have yet. It returns events.ErrDamaged for damage. Of the files that the
// folder has, each backup rereads an eighth in turn, and replaces damaged ones.
//
// The new backup must have at least the content of the earlier one. If the store has
// lost records of the earlier backup, or lacks referenced data that the earlier
// backup has, Make returns [storedir.ErrIncomplete] and keeps the earlier one. The
// earlier backup stays intact until the new one is complete and durable; an error, a
// kill or a power cut does not change it.
//
// Only one backup of a store, and only one into a folder, runs at a time. A second
// Make returns events.ErrInUse.
func Make(ctx context.Context, source Source, dst string, parts ...NamedComponent) (made Manifest, wrote Written, err error) {
	b := &backupRun{source: source, fs: source.FS, dst: dst, snapshotDir: source.SnapshotDir}
	if source.FS == pebblefiles.Disk {
		if b.dst, err = storedir.RealPath(dst); err != nil {
			return Manifest{}, Written{}, fmt.Errorf("back up to %s: %w", dst, err)
		}
	}
	if err := b.run(ctx, parts); err != nil {
		return Manifest{}, Written{}, fmt.Errorf("back up to %s: %w", dst, err)
	}
	return b.made, b.wrote, nil
}

// A Source is the open store that Make backs up.
type Source struct {
	FS          vfs.FS // file system of the store and of the backup
	Dir         string // folder of the store
	SnapshotDir string // folder in Dir that Make replaces, fills and removes

	// Snapshot creates the folder dir with an immutable copy of the durable records.
	Snapshot func(ctx context.Context, dir string) error
	// Acquire excludes a second backup of the store. It returns a function that ends
	// the exclusion, or an events.ErrInUse.
	Acquire func() (release func(), err error)
}

// A backupRun is one call of Make.
type backupRun struct {
	source      Source
	fs          vfs.FS
	dst         string           // folder of the backup
	snapshotDir string           // folder of the snapshot
	made        Manifest         // of this backup, completed step by step
	wrote       Written          // result of Make
	last        Manifest         // earlier backup in dst; zero: none
	pool        map[string]int64 // sizes of the files in dst, by SHA-256
}

// run makes the backup in five steps: lock the folder, take the snapshot, verify it,
// copy its files into the pool, and replace the manifest. The manifest is written
// last and atomically, so the folder has a complete backup at every time. Then run
// removes the files that the new manifest does not list. A kill between both leaves
// unneeded files, which the next backup removes.
func (b *backupRun) run(ctx context.Context, parts []NamedComponent) (err error) {
	if isWithin(b.fs, b.dst, b.source.Dir) {
		return errors.New("the folder is the store's, or within it: name another")
	}
	lock, err := b.lockTarget()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	release, err := b.source.Acquire()
	if err != nil {
		return err
	}
	defer release()
	if err := b.fs.RemoveAll(b.snapshotDir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.fs.RemoveAll(b.snapshotDir)) }()
	if err := b.fs.MkdirAll(b.snapshotDir, 0o700); err != nil {
		return err
	}
	b.made.Made = time.Now().UTC()
	if err := b.snapshot(ctx, b.snapshotDir, parts); err != nil {
		return err
	}
	if err := b.readBack(ctx, parts); err != nil {
		return err
	}
	if err := b.copyAll(ctx, parts); err != nil {
		return err
	}
	if err := writeManifest(b.fs, b.dst, b.made); err != nil {
		return err
	}
	return b.removeUnneeded()
}

// snapshot copies the components and the records into dir. Each Component.Snapshot calls
// a function that copies the remaining components and, last, the records. From this call
// until its own copy is complete, a component removes no data. So each copy of a
// component has all data to which the copied records refer.
func (b *backupRun) snapshot(ctx context.Context, dir string, parts []NamedComponent) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(parts) > 0 {
		part, rest := parts[0], parts[1:]
		return part.Snapshot(ctx, b.fs.PathJoin(dir, part.Name), func() error { return b.snapshot(ctx, dir, rest) })
	}
	return b.source.Snapshot(ctx, b.fs.PathJoin(dir, storedir.LogName))
}

// readBack reads all records of the snapshot and writes their number and digest into the
// manifest. It returns ErrIncomplete if the first records are not the records of the
// earlier backup, or if component data is missing that was not missing in the earlier
// backup.
func (b *backupRun) readBack(ctx context.Context, parts []NamedComponent) (err error) {
	log := b.fs.PathJoin(b.snapshotDir, storedir.LogName)
	then := events.NewDigest() // of the records in the earlier backup
	b.made.Position, b.made.Records, b.made.Digest, err = layout.ReadDigest(ctx, b.fs, log, func(e events.Entry) error {
		if then.Count() < b.last.Records {
			then.Add(e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if b.last.Records > 0 && then.String() != b.last.Digest {
		return fmt.Errorf("%w: the folder holds a backup of %d records, and those are not the first ones of this store: "+
			"it is of another store, or this one lost records; name another folder", storedir.ErrIncomplete, b.last.Records)
	}
	for _, p := range parts {
		if part, ok := p.Component.(Referenced); ok {
			missing, err := part.Missing(ctx, b.fs.PathJoin(b.snapshotDir, p.Name), layout.Records(ctx, b.fs, log))
			if err != nil {
				return err
			}
			b.made.Missing = append(b.made.Missing, missing...)
		}
	}
	if b.last.Digest == "" {
		return nil
	}
	for _, name := range b.made.Missing {
		if !slices.Contains(b.last.Missing, name) {
			return fmt.Errorf("%w: the records name %s, which is missing, and %d in all are: the earlier backup stays as it is; "+
				"restore it beside the store, or name another folder", storedir.ErrIncomplete, name, len(b.made.Missing))
		}
	}
	return nil
}

// isWithin reports whether the folder dir is the folder within or lies below it. Both
// arguments are clean paths.
func isWithin(storage vfs.FS, dir, within string) bool {
	for {
		if dir == within {
			return true
		}
		parent := storage.PathDir(dir)
		if parent == dir || parent == "." {
			return false
		}
		dir = parent
	}
}

// lockTarget creates or inspects the folder of the backup, locks it and reads its
// manifest. It returns ErrNotABackup for a folder with other files, and
// events.ErrInUse if another backup has the lock. The caller closes the lock.
func (b *backupRun) lockTarget() (io.Closer, error) {
	names, err := b.fs.List(b.dst)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f := storedir.Dir{FS: b.fs, Path: b.dst}
		if err := f.MakeDirs(); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	}
	for _, name := range names {
		if !slices.Contains([]string{manifestName, manifestName + ".new", poolName, storedir.LockName}, name) {
			return nil, fmt.Errorf("%w: it holds %s; name an empty folder, one that does not exist, or a backup", ErrNotABackup, name)
		}
	}
	if slices.Contains(names, manifestName) {
		if _, err := readManifest(b.fs, b.dst); errors.Is(err, ErrNotABackup) {
			return nil, err
		}
	}
	lock, err := b.fs.Lock(b.fs.PathJoin(b.dst, storedir.LockName))
	if err != nil {
		if _, ok := errors.AsType[*fs.PathError](err); !ok {
			err = fmt.Errorf("%w by another backup into it: wait for that", events.ErrInUse)
		}
		return nil, err
	}
	if err := b.readTarget(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// readTarget reads the manifest and lists the files of the locked folder. It treats a
// damaged manifest as missing: the new backup replaces it.
func (b *backupRun) readTarget() error {
	if last, err := readManifest(b.fs, b.dst); err == nil {
		b.last, b.made.Turn = last, last.Turn+1
	}
	dir := b.fs.PathJoin(b.dst, poolName)
	if err := b.fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := pebblefiles.SyncDir(b.fs, b.dst); err != nil {
		return err
	}
	list, err := pebblefiles.List(b.fs, dir)
	b.pool = map[string]int64{}
	for _, f := range list {
		b.pool[f.Name] = f.Bytes
	}
	return err
}

// copyAll copies the FORMAT file and all files of the snapshot into the pool,
// durably, and lists them in the manifest.
func (b *backupRun) copyAll(ctx context.Context, parts []NamedComponent) error {
	if err := b.copyFile(ctx, b.fs.PathJoin(b.source.Dir, storedir.FormatName), storedir.FormatName); err != nil {
		return err
	}
	dirs := []string{storedir.LogName}
	for _, p := range parts {
		dirs = append(dirs, p.Name)
	}
	for _, dir := range dirs {
		list, err := pebblefiles.List(b.fs, b.fs.PathJoin(b.snapshotDir, dir))
		if err != nil {
			return err
		}
		for _, f := range list {
			if err := b.copyFile(ctx, b.fs.PathJoin(b.snapshotDir, dir, f.Name), dir+"/"+f.Name); err != nil {
				return err
			}
		}
	}
	return pebblefiles.SyncDir(b.fs, b.fs.PathJoin(b.dst, poolName))
}

// copyFile adds the file at from to the manifest under path, and makes sure that the pool
// (the folder of file copies, named by their SHA-256) has an intact copy of it:
//
//   - It computes the SHA-256 of the file.
//   - If the pool has a copy of that SHA-256 and size, it is used. In one backup of
//     rereadIn it is used only if its bytes still match the SHA-256.
//   - Otherwise the file is checked for damage and copied into the pool. The copy gets its
//     name only when its content is durable.
//
// copyFile returns an ErrDamaged if the file is damaged, or if the bytes that it copies
// have another SHA-256 than the bytes that it read before.
func (b *backupRun) copyFile(ctx context.Context, from, path string) error {
	sum, size, err := hashCopy(ctx, b.fs, from, io.Discard)
	if err != nil {
		return err
	}
	b.made.Files = append(b.made.Files, Copy{path, size, sum})
	to := b.fs.PathJoin(b.dst, poolName, sum)
	if inPool, ok := b.pool[sum]; ok && inPool == size && (!b.rereadDue(sum) || b.intact(ctx, to, sum)) {
		return nil
	}
	if damages := pebblefiles.CheckFile(ctx, b.fs, b.fs.PathDir(from), b.fs.PathBase(from)); len(damages) > 0 {
		return fmt.Errorf("%w: %s/%w", events.ErrDamaged, path[:max(0, strings.LastIndexByte(path, '/'))], damages[0])
	}
	again, err := writeCopy(ctx, b.fs, from, to+".new")
	if err == nil && again != sum {
		err = fmt.Errorf("read %s: %w: it was not the same when it was read again", path, events.ErrDamaged)
	}
	if err == nil {
		err = b.fs.Rename(to+".new", to)
	}
	if err != nil {
		return err
	}
	b.pool[sum] = size
	b.wrote.Files++
	b.wrote.Bytes += size
	return nil
}

// rereadIn is the number of backups in which each file of the pool is reread once.
const rereadIn = 8

// rereadDue reports whether this backup rereads a file of the pool. The first byte of
// the SHA-256 assigns the file to one of rereadIn turns.
func (b *backupRun) rereadDue(sum string) bool {
	first, err := strconv.ParseUint(sum[:2], 16, 8)
	return err != nil || first%rereadIn == b.made.Turn%rereadIn
}

// intact reports whether a file of the pool matches its SHA-256. It reads the whole
// file.
func (b *backupRun) intact(ctx context.Context, name, sum string) bool {
	found, _, err := hashCopy(ctx, b.fs, name, io.Discard)
	return err == nil && found == sum
}

// removeUnneeded removes the files of the pool that the new manifest does not list.
func (b *backupRun) removeUnneeded() error {
	needed := map[string]bool{}
	for _, f := range b.made.Files {
		needed[f.SHA256] = true
	}
	for name := range b.pool {
		if !needed[name] {
			if err := b.fs.Remove(b.fs.PathJoin(b.dst, poolName, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeCopy copies a file to a new file, makes the bytes durable and returns their
// SHA-256. The name of the new file is not durable yet: the caller must sync its
// folder.
func writeCopy(ctx context.Context, storage vfs.FS, from, to string) (sum string, err error) {
	out, err := storage.Create(to, vfs.WriteCategoryUnspecified)
	if err != nil {
		return "", err
	}
	sum, _, err = hashCopy(ctx, storage, from, out)
	if err == nil {
		err = out.Sync()
	}
	return sum, errors.Join(err, out.Close())
}

// hashCopy copies a file to a writer, and returns its SHA-256 in hexadecimal and its
// size in bytes. If ctx ends, it returns the cause.
func hashCopy(ctx context.Context, storage vfs.FS, from string, to io.Writer) (sum string, size int64, err error) {
	in, err := storage.Open(from)
	if err != nil {
		return "", 0, err
	}
	defer in.Close()
	hash, p := sha256.New(), make([]byte, 1<<20)
	for {
		if err := context.Cause(ctx); err != nil {
			return "", 0, err
		}
		n, err := in.Read(p)
		_, _ = hash.Write(p[:n]) // it never fails
		if n > 0 {
			if _, err := to.Write(p[:n]); err != nil {
				return "", 0, err
			}
		}
		size += int64(n)
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(hash.Sum(nil)), size, nil
		}
		if err != nil {
			return "", 0, err
		}
	}
}

// writeManifest writes the BACKUP file: a line with its format, the Manifest as JSON
// on one line, and the SHA-256 of both.
func writeManifest(storage vfs.FS, dir string, b Manifest) error {
	object, err := json.Marshal(b)
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, "%s%d\n%s\n", backupTitle, backupFormat, object)
	return pebblefiles.WriteFile(storage, dir, manifestName, fmt.Appendf(text, "%x\n", sha256.Sum256(text)))
}

// readManifest reads the BACKUP file of a folder. It returns ErrNotABackup if the
// folder has no BACKUP file, events.ErrNewerFormat if the format of the file is
// unknown, and ErrBadBackup if the file does not match its checksum.
func readManifest(storage vfs.FS, dir string) (b Manifest, err error) {
	file, err := storage.Open(storage.PathJoin(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return b, fmt.Errorf("%w: it has no %s file", ErrNotABackup, manifestName)
	}
	if err != nil {
		return b, err
	}
	content, err := io.ReadAll(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return b, err
	}
	text := string(content)
	version, ok := strings.CutPrefix(text, backupTitle)
	if !ok {
		return b, fmt.Errorf("%w: its %s file is not one of a backup", ErrNotABackup, manifestName)
	}
	if version, _, _ = strings.Cut(version, "\n"); version != fmt.Sprint(backupFormat) {
		return b, fmt.Errorf("%w: the backup has format %q, and this program knows format %d; use a newer program", events.ErrNewerFormat, version, backupFormat)
	}
	lines := strings.SplitAfter(text, "\n")
	if len(lines) != 4 || lines[2] != fmt.Sprintf("%x\n", sha256.Sum256([]byte(lines[0]+lines[1]))) {
		return b, fmt.Errorf("%w: its %s file does not match its sum", ErrBadBackup, manifestName)
	}
	if err := json.Unmarshal([]byte(lines[1]), &b); err != nil {
		return b, fmt.Errorf("%w: read its %s file: %w", ErrBadBackup, manifestName, err)
	}
	return b, nil
}

// A Component is other data that a backup includes, such as the outputs to which records
// refer.
type Component interface {
	// Snapshot creates the folder dir with an immutable copy of the component's data. It
	// first calls the function before, which copies the records. If before fails,
	// Snapshot returns its error. From the call of before until the copy is complete, the
	// component removes no data. So the copy has all data to which the copied records
	// refer.
	Snapshot(ctx context.Context, dir string, before func() error) error
}

// A Referenced component can name the data to which records refer and which its copy
// lacks. A backup lists this data in its manifest as missing.
type Referenced interface {
	Component
	// Missing returns the names of the data that the records refer to and the copy in
	// the folder dir lacks. It gets the copied records in order.
	Missing(ctx context.Context, dir string, records iter.Seq2[events.Entry, error]) ([]string, error)
}
