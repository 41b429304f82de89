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
	// errFull is the cause of an ErrNotKept on a full disk.
	errFull = syscall.ENOSPC
	// spaceEvery is the number of chunks after which copyChunks checks the free space
	// again.
	spaceEvery = 256
	// emptyReads is the number of successive reads of 0 bytes after which Keep
	// returns io.ErrNoProgress.
	emptyReads = 100
)

// Keep reads r to its end and stores the bytes under ref, with the media type mime,
// as an unconfirmed blob. It returns the metadata of the blob after the blob is
// durable. It stores all bytes or no byte. It uses at most 512 KiB of memory, however
// long the blob is.
//
// If ref is stored, is being stored or was pruned, Keep returns an [ErrExists] and
// does not read r. Any other error is an [ErrNotKept] that wraps the error of r, of
// ctx or of the disk. The caller may then call Keep with the same ref again. If a
// write of the database failed, that call succeeds only after the store has resumed
// or was opened again.
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

// keepClaimed validates the arguments, claims ref, and calls keep while it has the
// claim.
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

// A claim reserves a ref for one Keep. While the claim exists, no other Keep can use the
// ref, and reads do not see the blob, although its header may already be in the
// database. mu of the Store guards the claims.
type claim struct {
	durable bool // the blob is durable, so Keep returns nil
	ended   bool // Keep has returned an error and the store is broken; a resume removes the claim
}

// claim reserves ref until the caller calls release. It returns an ErrExists if ref is
// stored or another Keep has claimed it. It sets the claim before it reads the header,
// so that of two concurrent calls at most one succeeds.
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

// release ends the claim of ref. If the blob was kept, reads now see it. If it was
// not kept and the store is broken, the claim stays until the store resumes: Pebble
// may have the header in memory although the header is not on the disk.
func (s *Store) release(ref domain.Ref, kept bool) {
	s.handle.RLock() // so that the store does not resume now
	defer s.handle.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept || s.failStop.Err() == nil {
		delete(s.mu.claims, ref)
	} else {
		s.mu.claims[ref] = claim{ended: true}
	}
}

// unclaim ends a new claim of ref, because ref is stored already or its header cannot
// be read.
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

// hidden reports whether ref has a claim. Reads must not return the blob of a claimed
// ref, because its Keep may still fail.
func (s *Store) hidden(ref domain.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, yes := s.mu.claims[ref]
	return yes
}

// keep writes the blob. After an error it discards the written chunks.
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

// copyChunks reads r to its end, adds the chunks to b and returns the digest of the
// bytes. An empty blob gets one empty chunk. The last chunks stay in the buffers of
// ring until commit, because b refers to them.
//
// A buffer of ring is used again after len(ring) further chunks. Before that,
// copyChunks waits until the earlier chunk in the buffer is hashed. b has then
// written the group of that chunk, because a group has fewer chunks than ring has
// buffers.
func (s *Store) copyChunks(ctx context.Context, b *blobWriter, ring *chunkRing, r io.Reader) (*Digester, error) {
	var count asyncDigester
	defer count.end()
	for {
		if b.nextChunk%spaceEvery == 0 {
			if err := s.checkSpace(); err != nil {
				return nil, err
			}
		}
		count.await(len(ring) - 1) // the earlier chunk in this buffer must be hashed
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

// A chunkRing is the ring of buffers of a Keep: one for each chunk of the group to
// which the writer refers, and one for the chunk that is being read.
type chunkRing [groupChunks + 1]*[crcSize + chunkSize]byte

// chunks pools chunk buffers across Keeps.
var chunks = sync.Pool{New: func() any { return new([crcSize + chunkSize]byte) }}

// at returns the buffer for the chunk whose number is index. The chunk with the number
// index-len(r) had the same buffer, and the caller must no longer need its bytes.
func (r *chunkRing) at(index uint32) []byte {
	place := &r[index%uint32(len(r))]
	if *place == nil {
		*place = chunks.Get().(*[crcSize + chunkSize]byte)
	}
	return (*place)[:]
}

// free returns the buffers to the pool. The caller must not use a buffer afterwards.
func (r *chunkRing) free() {
	for _, chunk := range r {
		if chunk != nil {
			chunks.Put(chunk)
		}
	}
}

// errReaderEnded is the result of readFull at the end of the reader.
var errReaderEnded = errors.New("end of what is read")

// readFull reads from r until p is full, and returns the number of bytes read. At the
// end of r it returns errReaderEnded. It wraps any other error of r, also an
// io.ErrUnexpectedEOF. It returns io.ErrNoProgress after emptyReads successive reads
// of 0 bytes, and the cause of ctx if ctx ends.
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

// An asyncDigester computes the digest of chunks. Hashing takes about as long as
// writing, so from the second chunk on a goroutine hashes while the caller writes. If
// there is only one chunk, the method end hashes it, without a goroutine. The caller
// must call end. The zero value is ready.
type asyncDigester struct {
	count      *Digester
	first      []byte        // the first chunk, until there is a goroutine
	chunks     chan []byte   // to the goroutine; nil until it is started
	counted    chan struct{} // from the goroutine, one value for each hashed chunk
	goroutines sync.WaitGroup
	waiting    int // chunks that were added and whose value was not received from counted
}

// add adds the chunk p to the digest. The goroutine may hash p later, so the caller
// must not change p until await or end shows that it is hashed.
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

// await waits until at most the given number of chunks are not hashed yet.
func (a *asyncDigester) await(chunks int) {
	for a.waiting > chunks {
		<-a.counted
		a.waiting--
	}
}

// end joins the goroutine, if there is one, and returns the digest of all chunks. It
// may be called again.
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

// A Digester computes the metadata of the bytes that are written to it: length, lines
// and SHA-256. It belongs to one goroutine.
type Digester struct {
	bytes, ends int64 // bytes, and line ends among them
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

// Retained returns the metadata of a blob that consists of the bytes written so far.
// The number of lines is the number of line ends plus one.
func (c *Digester) Retained(ref domain.Ref, mime string) domain.Retained {
	return domain.Retained{Ref: ref, Bytes: c.bytes, Lines: c.ends + 1, MIME: mime, SHA256: hex.EncodeToString(c.sum.Sum(nil))}
}
