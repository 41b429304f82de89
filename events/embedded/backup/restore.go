package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// Restore restores the backup in the folder src to a store in the folder dst, and
// returns its manifest. It creates dst if it is missing. dst may hold the remains of
// an interrupted Restore; if it holds other files, Restore returns ErrNotEmpty and
// leaves it unchanged. Restore compares each file with its SHA-256, and the restored
// records with their digest. If they differ, it leaves no store and returns an
// ErrBadBackup that names the file. If src is not a backup, it returns ErrNotABackup.
//
// Restore locks dst like an open store. While it runs, a second Restore into dst and
// an Open of dst return events.ErrInUse. If a backup is made into src while Restore
// runs, Restore itself may return events.ErrInUse. Restore removes only files that it
// wrote, or that an interrupted Restore wrote.
func Restore(ctx context.Context, src, dst string, storage vfs.FS) (b Manifest, err error) {
	r := &restoreRun{fs: storage, src: src, dst: dst}
	if storage == nil {
		r.fs = pebblefiles.Disk
		if r.src, err = storedir.RealPath(src); err == nil {
			r.dst, err = storedir.RealPath(dst)
		}
		if err != nil {
			return Manifest{}, fmt.Errorf("restore %s to %s: %w", src, dst, err)
		}
	}
	if r.made, err = readManifest(r.fs, r.src); err != nil {
		return Manifest{}, fmt.Errorf("restore %s: %w", src, err)
	}
	if err := r.run(ctx); err != nil {
		return Manifest{}, fmt.Errorf("restore %s to %s: %w", src, dst, err)
	}
	return r.made, nil
}

// restoringTitle is the prefix of a RESTORING file. A line for each file follows, with
// its path as a quoted Go string.
const restoringTitle = "settlement-ledger restore, format 1\n"

// A restoreRun is one call of Restore.
type restoreRun struct {
	fs       vfs.FS
	src, dst string   // folders of the backup and of the new store
	made     Manifest // of the backup
}

// run restores the backup. It checks the paths of the manifest, locks dst, and removes
// the remains of an interrupted Restore. It writes the list of the files, durably, and
// then the files. If this Restore is interrupted, a later Restore recognizes the remains
// by the list, and Open does not take the remains for a store. If a step fails, run
// removes the files that it wrote.
func (r *restoreRun) run(ctx context.Context) (err error) {
	if isWithin(r.fs, r.dst, r.src) || isWithin(r.fs, r.src, r.dst) {
		return errors.New("one folder is the other, or within it: name another")
	}
	for _, c := range r.made.Files {
		if c.Path == storedir.RestoringName || c.Path == storedir.LockName || !fs.ValidPath(c.Path) || c.Path == "." {
			return fmt.Errorf("%w: it names a file %q", ErrBadBackup, c.Path)
		}
	}
	if _, err := r.leftovers(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f := storedir.Dir{FS: r.fs, Path: r.dst}
	if err := f.MakeDirs(); err != nil {
		return err
	}
	if err := f.Acquire(ctx, nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Lock.Close()) }()
	left, err := r.leftovers() // again, because another Restore may have held the lock
	if err != nil {
		return err
	}
	if err := r.remove(left); err != nil {
		return err
	}
	err = r.begin()
	if err == nil {
		err = r.copyAll(ctx, &f)
	}
	if err != nil {
		return errors.Join(r.explain(err), r.clear())
	}
	// The folder is a store now. Opening it removes a list that a power cut brings
	// back.
	return r.fs.Remove(r.path(storedir.RestoringName))
}

// explain returns err, the error of a failed Restore. If err is an ErrBadBackup and
// another backup was made into src during the Restore, it returns an events.ErrInUse
// instead. Such a backup removes files, so that copying them fails, and changes the time
// in the manifest.
func (r *restoreRun) explain(err error) error {
	now, reading := readManifest(r.fs, r.src)
	if errors.Is(err, ErrBadBackup) && reading == nil && !now.Made.Equal(r.made.Made) {
		return fmt.Errorf("%w: another backup was made into %s meanwhile: restore that", events.ErrInUse, r.src)
	}
	return err
}

// leftovers returns the files in dst that an interrupted Restore wrote. It returns an
// ErrNotEmpty that names the first other file, and fs.ErrNotExist if dst is missing.
func (r *restoreRun) leftovers() ([]string, error) {
	if _, err := r.fs.List(r.dst); err != nil {
		return nil, err
	}
	f := storedir.Dir{FS: r.fs, Path: r.dst}
	if _, err := f.ReadFormat(storedir.FormatName); err == nil {
		return nil, r.notEmpty(storedir.FormatName)
	}
	ours, err := r.listedFiles()
	if err != nil {
		return nil, err
	}
	var left []string
	err = r.walk("", func(path string, folder bool) error {
		switch {
		case folder && hasFileIn(ours, path):
		case folder:
			return r.notEmpty(path)
		case path == storedir.LockName, path == storedir.RestoringName:
		case path == storedir.RestoringName+".new":
			left = append(left, path)
		case !ours[path]:
			return r.notEmpty(path)
		default:
			left = append(left, path)
		}
		return nil
	})
	return left, err
}

// notEmpty returns an ErrNotEmpty that names a file.
func (r *restoreRun) notEmpty(path string) error {
	return fmt.Errorf("%w: it holds %s; name an empty folder, or one that does not exist", ErrNotEmpty, path)
}

// listedFiles returns the paths in the RESTORING file of dst. It returns no paths if
// the file is missing, and an ErrNotEmpty if its format is unknown.
func (r *restoreRun) listedFiles() (map[string]bool, error) {
	f := storedir.Dir{FS: r.fs, Path: r.dst}
	text, err := f.ReadAll(storedir.RestoringName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines, ok := strings.CutPrefix(string(text), restoringTitle)
	if !ok {
		return nil, r.notEmpty(storedir.RestoringName)
	}
	paths := map[string]bool{}
	for line := range strings.Lines(lines) {
		path, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		if err != nil || !fs.ValidPath(path) || path == "." {
			return nil, r.notEmpty(storedir.RestoringName)
		}
		paths[path] = true
	}
	return paths, nil
}

// hasFileIn reports whether one of the paths is in a folder.
func hasFileIn(paths map[string]bool, folder string) bool {
	for path := range paths {
		if strings.HasPrefix(path, folder+"/") {
			return true
		}
	}
	return false
}

// walk calls do for each file and folder below a folder of dst, with its path
// relative to dst. It calls do for a folder before its content. It returns an
// ErrNotEmpty for a folder that is a symbolic link.
func (r *restoreRun) walk(dir string, do func(path string, folder bool) error) error {
	names, err := r.fs.List(r.path(dir))
	if err != nil {
		return err
	}
	for _, name := range names {
		path := name
		if dir != "" {
			path = dir + "/" + name
		}
		info, err := r.fs.Stat(r.path(path))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a broken symbolic link counts as a file
			return err
		}
		folder := err == nil && info.IsDir()
		if folder && r.symlinked(path) {
			return r.notEmpty(path)
		}
		if err := do(path, folder); err != nil {
			return err
		}
		if folder {
			if err := r.walk(path, do); err != nil {
				return err
			}
		}
	}
	return nil
}

// symlinked reports whether the path of a folder in dst leads elsewhere by a symbolic
// link. A Restore makes no links, so it did not write the files there.
func (r *restoreRun) symlinked(path string) bool {
	if r.fs != pebblefiles.Disk {
		return false
	}
	found, err := filepath.EvalSymlinks(r.path(path))
	return err != nil || found != r.path(path)
}

// path returns the path of a file in dst. The argument is relative to dst and has
// slashes.
func (r *restoreRun) path(path string) string {
	if path == "" {
		return r.dst
	}
	return r.fs.PathJoin(append([]string{r.dst}, strings.Split(path, "/")...)...)
}

// begin writes the list of the files to restore, durably.
func (r *restoreRun) begin() error {
	text := []byte(restoringTitle)
	for _, c := range r.made.Files {
		text = fmt.Appendf(text, "%q\n", c.Path)
	}
	return pebblefiles.WriteFile(r.fs, r.dst, storedir.RestoringName, text)
}

// copyAll copies the files, verifies the records and inspects the folder. It copies
// FORMAT last, which makes the folder a store. So a folder with FORMAT has all other
// files, durably and verified.
func (r *restoreRun) copyAll(ctx context.Context, f *storedir.Dir) error {
	var last Copy
	for _, c := range r.made.Files {
		if c.Path == storedir.FormatName {
			last = c
			continue
		}
		if err := r.copy(ctx, c); err != nil {
			return err
		}
	}
	position, records, digest, err := layout.ReadDigest(ctx, r.fs, f.PathOf(storedir.LogName), nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadBackup, err)
	}
	if position != r.made.Position || records != r.made.Records || digest != r.made.Digest {
		return fmt.Errorf("%w: its %d records to position %s have digest %s, and %d to %s with %s were backed up",
			ErrBadBackup, records, position, digest, r.made.Records, r.made.Position, r.made.Digest)
	}
	if last.Path == "" {
		return fmt.Errorf("%w: it has no %s", ErrBadBackup, storedir.FormatName)
	}
	// The files must be durable before FORMAT.
	if err := pebblefiles.SyncDir(r.fs, r.dst); err != nil {
		return err
	}
	if err := r.copy(ctx, last); err != nil {
		return err
	}
	return f.Inspect()
}

// copy copies one file of the backup into dst, durably. It returns an ErrBadBackup
// that names the file if it is missing or does not match its SHA-256.
func (r *restoreRun) copy(ctx context.Context, c Copy) error {
	to := r.path(c.Path)
	f := storedir.Dir{FS: r.fs, Path: r.fs.PathDir(to)}
	if err := f.MakeDirs(); err != nil {
		return err
	}
	from := r.fs.PathJoin(r.src, poolName, path.Base(c.SHA256))
	sum, err := writeCopy(ctx, r.fs, from, to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s is missing, which is %s", ErrBadBackup, from, c.Path)
	case err != nil:
		return err
	case sum != c.SHA256:
		return fmt.Errorf("%w: %s, which is %s, does not match its sum", ErrBadBackup, from, c.Path)
	}
	return pebblefiles.SyncDir(r.fs, f.Path)
}

// clear removes the files that a failed Restore wrote, and the lock file. It removes
// FORMAT first, durably, so that an interrupted clear leaves no incomplete store, and
// RESTORING after the listed files.
func (r *restoreRun) clear() error {
	if _, err := r.fs.Stat(r.path(storedir.FormatName)); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = r.fs.Remove(r.path(storedir.FormatName))
		}
		if err == nil {
			err = pebblefiles.SyncDir(r.fs, r.dst)
		}
		if err != nil {
			return err
		}
	}
	paths := []string{storedir.RestoringName + ".new"}
	for _, c := range r.made.Files {
		paths = append(paths, c.Path)
	}
	if err := r.remove(paths); err != nil {
		return err
	}
	return r.remove([]string{storedir.RestoringName, storedir.LockName})
}

// remove removes the listed files of dst, if they exist, and then the folders of these
// files if the folders are empty.
func (r *restoreRun) remove(paths []string) error {
	folders := map[string]bool{}
	for _, name := range paths {
		if err := r.fs.Remove(r.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	// Sorted, a folder comes before its subfolders.
	for _, dir := range slices.Backward(slices.Sorted(maps.Keys(folders))) {
		names, err := r.fs.List(r.path(dir))
		if err == nil && len(names) == 0 {
			err = r.fs.Remove(r.path(dir))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
