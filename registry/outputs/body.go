package outputs

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// Pebble looks for the bit that flipped when a block, which is a chunk here, is
	// damaged, in a time that grows with the block: minutes where it is a MiB.
	chunkSize = 64 << 10
	inline    = 4 // chunks up to which a body goes through the log, in one batch with its head
)

// A body is the bytes of an output on their way in. One of up to four chunks
// is held, and written with its head in a single batch, which costs one sync.
// A longer one is written as a table beside the database, chunk by chunk, and
// taken in whole: it is written once, where a log, a memtable and compactions
// would write it three times and more, and a full disk meets a file that can
// be removed and not the database.
type body struct {
	store *Store
	id    uint64
	held  [][]byte        // values of the first chunks, while there is no table
	table *sstable.Writer // nil while the body is short
	path  string
	next  uint32
}

func (s *Store) newBody() *body {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.mu.next
	s.mu.next++
	s.mu.writing[id] = struct{}{}
	return &body{store: s, id: id, path: s.incomingPath(id)}
}

// done says that the body has no file any more.
func (b *body) done() {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	delete(b.store.mu.writing, b.id)
}

func (s *Store) underway(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, yes := s.mu.writing[id]
	return yes
}

func (s *Store) incomingPath(id uint64) string {
	return s.fs.PathJoin(s.incoming(), strconv.FormatUint(id, 10)+incomingSuffix)
}

const incomingSuffix = ".body"

// add takes the next chunk: value with room for a checksum before it. It
// returns a value for the chunk after it, which may be the same one.
func (b *body) add(value []byte) ([]byte, error) {
	key := chunkKey(b.id, b.next)
	binary.BigEndian.PutUint32(value, checksum(key, value[crcSize:]))
	b.next++
	if b.table == nil && len(b.held) < inline {
		b.held = append(b.held, value)
		return newChunk(), nil
	}
	if err := b.spill(); err != nil {
		return nil, err
	}
	return value, b.table.Set(key, value)
}

func newChunk() []byte { return make([]byte, crcSize+chunkSize) }

// spill begins the table, if there is none, with the chunks held.
func (b *body) spill() error {
	if b.table != nil {
		return nil
	}
	f, err := b.store.fs.Create(b.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	b.table = sstable.NewWriter(objstorageprovider.NewFileWritable(f), b.store.tableOptions())
	for i, value := range b.held {
		if err := b.table.Set(chunkKey(b.id, uint32(i)), value); err != nil {
			return err
		}
	}
	b.held = nil
	return nil
}

func (s *Store) tableOptions() sstable.WriterOptions {
	lowest := len(s.options.Levels) - 1
	return s.options.MakeWriterOptions(lowest, s.options.FormatMajorVersion.MaxTableFormat())
}

// commit makes the body and its head durable. The head is never durable
// without the body.
func (b *body) commit(ctx context.Context, h head) error {
	if b.table != nil {
		if err := b.ingest(ctx); err != nil {
			return err
		}
	}
	return b.store.write(func(db *pebble.DB) error {
		batch := db.NewBatch()
		defer batch.Close()
		for i, value := range b.held {
			if err := batch.Set(chunkKey(b.id, uint32(i)), value, nil); err != nil {
				return err
			}
		}
		if err := batch.Set(headKey(h.retained.Ref), h.encode(), nil); err != nil {
			return err
		}
		return batch.Commit(pebble.Sync)
	})
}

func (b *body) ingest(ctx context.Context) error {
	table := b.table
	b.table = nil
	if err := table.Close(); err != nil {
		return seal(err)
	}
	return b.store.write(func(db *pebble.DB) error { return db.Ingest(ctx, []string{b.path}) })
}

// drop removes what there is of a body whose head is not on record. What it
// cannot remove, Sweep does.
func (b *body) drop() {
	if b.table != nil {
		_ = b.table.Close() // finishes or gives up; either way the file is closed
	}
	_ = b.store.fs.Remove(b.path)
	if b.next > inline {
		_ = b.store.write(func(db *pebble.DB) error {
			from, to := bodySpan(b.id)
			return db.DeleteRange(from, to, pebble.NoSync)
		})
	}
}

// space returns an ENOSPC if less of the disk is free than is held back. Where
// the file system does not say, there is enough.
func (s *Store) space() error {
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err != nil || usage.AvailBytes >= s.reserve {
		return nil
	}
	return fmt.Errorf("%w: %d bytes are free, and %d are held back", errFull, usage.AvailBytes, s.reserve)
}
