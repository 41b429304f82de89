package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// An Upload stores one blob, possibly in several attempts at different stores, for a
// caller whose store may be replaced when the process that serves it dies. It belongs
// to one goroutine.
type Upload struct {
	ref  domain.Ref
	mime string
	// r is the caller's reader. Its offset is start when the upload begins.
	r io.Reader
	// seeker is r if it can seek. Nil: r can be read once.
	seeker io.Seeker
	start  int64
	// tries counts the calls of Try.
	tries int
}

// NewUpload returns the upload of a blob with the bytes of r, from its current offset
// on. It allows several attempts if r is an io.Seeker. The caller does not use r
// before the last Try has returned.
func NewUpload(ref domain.Ref, mime string, r io.Reader) *Upload {
	u := &Upload{ref: ref, mime: mime, r: r}
	if seeker, ok := r.(io.Seeker); ok {
		if start, err := seeker.Seek(0, io.SeekCurrent); err == nil {
			u.seeker, u.start = seeker, start
		}
	}
	return u
}

// Try stores the blob in the store at. If an earlier attempt stored the same bytes
// there, Try succeeds. A second Try returns an outputs.ErrNotKept if r cannot be read
// again, and an outputs.ErrExists if the store has other bytes under the name.
func (u *Upload) Try(ctx context.Context, at BlobStore) (domain.Retained, error) {
	if u.tries++; u.tries == 1 {
		return at.Keep(ctx, u.ref, u.mime, u.r)
	}
	if err := u.rewind(); err != nil {
		return domain.Retained{}, err
	}
	retained, err := at.Keep(ctx, u.ref, u.mime, u.r)
	if errors.Is(err, outputs.ErrExists) {
		return u.compareStored(ctx, at, err)
	}
	return retained, err
}

// rewind seeks r to its offset at NewUpload. It returns an outputs.ErrNotKept if r
// cannot seek.
func (u *Upload) rewind() error {
	if u.seeker == nil {
		return fmt.Errorf("keep %v: %w: the process that was storing it ended, and its source can be read only once", u.ref, outputs.ErrNotKept)
	}
	_, err := u.seeker.Seek(u.start, io.SeekStart)
	return err
}

// compareStored returns the metadata of the stored blob if the blob has the bytes of
// r, and otherwise the error exists. It reads r to its end.
func (u *Upload) compareStored(ctx context.Context, at BlobStore, exists error) (domain.Retained, error) {
	retained, err := at.Stat(ctx, u.ref)
	if err != nil {
		return domain.Retained{}, err
	}
	if err := u.rewind(); err != nil {
		return domain.Retained{}, err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, u.r); err != nil {
		return domain.Retained{}, err
	}
	if hex.EncodeToString(sum.Sum(nil)) != retained.SHA256 {
		return domain.Retained{}, exists
	}
	return retained, nil
}
