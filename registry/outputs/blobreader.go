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

// An Output is a kept output, open to be read chunk by chunk. It holds no more
// than one chunk in memory. Read and Seek share a place in the output and are
// for one goroutine; ReadAt is for any number of them. An output that was
// dropped or pruned meanwhile says so, as Open would.
type BlobReader struct {
	store  *Store
	header blobHeader
	at     int64
	value  []byte // the chunk that was read last
	index  int64  // of that chunk
	shut   atomic.Bool
}

var _ interface {
	io.ReadSeekCloser
	io.ReaderAt
} = (*BlobReader)(nil)

// Open opens an output to read. It returns an [ErrNotFound] for one that is not
// kept, a [*Pruned] for one that was, and an [ErrDamaged] if what is known of
// it cannot be read. The caller closes the output.
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

// Stat returns what is known of an output, without its bytes. Its errors are
// those of Open; for a pruned output it returns what is known of it beside the
// [*Pruned].
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

// head returns the head of an output that was acknowledged.
func (s *Store) header(ctx context.Context, ref domain.Ref) (h blobHeader, err error) {
	if ctx.Err() != nil {
		return blobHeader{}, context.Cause(ctx)
	}
	err = s.read(func(db *pebble.DB) error {
		h, err = readHeader(db, ref)
		return err
	})
	// What is in the database and not being kept was acknowledged; looked at the
	// other way round, a Keep could come between.
	if err == nil && s.hidden(ref) {
		return blobHeader{}, ErrNotFound
	}
	return h, err
}

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

// Retained returns what is known of the output.
func (o *BlobReader) Retained() domain.Retained { return o.header.retained }

// Close ends the reading; to read on is an [ErrClosed]. A second Close does
// nothing.
func (o *BlobReader) Close() error {
	o.shut.Store(true)
	o.value, o.index = nil, -1
	return nil
}

// Read reads on from where the last Read or Seek ended. It returns io.EOF at the
// end and an [ErrDamaged] that says from which byte on there is nothing to be
// trusted; no byte that is not the one kept is ever given.
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

// Seek says where the next Read begins. Beyond the end there is nothing to
// read, and before the beginning is an error.
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

// ReadAt reads len(p) bytes from byte off on, or says with an error why it read
// fewer: io.EOF at the end, else as Read.
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

func (o *BlobReader) failed(err error) error {
	return fmt.Errorf("read %v: %w", o.header.retained.Ref, err)
}

// chunk appends the bytes of a chunk to to, having checked them.
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
		return nil, damaged(offset, "the checksum of a chunk is wrong")
	}
	return append(to, value[crcSize:]...), nil
}

// gone returns the reason why the chunks of h may be missing: it was dropped or
// pruned since it was opened. If it was not, it returns otherwise.
func removedSince(db *pebble.DB, h blobHeader, otherwise error) error {
	now, err := readHeader(db, h.retained.Ref)
	switch {
	case errors.Is(err, ErrNotFound):
		return err
	case err == nil && now.state == pruned:
		return now.tombstone()
	case err == nil && now.blob != h.blob:
		return ErrNotFound // another output has its name
	}
	return otherwise
}
