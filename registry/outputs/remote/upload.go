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

// An Upload stores one blob. If the process that serves the store dies, the caller can
// try again with the store of the next process. An Upload belongs to one goroutine.
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

// NewUpload returns the upload of a blob. The blob has the bytes of r from the current
// offset of r on. The Upload allows several attempts if r is an io.Seeker. The caller
// does not use r before the last Try has returned.
func NewUpload(ref domain.Ref, mime string, r io.Reader) *Upload {
	u := &Upload{ref: ref, mime: mime, r: r}
	if seeker, ok := r.(io.Seeker); ok {
		if start, err := seeker.Seek(0, io.SeekCurrent); err == nil {
			u.seeker, u.start = seeker, start
		}
	}
	return u
}

// Try stores the blob in one store. It succeeds if an earlier attempt has stored the
// same bytes in that store. A second call returns an outputs.ErrNotKept if r cannot
// seek. Try returns an outputs.ErrExists if the store has other bytes for the blob's
// reference.
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

// rewind seeks r to the offset that r had when NewUpload was called. It returns an
// outputs.ErrNotKept if r cannot seek.
func (u *Upload) rewind() error {
	if u.seeker == nil {
		return fmt.Errorf("keep %v: %w: the process that was storing it ended, and its source can be read only once", u.ref, outputs.ErrNotKept)
	}
	_, err := u.seeker.Seek(u.start, io.SeekStart)
	return err
}

// compareStored returns the metadata of the stored blob if the stored bytes equal the
// bytes of r. If they differ, it returns its argument exists. It reads r to its end.
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
