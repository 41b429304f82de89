package pebblefiles

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A Tear is a place in a log or in a manifest behind which Pebble reads nothing,
// and which is not its end: whole records lie behind it, or it is a record in
// which one bit is flipped. Pebble takes it for the end that a power cut left.
type Tear struct {
	File    string
	Offset  int64    // of the first byte that cannot be read
	Certain bool     // the file was damaged: no power cut leaves this
	Before  [][]byte // the records before it
	Behind  [][]byte // the whole records behind it
	why     string
}

// Damage returns the tear as a Damage.
func (t *Tear) Damage() *Damage {
	why := t.why
	if n := len(t.Behind); n > 0 {
		why += fmt.Sprintf(", and %d whole records lie behind it", n)
	}
	return &Damage{File: t.File, Offset: t.Offset, Why: why}
}

// findTear reads a log or a manifest as Pebble does, to where Pebble stops, and
// looks behind that. It returns nil where nothing of it can be damaged.
func findTear(name string, f chunkFile) *Tear {
	t := &Tear{File: name}
	var at int
	at, t.Before, t.why = f.readRecords()
	t.Offset = int64(at)
	t.Certain = at < len(f.data) && f.oneBitFlipped(at)
	if t.Certain {
		t.why += ", in which one bit is flipped"
	}
	f.searchBehind(t)
	if t.Certain || len(t.Behind) > 0 || f.manifest && at < len(f.data) {
		return t
	}
	return nil
}

// readRecords returns the offset at which Pebble stops reading, the records before
// it, and what is there.
func (f chunkFile) readRecords() (at int, records [][]byte, why string) {
	var open assembler
	begun := 0 // where the record begins that is open
	for at < len(f.data) {
		rest := f.data[at:f.blockEnd(at)]
		if len(rest) < chunkHeader {
			if f.blockEnd(at)%blockLen != 0 {
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
			records = append(records, whole)
		}
		at = c.end
	}
	if open.parts != nil && at >= len(f.data) {
		return begun, records, "a record is not whole"
	}
	return at, records, "it cannot be read further"
}

// searchBehind looks behind the tear for chunks of this file, from wherever one may
// begin: the damage may hide how long a chunk is.
func (f chunkFile) searchBehind(t *Tear) {
	var open assembler
	next := int(t.Offset) + 1
	for at := next; at+chunkHeader <= len(f.data); {
		if header := headerLen(f.data[at+encodingAt]); header == 0 || (header == chunkHeader) != f.manifest {
			at++
			continue
		}
		c, ok := f.chunkAt(at)
		if !ok {
			at++
			continue
		}
		if at != next && !f.gap(next, at) {
			open = assembler{}
		}
		if c.synced > uint64(t.Offset) && c.synced <= uint64(at) {
			t.Certain = true
		}
		if whole := open.add(c); whole != nil {
			t.Behind = append(t.Behind, whole)
		}
		at, next = c.end, c.end
	}
}

// gap reports whether nothing but the padding of a block lies between two
// offsets.
func (f chunkFile) gap(from, to int) bool {
	rest := f.data[from:to]
	return to%blockLen == 0 && len(rest) < syncedHeader && (len(rest) < chunkHeader || padding(rest))
}

// An assembler is a record of which the first chunks were read.
type assembler struct {
	parts []byte // nil: none was
}

// add adds a chunk, and returns the record if it is whole with it. A chunk that
// does not follow the one before is left out, as Pebble does.
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

// tearInFile reads a log or a manifest and returns its Tear, or nil. A file that is
// neither has none.
func tearInFile(storage vfs.FS, path string) (*Tear, error) {
	name := storage.PathBase(path)
	f := chunkFile{manifest: KindOf(name) == Manifest}
	if !f.manifest {
		number, err := strconv.ParseUint(strings.TrimSuffix(name, ".log"), 10, 64)
		if KindOf(name) != Log || err != nil {
			return nil, nil
		}
		f.number = uint32(number)
	}
	var err error
	if f.data, err = readFile(storage, path); err != nil {
		return nil, err
	}
	return findTear(name, f), nil
}

// A Replay is a file system to open a database with. It looks into each log and
// manifest that Pebble reads for that, before Pebble does.
type Replay struct {
	vfs.FS
	judge func(*Tear) error
	done  atomic.Bool
}

// NewReplay returns a Replay over a file system. For each [Tear] it calls judge;
// an error that judge returns ends the opening, before anything was changed.
func NewReplay(storage vfs.FS, judge func(*Tear) error) *Replay {
	return &Replay{FS: storage, judge: judge}
}

// Done says that the database is open.
func (r *Replay) Done() { r.done.Store(true) }

// Open is the file system's. It returns what judge did.
func (r *Replay) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if !r.done.Load() {
		if err := r.inspect(name); err != nil {
			return nil, err
		}
	}
	return r.FS.Open(name, options...)
}

func (r *Replay) inspect(name string) error {
	tear, err := tearInFile(r.FS, name)
	if err != nil || tear == nil {
		return nil // what cannot be read, Pebble finds as well
	}
	return r.judge(tear)
}

// Unwrap returns the file system beneath.
func (r *Replay) Unwrap() vfs.FS { return r.FS }
