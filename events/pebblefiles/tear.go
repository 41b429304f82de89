package pebblefiles

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A Tear is a place in a log or a manifest after which Pebble reads no record
// although the file continues: whole records follow, or the record there has one
// flipped bit. Pebble treats the place as the end that a power cut left.
type Tear struct {
	File    string   // name in the folder
	Offset  int64    // of the first unreadable byte
	Certain bool     // the file is damaged: a power cut cannot cause this
	Before  [][]byte // the payloads of the records before the offset
	Behind  [][]byte // the payloads of the whole records after the offset
	why     string   // the reason for the text of Damage
}

// Damage converts the tear to a Damage. Its text has the number of whole records
// after the tear.
func (t *Tear) Damage() *Damage {
	why := t.why
	if n := len(t.Behind); n > 0 {
		why += fmt.Sprintf(", and %d whole records lie behind it", n)
	}
	return &Damage{File: t.File, Offset: t.Offset, Why: why}
}

// findTear reads a log or a manifest to the place where Pebble stops, and searches
// the bytes after it for whole records. It returns nil if the place is a regular end,
// or an end that only a power cut can have left. A manifest that cannot be read to
// its end always has a tear.
func findTear(name string, f *chunkFile) *Tear {
	t := &Tear{File: name}
	var at int
	at, t.why = f.readRecords(func([]byte) {})
	t.Offset = int64(at)
	t.Certain = at < f.size && f.oneBitFlipped(at)
	if t.Certain {
		t.why += ", in which one bit is flipped"
	}
	f.searchBehind(t)
	if !t.Certain && len(t.Behind) == 0 && (!f.manifest || at >= f.size) {
		return nil
	}
	f.readRecords(func(record []byte) { t.Before = append(t.Before, bytes.Clone(record)) })
	return t
}

// readRecords reads records as Pebble does, and passes their payloads to use, which keeps no reference. It returns the
// offset at which Pebble stops, and the reason. If the file ends within a record, the offset
// is the start of that record.
func (f *chunkFile) readRecords(use func(record []byte)) (at int, why string) {
	var open assembler
	begun := 0 // offset of the incomplete record
	for at < f.size {
		rest := f.rest(at)
		if len(rest) < chunkHeader {
			if (at+len(rest))%blockLen != 0 || len(rest) == 0 {
				break
			}
			at += len(rest)
			continue
		}
		if zeroHeader(rest) && padding(rest) {
			at += len(rest)
			continue
		}
		c, ok := f.chunkAt(at)
		if !ok {
			break
		}
		if c.kind == fullChunk || c.kind == firstChunk {
			begun = at
		}
		if whole := open.add(c); whole != nil {
			use(whole)
		}
		at = c.end
	}
	if open.parts != nil && at >= f.size {
		return begun, "a record is not whole"
	}
	return at, "it cannot be read further"
}

// searchBehind searches the bytes after the tear for chunks of this file and appends
// the records that they form to t.Behind. It looks at every offset, because the
// damage may have hidden the length of a chunk. It sets t.Certain if a later chunk
// says that the log was synced beyond the tear: a power cut cannot remove synced
// bytes.
func (f *chunkFile) searchBehind(t *Tear) {
	var open assembler
	next := int(t.Offset) + 1
	for at := next; at+chunkHeader <= f.size; {
		rest := f.rest(at)
		if len(rest) < chunkHeader { // no chunk begins in the end of a block
			at += max(len(rest), 1)
			continue
		}
		if header := headerLen(rest[encodingAt]); header == 0 || (header == chunkHeader) != f.manifest {
			at++
			continue
		}
		continues := at == next || f.gap(next, at)
		c, ok := f.chunkAt(at)
		if !ok {
			at++
			continue
		}
		if !continues {
			open = assembler{}
		}
		if c.synced > uint64(t.Offset) && c.synced <= uint64(at) {
			t.Certain = true
		}
		if whole := open.add(c); whole != nil {
			t.Behind = append(t.Behind, bytes.Clone(whole))
		}
		at, next = c.end, c.end
	}
}

// gap reports whether the bytes between two chunks are only the padding of a block,
// so that the second chunk continues the record of the first.
func (f *chunkFile) gap(from, to int) bool {
	if to%blockLen != 0 || to-from >= syncedHeader {
		return false
	}
	rest := f.rest(from)
	return len(rest) < chunkHeader || padding(rest)
}

// An assembler joins the chunks of a record. The zero assembler has no record.
type assembler struct {
	parts []byte // chunks so far; nil: no record has begun
}

// add adds a chunk and returns the record if the chunk completes it, or nil. The record is
// valid until another block is read. It ignores a chunk that does not continue a record, as Pebble does.
func (r *assembler) add(c chunk) []byte {
	switch {
	case c.kind == fullChunk:
		r.parts = nil
		return c.payload
	case c.kind == firstChunk:
		r.parts = append([]byte{}, c.payload...)
	case r.parts == nil:
	case c.kind == lastChunk:
		whole := append(r.parts, c.payload...)
		r.parts = nil
		return whole
	default:
		r.parts = append(r.parts, c.payload...)
	}
	return nil
}

// tearInFile returns the Tear in a log or a manifest, or nil. Other files have no tears.
func tearInFile(storage vfs.FS, path string) (*Tear, error) {
	name := storage.PathBase(path)
	f := &chunkFile{manifest: KindOf(name) == Manifest}
	if !f.manifest {
		number, err := strconv.ParseUint(strings.TrimSuffix(name, ".log"), 10, 64)
		if KindOf(name) != Log || err != nil {
			return nil, nil
		}
		f.number = uint32(number)
	}
	file, err := storage.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f.source, f.size = file, int(info.Size())
	tear := findTear(name, f)
	return tear, errors.Join(f.err, file.Close())
}

// A Replay is a file system through which a database is opened. It checks each log
// and manifest for a Tear before Pebble reads it.
type Replay struct {
	vfs.FS
	judge func(*Tear) error // of NewReplay
	done  atomic.Bool       // the database is open; files are no longer checked
}

// NewReplay returns a Replay over a file system. It calls judge for each [Tear]. If
// judge returns an error, opening the database fails with it before a file is
// changed. If judge returns nil, Pebble ignores the records after the tear.
func NewReplay(storage vfs.FS, judge func(*Tear) error) *Replay {
	return &Replay{FS: storage, judge: judge}
}

// Done ends the checks, because the database is open.
func (r *Replay) Done() { r.done.Store(true) }

// Open opens a file. Before Done it checks a log or a manifest first, and returns the
// error of judge.
func (r *Replay) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if !r.done.Load() {
		if err := r.inspect(name); err != nil {
			return nil, err
		}
	}
	return r.FS.Open(name, options...)
}

// inspect calls judge if a file has a Tear, and returns its error. It reads the whole
// file.
func (r *Replay) inspect(name string) error {
	tear, err := tearInFile(r.FS, name)
	if err != nil || tear == nil {
		return nil // Pebble reports an unreadable file itself
	}
	return r.judge(tear)
}

// Unwrap returns the file system below.
func (r *Replay) Unwrap() vfs.FS { return r.FS }
