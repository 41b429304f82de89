package outputs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/domain"
)

const (
	errFull = syscall.ENOSPC
	// The number of chunks after which copyChunks checks the free space again.
	spaceEvery = 256
	// The number of successive reads of 0 bytes after which Keep gives a reader up.
	emptyReads = 100
)

// Keep reads r to its end and stores the bytes under ref, with the media type mime, as
// an unconfirmed blob. It returns after the blob is durable. It stores all bytes or no
// byte. Memory use is bounded by 512 KiB, however long the blob is.
//
// If ref is stored, is being stored or was pruned, Keep returns an [ErrExists] and does
// not read r. Any other error is an [ErrNotKept] that wraps the failure of r, the
// context or the disk.
func (s *Store) Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	retained, err := s.keepClaimed(ctx, ref, mime, r)
	if err != nil && !errors.Is(err, ErrExists) {
		err = fmt.Errorf("%w: %w", ErrNotKept, err)
	}
	if err != nil {
		return domain.Retained{}, fmt.Errorf("keep %v: %w", ref, err)
	}
	return retained, nil
}

// keepClaimed validates the arguments and calls keep while it has a claim of ref.
func (s *Store) keepClaimed(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (_ domain.Retained, err error) {
	if err := checkRef(ref); err != nil {
		return domain.Retained{}, err
	}
	if len(mime) > math.MaxUint16 {
		return domain.Retained{}, fmt.Errorf("media type of %d bytes: the limit is %d", len(mime), math.MaxUint16)
	}
	if err := s.claim(ref); err != nil {
		return domain.Retained{}, err
	}
	kept := false
	defer func() { s.release(ref, kept) }()
	retained, err := s.keep(ctx, ref, mime, r)
	kept = err == nil
	return retained, err
}

// checkRef returns a domain.ErrBadRef for a ref without a settlement or a channel.
func checkRef(ref domain.Ref) error {
	if ref.Settlement().IsZero() || ref.Channel() != domain.TextChannel && ref.Channel() != domain.StructuredChannel {
		return fmt.Errorf("%w: it names no output", domain.ErrBadRef)
	}
	return nil
}

// A claim reserves a ref for one Keep and hides the ref from all reads.
type claim struct {
	durable bool // the blob is durable, and Keep returns nil
	ended   bool // Keep returned an error because the store broke
}

// claim reserves ref until release. It returns an ErrExists if ref is stored or another
// Keep has claimed it.
func (s *Store) claim(ref domain.Ref) error {
	return s.read(func(db *pebble.DB) error {
		if err := s.broken(); err != nil {
			return err
		}
		s.mu.Lock()
		_, taken := s.mu.claims[ref]
		if !taken {
			s.mu.claims[ref] = claim{}
		}
		s.mu.Unlock()
		if taken {
			return ErrExists
		}
		_, closer, err := db.Get(headerKey(ref))
		if errors.Is(err, pebble.ErrNotFound) {
			return nil
		}
		s.unclaim(ref)
		if err != nil {
			return redact(err)
		}
		return errors.Join(ErrExists, closer.Close())
	})
}

// release ends the claim of ref, so that reads see the blob if it was kept. If it was
// not and the store is broken, ref stays hidden until the store resumes: Pebble may
// have the header in memory although it is not on disk.
func (s *Store) release(ref domain.Ref, kept bool) {
	s.handle.RLock() // the store does not go on meanwhile
	defer s.handle.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept || s.failStop.Err() == nil {
		delete(s.mu.claims, ref)
	} else {
		s.mu.claims[ref] = claim{ended: true}
	}
}

// unclaim ends a claim before anything was written.
func (s *Store) unclaim(ref domain.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.claims, ref)
}

// acknowledge marks a claim whose blob is durable, so that a resume keeps the blob. The
// caller has the database open, in Store.write.
func (s *Store) acknowledge(ref domain.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.claims[ref] = claim{durable: true}
}

// hidden reports whether a Keep has a claim of ref, so that reads must not return it.
func (s *Store) hidden(ref domain.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, yes := s.mu.claims[ref]
	return yes
}

// keep writes the blob and discards it after an error.
func (s *Store) keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	b := s.newBlobWriter()
	var ring chunkRing
	defer ring.free()
	kept := false
	defer func() {
		if !kept {
			b.discard()
		}
		b.done()
	}()
	count, err := s.copyChunks(ctx, b, &ring, r)
	if err != nil {
		return domain.Retained{}, err
	}
	retained := count.Retained(ref, mime)
	err = b.commit(ctx, blobHeader{retained: retained, state: unconfirmed, blob: b.id, chunk: chunkSize})
	kept = err == nil
	return retained, err
}

// copyChunks reads r to its end into b and returns the digest of the bytes. An empty
// blob gets one empty chunk. The last chunks stay in ring, where b refers to them,
// until commit.
func (s *Store) copyChunks(ctx context.Context, b *blobWriter, ring *chunkRing, r io.Reader) (*Digester, error) {
	var count asyncDigester
	defer count.end()
	for {
		if b.nextChunk%spaceEvery == 0 {
			if err := s.checkSpace(); err != nil {
				return nil, err
			}
		}
		count.await(len(ring) - 1) // so that the chunk that was here before is counted
		value := ring.at(b.nextChunk)
		n, err := readFull(ctx, r, value[crcSize:])
		if err != nil && !errors.Is(err, errReaderEnded) {
			return nil, err
		}
		if n > 0 || b.nextChunk == 0 {
			count.add(value[crcSize : crcSize+n])
			if broke := b.add(value[:crcSize+n]); broke != nil {
				return nil, redact(broke)
			}
		}
		if err != nil {
			return count.end(), nil
		}
	}
}

// A chunkRing is the ring buffer of a Keep: the chunks of one group that the writer
// refers to, and the chunk that is being read.
type chunkRing [groupChunks + 1]*[crcSize + chunkSize]byte

// chunks pools chunk buffers across Keeps.
var chunks = sync.Pool{New: func() any { return new([crcSize + chunkSize]byte) }}

// at returns the buffer of the chunk number index. It overwrites the chunk that is a
// ring's length before it.
func (r *chunkRing) at(index uint32) []byte {
	place := &r[index%uint32(len(r))]
	if *place == nil {
		*place = chunks.Get().(*[crcSize + chunkSize]byte)
	}
	return (*place)[:]
}

// free returns the buffers to the pool. The caller uses none of them afterwards.
func (r *chunkRing) free() {
	for _, chunk := range r {
		if chunk != nil {
			chunks.Put(chunk)
		}
	}
}

var errReaderEnded = errors.New("end of what is read")

// readFull reads until p is full. It returns errReaderEnded only if r returned io.EOF:
// any other error, io.ErrUnexpectedEOF included, is a failure of r.
func readFull(ctx context.Context, r io.Reader, p []byte) (n int, err error) {
	for empty := 0; n < len(p); {
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		m, err := r.Read(p[n:])
		n += m
		if err == io.EOF {
			return n, errReaderEnded
		}
		if err != nil {
			return n, fmt.Errorf("read it: %w", err)
		}
		if empty++; m > 0 {
			empty = 0
		}
		if empty == emptyReads {
			return n, fmt.Errorf("read it: %w", io.ErrNoProgress)
		}
	}
	return n, nil
}

// An asyncDigester computes the digest of chunks. The first chunk is hashed by end; if
// there is a second, a goroutine hashes all of them while the caller writes, since
// SHA-256 takes about as long as writing. The caller calls end. The zero value is
// ready.
type asyncDigester struct {
	count      *Digester
	first      []byte // that is not counted, while there is no goroutine
	chunks     chan []byte
	counted    chan struct{}
	goroutines sync.WaitGroup
	waiting    int // chunks that are added and of which counted was not heard
}

// add hands over p, which the caller does not change until await says that it is
// hashed.
func (a *asyncDigester) add(p []byte) {
	if a.waiting++; a.waiting == 1 && a.chunks == nil {
		a.first = p
		return
	}
	if a.chunks == nil {
		a.begin()
	}
	a.chunks <- p
}

// begin starts the goroutine, which end joins.
func (a *asyncDigester) begin() {
	a.count = NewDigester()
	a.chunks, a.counted = make(chan []byte, len(chunkRing{})), make(chan struct{}, len(chunkRing{}))
	a.goroutines.Go(func() {
		for p := range a.chunks {
			_, _ = a.count.Write(p) // it takes everything
			a.counted <- struct{}{}
		}
	})
	a.chunks <- a.first
}

// await blocks until at most the given number of chunks are not hashed yet.
func (a *asyncDigester) await(chunks int) {
	for a.waiting > chunks {
		<-a.counted
		a.waiting--
	}
}

// end waits for the goroutine and returns the digest of all chunks.
func (a *asyncDigester) end() *Digester {
	switch {
	case a.chunks != nil:
		close(a.chunks)
		a.goroutines.Wait()
		a.chunks = nil
	case a.count == nil:
		a.count = NewDigester()
		_, _ = a.count.Write(a.first) // it takes everything
	}
	return a.count
}

// A Digester computes the metadata of the bytes written to it: length, lines and
// SHA-256.
type Digester struct {
	bytes, ends int64
	sum         hash.Hash
}

// NewDigester returns a Digester of no bytes.
func NewDigester() *Digester { return &Digester{sum: sha256.New()} }

// Write adds p. It never fails.
func (c *Digester) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	c.ends += int64(bytes.Count(p, []byte{'\n'}))
	return c.sum.Write(p)
}

// Bytes returns the number of bytes written.
func (c *Digester) Bytes() int64 { return c.bytes }

// Sum returns the SHA-256 of the bytes written.
func (c *Digester) Sum() []byte { return c.sum.Sum(nil) }

// Retained returns the metadata of the bytes written as those of a blob.
func (c *Digester) Retained(ref domain.Ref, mime string) domain.Retained {
	return domain.Retained{Ref: ref, Bytes: c.bytes, Lines: c.ends + 1, MIME: mime, SHA256: hex.EncodeToString(c.sum.Sum(nil))}
}
