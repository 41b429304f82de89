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
	// Chunks between two looks at how much of the disk is free.
	spaceEvery = 256
	// Reads that give nothing, in a row, after which a reader is taken for broken.
	emptyReads = 100
)

// Keep reads r to its end and keeps what it gives under ref, of the media type
// mime, as an unconfirmed output, which is durable when Keep returns. It keeps
// all of it or nothing, and needs no more memory for a long output than for
// one of 256 KiB.
//
// A ref that is kept, is being kept, or was pruned is an [ErrExists], and r is
// not read. Any other error is an [ErrNotKept], and says what failed: r, the
// context, the disk.
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

func checkRef(ref domain.Ref) error {
	if ref.Settlement().IsZero() || ref.Channel() != domain.TextChannel && ref.Channel() != domain.StructuredChannel {
		return fmt.Errorf("%w: it names no output", domain.ErrBadRef)
	}
	return nil
}

// A claim is a Keep of a ref.
type claim struct {
	durable bool // and the Keep returns nil
	ended   bool // and the store broke meanwhile
}

// claim hides ref until release. It returns an ErrExists if ref is kept already, or
// another Keep of it runs.
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

// release lets ref be seen if it was kept. If not, and the store is broken, it
// stays hidden until the store goes on: Pebble may hold in memory what the disk does
// not.
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

func (s *Store) unclaim(ref domain.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.claims, ref)
}

// acknowledge says that an output is durable, and that Keep will return nil. The
// database is not closed meanwhile.
func (s *Store) acknowledge(ref domain.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.claims[ref] = claim{durable: true}
}

func (s *Store) hidden(ref domain.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, yes := s.mu.claims[ref]
	return yes
}

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
	retained := count.retained(ref, mime)
	err = b.commit(ctx, blobHeader{retained: retained, state: unconfirmed, blob: b.id, chunk: chunkSize})
	kept = err == nil
	return retained, err
}

// pour reads r to its end, into b, and counts what it gives. An empty output has
// one empty chunk. It leaves chunks in the ring that b holds.
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

// A ring is the chunks of an output that are in memory: a group that a body
// holds, and one that is being read.
type chunkRing [groupChunks + 1]*[crcSize + chunkSize]byte

var chunks = sync.Pool{New: func() any { return new([crcSize + chunkSize]byte) }}

// at returns where the chunk of an index goes: where the one was that is so
// many before it.
func (r *chunkRing) at(index uint32) []byte {
	place := &r[index%uint32(len(r))]
	if *place == nil {
		*place = chunks.Get().(*[crcSize + chunkSize]byte)
	}
	return (*place)[:]
}

// free gives the chunks to the next output. Nothing of them is used any more.
func (r *chunkRing) free() {
	for _, chunk := range r {
		if chunk != nil {
			chunks.Put(chunk)
		}
	}
}

var errReaderEnded = errors.New("end of what is read")

// fill reads until p is full. It returns errEnd once r says that it has come to
// its end, and only then: a reader that was cut short is broken.
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

// An aside counts chunks, all but a first one on a goroutine of its own, as
// SHA-256 takes about as long as writing them: one chunk alone is counted sooner
// than it is handed over. Whoever made it ends it. The zero aside is ready.
type asyncDigester struct {
	count      *Digester
	first      []byte // that is not counted, while there is no goroutine
	chunks     chan []byte
	counted    chan struct{}
	goroutines sync.WaitGroup
	waiting    int // chunks that are added and of which counted was not heard
}

// add counts p, which is not written to before it is counted.
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

// await returns once no more than so many chunks are not counted.
func (a *asyncDigester) await(chunks int) {
	for a.waiting > chunks {
		<-a.counted
		a.waiting--
	}
}

// end waits until all is counted, and returns the count.
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

// A counter measures what is written to it.
type Digester struct {
	bytes, ends int64
	sum         hash.Hash
}

func NewDigester() *Digester { return &Digester{sum: sha256.New()} }

func (c *Digester) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	c.ends += int64(bytes.Count(p, []byte{'\n'}))
	return c.sum.Write(p)
}

func (c *Digester) retained(ref domain.Ref, mime string) domain.Retained {
	return domain.Retained{Ref: ref, Bytes: c.bytes, Lines: c.ends + 1, MIME: mime, SHA256: hex.EncodeToString(c.sum.Sum(nil))}
}
