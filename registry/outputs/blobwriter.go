package outputs

import (
	"context"
	"encoding/binary"
	"errors"
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
	chunkSize    = 64 << 10
	groupChunks  = 4  // chunks in one batch
	loggedChunks = 16 // chunks of a body that go through the log; up to here that is faster
	// Bytes after which the disk is told to begin writing, so that it writes while
	// more is read.
	writeOut = 256 << 10
)

// A body is the bytes of an output on their way in. Its first chunks go through
// the log, a group in each batch; the last group goes with the head, and the one
// sync that this takes makes durable what came before. So a short one costs one
// sync. What follows is written as a table beside the database, chunk by chunk,
// and taken in whole: it is written once, where a log, a memtable and compactions
// would write it three times and more, and a full disk meets a file that can
// be removed and not the database.
type blobWriter struct {
	store      *Store
	generation int64 // of the database in which its first chunks are
	id         uint64
	buffered   [][]byte        // values of the chunks that come next in the log
	stored     bool            // a group is in the log, or the table in the database
	table      *sstable.Writer // nil while the body is short
	path       string
	nextChunk  uint32
}

func (s *Store) newBlobWriter() *blobWriter {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.mu.nextBlob
	s.mu.nextBlob++
	s.mu.writing[id] = struct{}{}
	return &blobWriter{store: s, generation: s.generation.Load(), id: id, path: s.incomingPath(id)}
}

// done says that the body has no file any more.
func (b *blobWriter) done() {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	delete(b.store.mu.writing, b.id)
}

func (s *Store) isWriting(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, yes := s.mu.writing[id]
	return yes
}

func (s *Store) incomingPath(id uint64) string {
	return s.fs.PathJoin(s.incoming(), strconv.FormatUint(id, 10)+incomingSuffix)
}

const incomingSuffix = ".body"

// add takes the next chunk: value with room for a checksum before it. It may hold
// on to value until a group of chunks that come after is added, or to the commit.
func (b *blobWriter) add(value []byte) error {
	key := chunkKey(b.id, b.nextChunk)
	binary.BigEndian.PutUint32(value, checksum(key, value[crcSize:]))
	if len(b.buffered) == groupChunks || b.nextChunk == loggedChunks {
		if err := b.writeGroup(); err != nil {
			return err
		}
	}
	b.nextChunk++
	if b.nextChunk <= loggedChunks {
		b.buffered = append(b.buffered, value)
		return nil
	}
	if err := b.openTable(); err != nil {
		return err
	}
	return b.table.Set(key, value)
}

// log writes the chunks held. They are durable when the head is.
func (b *blobWriter) writeGroup() error {
	if len(b.buffered) == 0 {
		return nil
	}
	b.stored = true
	return b.write(func(db *pebble.DB) error {
		batch, err := b.batch(db)
		if err != nil {
			return err
		}
		defer batch.Close()
		b.buffered = b.buffered[:0]
		return batch.Commit(pebble.NoSync)
	})
}

// batch returns a batch of the chunks held, which are the last before next.
func (b *blobWriter) batch(db *pebble.DB) (*pebble.Batch, error) {
	const room = 1 << 10 // for what stands beside chunks, and for a head
	batch := db.NewBatchWithSize(room + len(b.buffered)*(crcSize+chunkSize))
	first := b.nextChunk - uint32(len(b.buffered))
	for i, value := range b.buffered {
		if err := batch.Set(chunkKey(b.id, first+uint32(i)), value, nil); err != nil {
			return nil, errors.Join(err, batch.Close())
		}
	}
	return batch, nil
}

// spill begins the table, if there is none.
func (b *blobWriter) openTable() error {
	if b.table != nil {
		return nil
	}
	f, err := b.store.fs.Create(b.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	f = vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: writeOut})
	b.table = sstable.NewWriter(objstorageprovider.NewFileWritable(f), b.store.tableOptions())
	return nil
}

// tableOptions are without compression, which takes longer than everything else
// that is done with a long output.
func (s *Store) tableOptions() sstable.WriterOptions {
	lowest := len(s.options.Levels) - 1
	o := s.options.MakeWriterOptions(lowest, s.options.FormatMajorVersion.MaxTableFormat())
	o.Compression = sstable.NoCompression
	return o
}

// commit makes the body and its head durable. The head is never durable
// without the body.
func (b *blobWriter) commit(ctx context.Context, h blobHeader) error {
	if b.table != nil {
		if err := b.ingest(ctx); err != nil {
			return err
		}
	}
	return b.write(func(db *pebble.DB) error {
		batch, err := b.batch(db)
		if err != nil {
			return err
		}
		defer batch.Close()
		if err := batch.Set(headerKey(h.retained.Ref), h.encode(), nil); err != nil {
			return err
		}
		if err := batch.Commit(pebble.Sync); err != nil || b.store.broken() != nil {
			return err
		}
		b.store.acknowledge(h.retained.Ref)
		return nil
	})
}

// write is the store's, for the database that has the first chunks of the body.
func (b *blobWriter) write(do func(*pebble.DB) error) error {
	return b.store.write(func(db *pebble.DB) error {
		if b.generation != b.store.generation.Load() {
			return fmt.Errorf("%w: a write failed since its first bytes were kept", ErrBroken)
		}
		return do(db)
	})
}

func (b *blobWriter) ingest(ctx context.Context) error {
	table := b.table
	b.table = nil
	if err := table.Close(); err != nil {
		return redact(err)
	}
	b.stored = true
	return b.write(func(db *pebble.DB) error { return db.Ingest(ctx, []string{b.path}) })
}

// drop removes what there is of a body whose head is not on record. What it
// cannot remove, Sweep does.
func (b *blobWriter) discard() {
	if b.table != nil {
		_ = b.table.Close() // finishes or gives up; either way the file is closed
	}
	_ = b.store.fs.Remove(b.path)
	if b.stored {
		_ = b.store.write(func(db *pebble.DB) error {
			from, to := chunkSpan(b.id)
			return db.DeleteRange(from, to, pebble.NoSync)
		})
	}
}

// space returns an ENOSPC if less of the disk is free than is held back. Where
// the file system has no figures there is enough: ramfs and some FUSE file
// systems report a size of 0.
func (s *Store) checkSpace() error {
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err != nil || usage == (vfs.DiskUsage{}) || usage.AvailBytes >= s.reserve {
		return nil
	}
	return fmt.Errorf("%w: %d bytes are free, and %d are held back", errFull, usage.AvailBytes, s.reserve)
}
