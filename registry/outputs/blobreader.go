package outputs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/domain"
)

// A BlobReader reads one blob and holds at most one chunk of it in memory. Read and Seek
// share an offset and belong to one goroutine; ReadAt is safe for concurrent use. If the
// blob is dropped or pruned while the reader is open, reads return the error that
// [Store.Open] would return. The caller closes the reader.
type BlobReader struct {
	store  *Store
	header blobHeader  // as of Open
	at     int64       // offset of the next Read
	value  []byte      // bytes of the chunk that Read read last
	index  int64       // number of that chunk; -1: no chunk
	shut   atomic.Bool // Close was called
}

var _ interface {
	io.ReadSeekCloser
	io.ReaderAt
} = (*BlobReader)(nil)

// Open returns a reader of a blob, which the caller closes. It returns an [ErrNotFound]
// for an unknown ref, a [*PrunedError] for a pruned blob, and an [ErrDamaged] if the
// header cannot be read.
func (s *Store) Open(ctx context.Context, ref domain.Ref) (*BlobReader, error) {
	h, err := s.header(ctx, ref)
	if err == nil {
		err = h.tombstone()
	}
	if err != nil {
		return nil, fmt.Errorf("open %v: %w", ref, err)
	}
	return &BlobReader{store: s, header: h, index: -1}, nil
}

// Stat returns the metadata of a blob without reading its bytes. It returns the
// errors of Open. With a [*PrunedError] it also returns the metadata.
func (s *Store) Stat(ctx context.Context, ref domain.Ref) (domain.Retained, error) {
	h, err := s.header(ctx, ref)
	if err == nil {
		err = h.tombstone()
	}
	if err != nil {
		return h.retained, fmt.Errorf("stat %v: %w", ref, err)
	}
	return h.retained, nil
}

// header returns the header of a blob whose Keep has returned nil. It returns an
// ErrNotFound for any other ref, also while a Keep of the ref runs.
func (s *Store) header(ctx context.Context, ref domain.Ref) (h blobHeader, err error) {
	if ctx.Err() != nil {
		return blobHeader{}, context.Cause(ctx)
	}
	err = s.read(func(db *pebble.DB) error {
		h, err = readHeader(db, ref)
		return err
	})
	// Check the claims after the database: in the opposite order, a Keep could begin
	// and write the header between the two checks.
	if err == nil && s.hidden(ref) {
		return blobHeader{}, ErrNotFound
	}
	return h, err
}

// readHeader reads the header under a ref. It does not check claims, so it also finds
// the header of a Keep that has not returned. It returns an ErrNotFound or an
// ErrDamaged.
func readHeader(db *pebble.DB, ref domain.Ref) (blobHeader, error) {
	value, closer, err := db.Get(headerKey(ref))
	if errors.Is(err, pebble.ErrNotFound) {
		return blobHeader{}, ErrNotFound
	}
	if pebble.IsCorruptionError(err) {
		return blobHeader{}, fmt.Errorf("%v: %w: %w", ref, ErrDamaged, redact(err))
	}
	if err != nil {
		return blobHeader{}, redact(err)
	}
	defer closer.Close()
	return decodeHeader(ref, value)
}

// Retained returns the metadata of the blob.
func (o *BlobReader) Retained() domain.Retained { return o.header.retained }

// Close releases the chunk in memory. Reads after Close return an [ErrClosed]. Close
// may be called again. The error is always nil.
func (o *BlobReader) Close() error {
	o.shut.Store(true)
	o.value, o.index = nil, -1
	return nil
}

// Read reads from the current offset. It returns io.EOF at the end, and an [ErrDamaged]
// that names the first unreadable byte. It never returns a byte that differs from the
// stored one.
func (o *BlobReader) Read(p []byte) (int, error) {
	if o.shut.Load() {
		return 0, o.failed(ErrClosed)
	}
	if o.at >= o.header.retained.Bytes {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	index := o.at / int64(o.header.chunk)
	if index != o.index {
		value, err := o.store.chunk(o.header, index, o.value[:0])
		if err != nil {
			o.value, o.index = nil, -1
			return 0, o.failed(err)
		}
		o.value, o.index = value, index
	}
	n := copy(p, o.value[o.at%int64(o.header.chunk):])
	o.at += int64(n)
	return n, nil
}

// Seek sets the offset of the next Read. An offset beyond the end is allowed, a
// negative one is an error.
func (o *BlobReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += o.at
	case io.SeekEnd:
		offset += o.header.retained.Bytes
	default:
		return 0, fmt.Errorf("seek in %v: whence %d is not one of 0, 1, 2", o.header.retained.Ref, whence)
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek in %v: byte %d is before the beginning", o.header.retained.Ref, offset)
	}
	o.at = offset
	return offset, nil
}

// ReadAt reads len(p) bytes at offset off. If it reads fewer it returns the reason:
// io.EOF at the end, otherwise an error of Read.
func (o *BlobReader) ReadAt(p []byte, off int64) (n int, err error) {
	if o.shut.Load() {
		return 0, o.failed(ErrClosed)
	}
	if off < 0 {
		return 0, fmt.Errorf("read %v: byte %d is before the beginning", o.header.retained.Ref, off)
	}
	var value []byte
	for n < len(p) {
		at := off + int64(n)
		if at >= o.header.retained.Bytes {
			return n, io.EOF
		}
		if value, err = o.store.chunk(o.header, at/int64(o.header.chunk), value[:0]); err != nil {
			return n, o.failed(err)
		}
		n += copy(p[n:], value[at%int64(o.header.chunk):])
	}
	return n, nil
}

// failed adds the operation and the ref to an error of a read.
func (o *BlobReader) failed(err error) error {
	return fmt.Errorf("read %v: %w", o.header.retained.Ref, err)
}

// chunk reads a chunk, verifies its checksum, appends its bytes to the argument to, and
// returns the extended slice. If the chunk is missing because the blob was dropped or
// pruned since the header was read, chunk returns an ErrNotFound or a *PrunedError.
func (s *Store) chunk(h blobHeader, index int64, to []byte) ([]byte, error) {
	err := s.read(func(db *pebble.DB) (err error) {
		to, err = chunkIn(db, h, index, to)
		if errors.Is(err, ErrDamaged) {
			err = removedSince(db, h, err)
		}
		return err
	})
	return to, err
}

// chunkIn reads a chunk from the database, appends its bytes to the argument to, and
// returns the extended slice. It returns an ErrDamaged with the offset of the chunk if
// the chunk is missing, has another length or does not match its checksum.
func chunkIn(db *pebble.DB, h blobHeader, index int64, to []byte) ([]byte, error) {
	offset := index * int64(h.chunk)
	key := chunkKey(h.blob, uint32(index))
	value, closer, err := db.Get(key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, damaged(offset, "a chunk is missing")
	case pebble.IsCorruptionError(err):
		return nil, damaged(offset, redact(err).Error())
	case err != nil:
		return nil, redact(err)
	}
	defer closer.Close()
	want := min(int64(h.chunk), h.retained.Bytes-offset)
	if int64(len(value)) != crcSize+want {
		return nil, damaged(offset, fmt.Sprintf("a chunk has %d bytes where %d were kept", len(value)-crcSize, want))
	}
	if binary.BigEndian.Uint32(value) != checksum(key, value[crcSize:]) {
		return nil, damaged(offset, "a chunk does not match its checksum")
	}
	return append(to, value[crcSize:]...), nil
}

// removedSince returns why chunks of the blob with the header h may be missing: an
// ErrNotFound if the blob was dropped, a *PrunedError if it was pruned. If neither is
// the case, it returns the argument otherwise.
func removedSince(db *pebble.DB, h blobHeader, otherwise error) error {
	now, err := readHeader(db, h.retained.Ref)
	switch {
	case errors.Is(err, ErrNotFound):
		return err
	case err == nil && now.state == pruned:
		return now.tombstone()
	case err == nil && now.blob != h.blob:
		return ErrNotFound // a new blob under the same ref
	}
	return otherwise
}
