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

// pageSize is how many heads are read at once; between pages nothing is held.
const pageSize = 256

// All yields everything that is kept, in the order of the settlements' IDs, and
// nothing that was pruned. A record that is damaged ends it with an
// [ErrDamaged].
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

// Unconfirmed yields each settlement that has an output which is unconfirmed,
// once.
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

// heads yields every head that was acknowledged, in the order of the keys. No
// lock and no iterator is open while the caller has it.
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

// page returns up to n heads from a key on, and the key to go on from, which
// is nil at the end.
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

func corruptionError(err error) error {
	if pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %w", ErrDamaged, redact(err))
	}
	return redact(err)
}

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

// Verify reads a whole output and compares it with what is known of it. It
// returns an [ErrDamaged] that says what differs, and otherwise the errors of
// Open.
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
	if got, want := count.retained(ref, o.Retained().MIME), o.Retained(); got != want {
		return fmt.Errorf("verify %v: %w: it is %d bytes, %d lines, SHA-256 %s, and %d, %d, %s were kept", ref, ErrDamaged,
			got.Bytes, got.Lines, got.SHA256, want.Bytes, want.Lines, want.SHA256)
	}
	return nil
}

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
