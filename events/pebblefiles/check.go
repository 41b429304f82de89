package pebblefiles

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"math/bits"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrDamaged is the sentinel that every Damage matches.
var ErrDamaged = errors.New("file is damaged")

// A Damage is a part of a file that differs from the written bytes. It is an error.
type Damage struct {
	File   string // name in the folder
	Offset int64  // of the first damaged byte; -1 if unknown
	Length int64  // in bytes; 0 if unknown
	Why    string // a clause for an operator, such as "it is missing"
}

// Error names the file, the offset and the reason.
func (d *Damage) Error() string {
	if d.Offset < 0 {
		return fmt.Sprintf("%s: %v: %s", d.File, ErrDamaged, d.Why)
	}
	return fmt.Sprintf("%s at byte %d: %v: %s", d.File, d.Offset, ErrDamaged, d.Why)
}

// missing is the reason of the Damage of a missing file.
const missing = "it is missing"

// Is reports whether target is ErrDamaged, or fs.ErrNotExist if the file is missing.
func (d *Damage) Is(target error) bool {
	return target == ErrDamaged || target == fs.ErrNotExist && d.Why == missing
}

// A Kind is the purpose of a file of a database.
type Kind string

// The kinds of files.
const (
	Table    Kind = "table"    // sorted records
	Blob     Kind = "blob"     // values stored apart from their keys
	Log      Kind = "log"      // records that are not in a table yet
	Manifest Kind = "manifest" // the list of tables
	Other    Kind = "other"
)

// A File is a file in the folder of a database.
type File struct {
	Name  string
	Kind  Kind
	Bytes int64
}

// KindOf returns the kind of a file by its name.
func KindOf(name string) Kind {
	switch {
	case strings.HasSuffix(name, ".sst"):
		return Table
	case strings.HasSuffix(name, ".blob"):
		return Blob
	case strings.HasSuffix(name, ".log"):
		return Log
	case strings.HasPrefix(name, "MANIFEST-"):
		return Manifest
	}
	return Other
}

// List returns the files in a folder, without subfolders, sorted by name. It omits a
// file that is removed while it runs.
func List(storage vfs.FS, dir string) ([]File, error) {
	names, err := storage.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	found := make([]File, 0, len(names))
	for _, name := range names {
		info, err := storage.Stat(storage.PathJoin(dir, name))
		if err != nil || info.IsDir() {
			continue
		}
		found = append(found, File{Name: name, Kind: KindOf(name), Bytes: info.Size()})
	}
	return found, nil
}

// Check reads all files of a closed database and yields each damage. It verifies the
// checksum of every block of a table and of every record of a log and a manifest. It
// also checks the options file and, if there is one, the seal. A file that cannot be
// read is a damage. Check does not verify the values in blob files; the reader of a
// value does.
//
// Check yields an error, once and as the last value, if ctx ends or the folder cannot be
// listed. If progress is not nil, Check calls it with the size of each file that it has
// read.
func Check(ctx context.Context, storage vfs.FS, dir string, progress func(bytes int64)) iter.Seq2[*Damage, error] {
	return func(yield func(*Damage, error) bool) {
		list, err := List(storage, dir)
		if err != nil {
			yield(nil, err)
			return
		}
		damages, err := sealDamages(storage, dir, list)
		if err != nil {
			damages = append(damages, asDamage(sealName, err))
		}
		for _, f := range list {
			if ctx.Err() != nil {
				yield(nil, context.Cause(ctx))
				return
			}
			damages = append(damages, checkFile(ctx, storage, dir, f)...)
			if progress != nil {
				progress(f.Bytes)
			}
			for _, d := range damages {
				if !yield(d, nil) {
					return
				}
			}
			damages = nil
		}
		for _, d := range damages {
			if !yield(d, nil) {
				return
			}
		}
	}
}

// asDamage returns err as a Damage of the named file. If err already contains a Damage,
// asDamage returns that Damage.
func asDamage(name string, err error) *Damage {
	if d, ok := errors.AsType[*Damage](err); ok {
		return d
	}
	return &Damage{File: name, Offset: -1, Why: err.Error()}
}

// CheckFile checks one file of a database as Check does, and returns its damages.
func CheckFile(ctx context.Context, storage vfs.FS, dir, name string) []*Damage {
	info, err := storage.Stat(storage.PathJoin(dir, name))
	if err != nil {
		return []*Damage{asDamage(name, err)}
	}
	return checkFile(ctx, storage, dir, File{Name: name, Kind: KindOf(name), Bytes: info.Size()})
}

// checkFile checks a file according to its kind and name. It returns no damage for a
// kind that has no checksums.
func checkFile(ctx context.Context, storage vfs.FS, dir string, f File) []*Damage {
	path := storage.PathJoin(dir, f.Name)
	switch {
	case f.Kind == Table:
		return checkTable(ctx, storage, path, f)
	case f.Kind == Log, f.Kind == Manifest:
		return checkLog(storage, path, f)
	case strings.HasPrefix(f.Name, "OPTIONS-"):
		return checkOptions(storage, path, f)
	}
	return nil
}

// checkTable verifies the checksum of each block of a table, one block at a time. If the
// structure of the table cannot be read, checkTable returns one damage with this error.
func checkTable(ctx context.Context, storage vfs.FS, path string, f File) (damages []*Damage) {
	fail := func(err error) []*Damage { return append(damages, asDamage(f.Name, err)) }
	readable, reader, err := openTable(ctx, storage, path)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = reader.Close() }() // nothing was written
	layout, err := reader.Layout()
	if err != nil {
		return fail(err)
	}
	for _, b := range blocksOf(layout) {
		value := make([]byte, b.Length+block.TrailerLen)
		if err := readable.ReadAt(ctx, value, int64(b.Offset)); err != nil {
			damages = append(damages, &Damage{f.Name, int64(b.Offset), int64(len(value)), err.Error()})
		} else if !intactBlock(value) {
			damages = append(damages, &Damage{f.Name, int64(b.Offset), int64(len(value)), "a block does not match its sum"})
		}
	}
	return damages
}

// blocksOf returns all blocks of a table, of records and of metadata, in the order of
// their offsets.
func blocksOf(l *sstable.Layout) []block.Handle {
	var all []block.Handle
	for _, b := range l.Data {
		all = append(all, b.Handle)
	}
	for _, b := range l.Filter {
		all = append(all, b.Handle)
	}
	all = append(append(all, l.Index...), l.ValueBlock...)
	all = append(all, l.TopIndex, l.RangeDel, l.RangeKey, l.ValueIndex, l.Properties, l.MetaIndex, l.BlobReferenceIndex)
	all = slices.DeleteFunc(all, func(b block.Handle) bool { return b.Length == 0 })
	slices.SortFunc(all, func(a, b block.Handle) int { return cmp.Compare(a.Offset, b.Offset) })
	return all
}

// castagnoli is the table of the CRC-32C, the checksum of Pebble's blocks and chunks.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// intactBlock reports whether a block matches the checksum in its last four bytes:
// the CRC-32C of the bytes before them, masked as in LevelDB's format. Pebble's own
// check also searches for the flipped bit, which is slow.
func intactBlock(value []byte) bool {
	body, want := value[:len(value)-4], binary.LittleEndian.Uint32(value[len(value)-4:])
	c := crc32.Checksum(body, castagnoli)
	return bits.RotateLeft32(c, 17)+0xa282ead8 == want
}

// checkLog reads a log or a manifest to its end. An incomplete last record is damage in
// a manifest. In a log it is no damage, because a power cut may leave an incomplete
// record.
func checkLog(storage vfs.FS, path string, f File) []*Damage {
	tear, err := tearInFile(storage, path)
	if err != nil {
		return []*Damage{asDamage(f.Name, err)}
	}
	if tear != nil {
		return []*Damage{tear.Damage()}
	}
	return nil
}

// checkOptions checks that Pebble can read the options file.
func checkOptions(storage vfs.FS, path string, f File) []*Damage {
	text, err := readFile(storage, path)
	if err == nil {
		o := &pebble.Options{}
		o.EnsureDefaults()
		err = o.CheckCompatibility("", string(text))
	}
	if err != nil {
		return []*Damage{asDamage(f.Name, err)}
	}
	return nil
}

// readFile returns the whole content of a file.
func readFile(storage vfs.FS, path string) ([]byte, error) {
	file, err := storage.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(file)
	return text, errors.Join(err, file.Close())
}
