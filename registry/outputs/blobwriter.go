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
	// When a block (here a chunk) is damaged, Pebble searches for the flipped bit, in a
	// time that grows faster than the block: minutes for one of 1 MiB.
	chunkSize    = 64 << 10
	groupChunks  = 4  // chunks in one batch
	loggedChunks = 16 // chunks of a blob that go through the WAL, which is faster for short blobs
	// The number of bytes after which writeback starts, so that the disk writes while
	// Keep reads.
	writeOut = 256 << 10
)

// A blobWriter writes the bytes of one blob. The first chunks go through the WAL, a
// group in each batch; the batch of the last group also has the header, and its one
// sync makes the earlier batches durable. So a short blob costs one sync. The writer
// streams all further chunks to an sstable next to the database, which the database
// ingests as a whole: they are written once instead of three times and more through
// WAL, memtable and compactions, and on a full disk only a file fails, which can be
// removed.
//
// The caller calls commit or discard, and then done. A blobWriter belongs to one
// goroutine.
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

// newBlobWriter assigns the next blob number. The caller calls done.
func (s *Store) newBlobWriter() *blobWriter {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.mu.nextBlob
	s.mu.nextBlob++
	s.mu.writing[id] = struct{}{}
	return &blobWriter{store: s, generation: s.generation.Load(), id: id, path: s.incomingPath(id)}
}

// done reports that the blob has no file under incoming any more.
func (b *blobWriter) done() {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	delete(b.store.mu.writing, b.id)
}

// isWriting reports whether a Keep may be writing the file of a blob.
func (s *Store) isWriting(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, yes := s.mu.writing[id]
	return yes
}

// incomingPath returns the path of the sstable of a blob before its ingestion.
func (s *Store) incomingPath(id uint64) string {
	return s.fs.PathJoin(s.incoming(), strconv.FormatUint(id, 10)+incomingSuffix)
}

const incomingSuffix = ".body"

// add takes the next chunk, a value whose first crcSize bytes are reserved for the
// checksum. The writer uses value until the group after it is added, or until commit.
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

// writeGroup commits the buffered chunks without a sync. They become durable with the
// header.
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

// batch returns a batch of the buffered chunks, which are the latest before nextChunk.
// The caller closes it.
func (b *blobWriter) batch(db *pebble.DB) (*pebble.Batch, error) {
	const room = 1 << 10 // bytes for the keys and the header
	batch := db.NewBatchWithSize(room + len(b.buffered)*(crcSize+chunkSize))
	first := b.nextChunk - uint32(len(b.buffered))
	for i, value := range b.buffered {
		if err := batch.Set(chunkKey(b.id, first+uint32(i)), value, nil); err != nil {
			return nil, errors.Join(err, batch.Close())
		}
	}
	return batch, nil
}

// openTable creates the sstable of the blob if there is none.
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

// tableOptions returns options without compression, which would take longer than all
// other work on a long blob.
func (s *Store) tableOptions() sstable.WriterOptions {
	lowest := len(s.options.Levels) - 1
	o := s.options.MakeWriterOptions(lowest, s.options.FormatMajorVersion.MaxTableFormat())
	o.Compression = sstable.NoCompression
	return o
}

// commit makes the blob and its header durable. The header is never durable without the
// chunks.
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

// write calls do like Store.write. It returns an ErrBroken if the database was reopened
// since the blob's first chunks were written, which may be lost.
func (b *blobWriter) write(do func(*pebble.DB) error) error {
	return b.store.write(func(db *pebble.DB) error {
		if b.generation != b.store.generation.Load() {
			return fmt.Errorf("%w: a write failed since its first bytes were kept", ErrBroken)
		}
		return do(db)
	})
}

// ingest finishes the sstable and moves it into the database.
func (b *blobWriter) ingest(ctx context.Context) error {
	table := b.table
	b.table = nil
	if err := table.Close(); err != nil {
		return redact(err)
	}
	b.stored = true
	return b.write(func(db *pebble.DB) error { return db.Ingest(ctx, []string{b.path}) })
}

// discard deletes the chunks and the file of a blob that has no durable header. Sweep
// deletes the rest if discard fails.
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

// checkSpace returns an ENOSPC if less than the reserve of the disk is free. A file
// system that reports a size of 0, such as ramfs and some FUSE file systems, is taken
// to have space.
func (s *Store) checkSpace() error {
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err != nil || usage == (vfs.DiskUsage{}) || usage.AvailBytes >= s.reserve {
		return nil
	}
	return fmt.Errorf("%w: %d bytes are free, and %d are held back", errFull, usage.AvailBytes, s.reserve)
}
