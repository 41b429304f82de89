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

// ErrDamaged is what every Damage is.
var ErrDamaged = errors.New("file is damaged")

// A Damage is a part of a file that is not what was written.
type Damage struct {
	File   string // its name in the folder
	Offset int64  // of its first byte; -1 where it is not known
	Length int64  // 0 where it is not known
	Why    string
}

// Error names the file, the place in it and what is wrong.
func (d *Damage) Error() string {
	if d.Offset < 0 {
		return fmt.Sprintf("%s: %v: %s", d.File, ErrDamaged, d.Why)
	}
	return fmt.Sprintf("%s at byte %d: %v: %s", d.File, d.Offset, ErrDamaged, d.Why)
}

// missing is why a file is damaged that is not there.
const missing = "it is missing"

// Is reports whether target is ErrDamaged, or fs.ErrNotExist for a file that is
// not there.
func (d *Damage) Is(target error) bool {
	return target == ErrDamaged || target == fs.ErrNotExist && d.Why == missing
}

// A Kind is what a file of a database is for.
type Kind string

// The kinds of files.
const (
	Table    Kind = "table"    // sorted records
	Blob     Kind = "blob"     // values apart from their keys
	Log      Kind = "log"      // what is not in a table yet
	Manifest Kind = "manifest" // which tables there are
	Other    Kind = "other"
)

// A File is a file in a database's folder.
type File struct {
	Name  string
	Kind  Kind
	Bytes int64
}

// KindOf returns what a file with a name is for.
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

// List returns the files in a folder, and in none of those within it, by name.
// One that goes while it looks is not listed.
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

// Check reads all files of a database that nobody has open, and yields what of
// them is damaged. It looks at the sum of every block of a table and of every
// record of a log and a manifest, at the options, and at the seal where there is
// one. A file that cannot be read is damaged. Values of records that are kept
// apart in a blob file are left to who reads them. An error, once and last, is
// the context's or that of a folder that cannot be listed. Told, if not nil, is
// progress the bytes of each file that was read.
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

func asDamage(name string, err error) *Damage {
	if d, ok := errors.AsType[*Damage](err); ok {
		return d
	}
	return &Damage{File: name, Offset: -1, Why: err.Error()}
}

// CheckFile reads one file of a database as Check does, and returns what of it is
// damaged.
func CheckFile(ctx context.Context, storage vfs.FS, dir, name string) []*Damage {
	info, err := storage.Stat(storage.PathJoin(dir, name))
	if err != nil {
		return []*Damage{asDamage(name, err)}
	}
	return checkFile(ctx, storage, dir, File{Name: name, Kind: KindOf(name), Bytes: info.Size()})
}

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

// checkTable holds each block of a table to its sum.
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

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// intactBlock reports whether a block matches the sum behind it: the CRC-32C of its
// bytes and its type, turned and added to as LevelDB's format has it. Pebble's
// own check would go on to look for the bit that flipped, which takes long.
func intactBlock(value []byte) bool {
	body, want := value[:len(value)-4], binary.LittleEndian.Uint32(value[len(value)-4:])
	c := crc32.Checksum(body, castagnoli)
	return bits.RotateLeft32(c, 17)+0xa282ead8 == want
}

// checkLog reads a log or a manifest to its end. An end that a power cut may
// have torn is damage only in a manifest.
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

// checkOptions looks whether the options that a database was opened with can be
// read.
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

func readFile(storage vfs.FS, path string) ([]byte, error) {
	file, err := storage.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(file)
	return text, errors.Join(err, file.Close())
}
