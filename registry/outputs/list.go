package outputs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/domain"
)

// pageSize is the number of headers in one page of headers.
const pageSize = 256

// All yields the metadata of every stored blob in the order of the settlement IDs,
// without pruned ones. It ends with an [ErrDamaged] at a damaged header.
func (s *Store) All(ctx context.Context) iter.Seq2[domain.Retained, error] {
	return func(yield func(domain.Retained, error) bool) {
		for h, err := range s.headers(ctx) {
			if err == nil && h.state == pruned {
				continue
			}
			if !yield(h.retained, err) {
				return
			}
		}
	}
}

// Unconfirmed yields each settlement with an unconfirmed blob, once, in order.
func (s *Store) Unconfirmed(ctx context.Context) iter.Seq2[domain.EventID, error] {
	return func(yield func(domain.EventID, error) bool) {
		var last domain.EventID
		for h, err := range s.headers(ctx) {
			id := h.retained.Ref.Settlement()
			if err == nil && (h.state != unconfirmed || id == last) {
				continue
			}
			if last = id; !yield(id, err) {
				return
			}
		}
	}
}

// headers yields every header whose Keep has returned nil, in the order of the keys.
// It reads pages of pageSize headers, and holds no lock and no iterator while the
// loop body runs. So it may miss or include blobs that are stored or dropped during
// the loop.
func (s *Store) headers(ctx context.Context) iter.Seq2[blobHeader, error] {
	return func(yield func(blobHeader, error) bool) {
		from, end := []byte{headerKind}, []byte{headerKind + 1}
		for from != nil {
			if ctx.Err() != nil {
				yield(blobHeader{}, context.Cause(ctx))
				return
			}
			headers, next, err := s.readPage(from, end, pageSize)
			for _, h := range headers {
				if !yield(h, nil) {
					return
				}
			}
			if err != nil {
				yield(blobHeader{}, fmt.Errorf("list outputs: %w", err))
				return
			}
			from = next
		}
	}
}

// readPage returns up to n headers with keys in [from, end), without the headers of
// claimed refs. next is the key at which the next page starts, or nil if there is
// none.
func (s *Store) readPage(from, end []byte, n int) (headers []blobHeader, next []byte, err error) {
	err = s.read(func(db *pebble.DB) (err error) {
		iter, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: end})
		if err != nil {
			return redact(err)
		}
		defer iter.Close()
		for iter.First(); iter.Valid() && len(headers) < n; iter.Next() {
			h, err := headerAt(iter)
			if err != nil {
				return err
			}
			headers = append(headers, h)
		}
		if iter.Valid() {
			next = append([]byte(nil), iter.Key()...)
		}
		return corruptionError(iter.Error())
	})
	visible := headers[:0]
	for _, h := range headers {
		if !s.hidden(h.retained.Ref) {
			visible = append(visible, h)
		}
	}
	return visible, next, err
}

// corruptionError returns err with its text hidden, as redact does. If Pebble reports
// a corruption, the result also is an ErrDamaged.
func corruptionError(err error) error {
	if pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %w", ErrDamaged, redact(err))
	}
	return redact(err)
}

// headerAt decodes the header at the position of an iterator. It returns an ErrFormat
// for a header of an unknown format, and an ErrDamaged for any other header that it
// cannot decode.
func headerAt(iter *pebble.Iterator) (blobHeader, error) {
	ref, err := parseHeaderKey(iter.Key())
	if err != nil {
		return blobHeader{}, err
	}
	value, err := iter.ValueAndErr()
	if err != nil {
		return blobHeader{}, corruptionError(err)
	}
	return decodeHeader(ref, value)
}

// Verify reads a whole blob and compares it with its metadata. It returns an
// [ErrDamaged] that names the difference, or an error of [Store.Open].
func (s *Store) Verify(ctx context.Context, ref domain.Ref) error {
	o, err := s.Open(ctx, ref)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	defer o.Close()
	count := NewDigester()
	if err := copyContext(ctx, count, o); err != nil {
		return fmt.Errorf("verify %v: %w", ref, err)
	}
	if got, want := count.Retained(ref, o.Retained().MIME), o.Retained(); got != want {
		return fmt.Errorf("verify %v: %w: it is %d bytes, %d lines, SHA-256 %s, and %d, %d, %s were kept", ref, ErrDamaged,
			got.Bytes, got.Lines, got.SHA256, want.Bytes, want.Lines, want.SHA256)
	}
	return nil
}

// copyContext copies a reader to a writer until the end of the reader. If ctx ends
// first, it returns the cause.
func copyContext(ctx context.Context, to io.Writer, from io.Reader) error {
	p := make([]byte, chunkSize)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := from.Read(p)
		if _, err := to.Write(p[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
