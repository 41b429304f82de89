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
	// chunkSize is the number of bytes in each chunk but the last. When a block (here
	// a chunk) is damaged, Pebble searches for the flipped bit, in a time that grows
	// faster than the block: minutes for a block of 1 MiB.
	chunkSize    = 64 << 10
	groupChunks  = 4  // chunks in one batch
	loggedChunks = 16 // chunks of a blob that go through the WAL, which is faster for a short blob
	// writeOut is the number of bytes after which writeback starts, so that the disk
	// writes while Keep reads.
	writeOut = 256 << 10
)

// A blobWriter writes the bytes of one blob. It treats the beginning of a blob and the
// rest differently.
//
// The first 16 chunks go through the WAL, four in each batch. The batch of the last
// group also has the header, and its sync makes the earlier batches durable. So a short
// blob costs one sync.
//
// The writer streams all further chunks to an sstable next to the database, which the
// database ingests as a whole. So these chunks are written once. Through the WAL, the
// memtable and compactions they would be written three times and more. On a full disk
// only the write of this sstable fails, and the file can be removed.
//
// In both cases the header is written last, so a blob without a header is incomplete and
// Sweep may delete it. The caller calls commit or discard, and then done. A blobWriter
// belongs to one goroutine.
type blobWriter struct {
	store      *Store
	generation int64           // of the database to which the first chunks were written
	id         uint64          // number of the blob, in the keys of its chunks
	buffered   [][]byte        // values of the last chunks, at most a group, not yet in a batch
	stored     bool            // the database may have chunks of the blob
	table      *sstable.Writer // nil while the blob has at most loggedChunks chunks
	path       string          // of the sstable under incoming
	nextChunk  uint32          // number of the next chunk
}

// newBlobWriter assigns the next blob number. It lists the blob as being written, so
// that Sweep does not delete its file, until the caller calls done.
func (s *Store) newBlobWriter() *blobWriter {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.mu.nextBlob
	s.mu.nextBlob++
	s.mu.writing[id] = struct{}{}
	return &blobWriter{store: s, generation: s.generation.Load(), id: id, path: s.incomingPath(id)}
}

// done removes the blob from the list of blobs that are being written. The caller
// calls it when the blob has no file under incoming any more.
func (b *blobWriter) done() {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	delete(b.store.mu.writing, b.id)
}

// isWriting reports whether a Keep may still write the file of a blob.
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

// incomingSuffix is the end of the file names under incoming; the rest is the blob
// number.
const incomingSuffix = ".body"

// add adds the next chunk of the blob. value is crcSize free bytes, which add fills
// with the checksum, and then the bytes of the chunk. The caller must not change
// value until the group of the chunk is written, or until commit. If add returns an
// error, the blob cannot be stored, and the caller must call discard.
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

// writeGroup commits the buffered chunks without a sync. The sync of commit makes
// them durable, because it covers all earlier bytes of the WAL.
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

// batch returns a batch with the buffered chunks, which are the last ones before the
// chunk number nextChunk. The caller closes the batch.
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

// openTable creates the sstable of the blob, unless the blob has one.
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

// tableOptions returns the options of an sstable under incoming. It has no
// compression, which would take longer than all other work on a long blob.
func (s *Store) tableOptions() sstable.WriterOptions {
	lowest := len(s.options.Levels) - 1
	o := s.options.MakeWriterOptions(lowest, s.options.FormatMajorVersion.MaxTableFormat())
	o.Compression = sstable.NoCompression
	return o
}

// commit makes the blob and its header durable. It ingests the sstable first, and
// then writes the last group and the header in one synced batch, so the header is
// never durable without the chunks. It marks the claim of the ref as durable before
// it returns nil.
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

// write calls do with the database, as Store.write does. If the database was reopened
// after the writer wrote the first chunks of the blob, these chunks may be lost. Then
// write returns an ErrBroken and does not call do.
func (b *blobWriter) write(do func(*pebble.DB) error) error {
	return b.store.write(func(db *pebble.DB) error {
		if b.generation != b.store.generation.Load() {
			return fmt.Errorf("%w: a write failed since its first bytes were kept", ErrBroken)
		}
		return do(db)
	})
}

// ingest finishes the sstable, which makes it durable, and moves it into the
// database.
func (b *blobWriter) ingest(ctx context.Context) error {
	table := b.table
	b.table = nil
	if err := table.Close(); err != nil {
		return redact(err)
	}
	b.stored = true
	return b.write(func(db *pebble.DB) error { return db.Ingest(ctx, []string{b.path}) })
}

// discard deletes the chunks and the file of a blob that has no durable header. It
// ignores errors: after a crash or an error, a later Sweep deletes the remains.
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

// checkSpace returns an ENOSPC if less than the reserve of the disk is free. The
// reserve leaves space for the database, which stops at a full disk. A file system
// that reports a size of 0, such as ramfs and some FUSE file systems, is taken to
// have space.
func (s *Store) checkSpace() error {
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err != nil || usage == (vfs.DiskUsage{}) || usage.AvailBytes >= s.reserve {
		return nil
	}
	return fmt.Errorf("%w: %d bytes are free, and %d are held back", errFull, usage.AvailBytes, s.reserve)
}
