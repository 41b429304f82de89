package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// Keep is [outputs.Store.Keep] at the node. An attempt fails in transit if the
// connection breaks or the response is lost. After such an attempt:
//
//   - If r was read to its end, Keep asks the node for the metadata of the blob. It
//     succeeds if the node has stored the same bytes.
//   - If no byte of r was read, Keep repeats the attempt.
//   - If r is an io.Seeker, Keep seeks r to the offset that r had when Keep was called,
//     and repeats the attempt.
//
// If none of these applies, Keep returns an error that matches outputs.ErrNotKept and
// usually [ErrUnreachable]. The node may then have the blob, unconfirmed.
func (c *Client) Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	retained, err := c.keep(ctx, ref, mime, r)
	if err != nil && !errors.Is(err, outputs.ErrExists) && !errors.Is(err, outputs.ErrNotKept) {
		err = fmt.Errorf("%w: %w", outputs.ErrNotKept, err)
	}
	if err != nil {
		return domain.Retained{}, fmt.Errorf("keep %v: %w", ref, err)
	}
	return retained, nil
}

// keep is Keep without the operation's name in its errors.
func (c *Client) keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	if err := valid(ref); err != nil {
		return domain.Retained{}, err
	}
	if len(mime) > math.MaxUint16 {
		return domain.Retained{}, fmt.Errorf("media type of %d bytes: the limit is %d", len(mime), math.MaxUint16)
	}
	k := keepOperation{client: c, ref: ref, mime: mime, r: r}
	if s, ok := r.(io.Seeker); ok {
		if start, err := s.Seek(0, io.SeekCurrent); err == nil {
			k.seeker, k.start = s, start
		}
	}
	wait := c.newBackoff()
	for {
		retained, err := k.attempt(ctx)
		if err == nil || !k.uncertain || !retryable(err) && !errors.Is(err, outputs.ErrExists) || !wait(ctx) {
			return retained, err
		}
		if retained, done, err := k.resolve(ctx, err); done {
			return retained, err
		}
	}
}

// A keepOperation is the state of one Keep across its attempts. The goroutine of the
// caller owns it.
//
// The node stores a blob only once. If it stored the blob and the response was lost, a
// repeated attempt would fail with ErrExists. After an attempt that failed in transit,
// Keep therefore asks for the metadata of the stored blob, and compares them with the
// metadata of the bytes that it sent.
type keepOperation struct {
	client *Client
	ref    domain.Ref
	mime   string
	r      io.Reader
	// seeker is r if r can seek, and start is the offset that r had when Keep was
	// called. Nil: r can be read only once.
	seeker io.Seeker
	start  int64
	// uncertain is set after an attempt failed in transit: the node may have stored the
	// blob.
	uncertain bool
	// consumed is set when bytes of r were read.
	consumed bool
	// complete has the metadata of all bytes of r. Nil: r was not yet read to its end.
	complete *domain.Retained
}

// attempt sends the blob once. It returns the error of r if reading r failed, an
// ErrChecksum if the node stored other bytes than r has, and otherwise the error of the
// request.
func (k *keepOperation) attempt(ctx context.Context) (retained domain.Retained, err error) {
	out := &requestBody{ctx: ctx, count: outputs.NewDigester()}
	out.mu.r = k.r
	header := http.Header{mimeHeader: {url.QueryEscape(k.mime)}, "Expect": {"100-continue"}, "Content-Type": {"application/octet-stream"}}
	err = k.client.attempt(ctx, request{method: http.MethodPut, path: pathOf(k.ref), header: header, body: out}, func(h http.Header, _ io.Reader) (err error) {
		retained, err = k.client.retained(k.ref, h)
		return err
	})
	readErr := out.detach()
	k.consumed = k.consumed || out.started
	if out.ended {
		complete := out.count.Retained(k.ref, k.mime)
		k.complete = &complete
	}
	switch {
	case readErr != nil: // an error of the caller's reader
		return domain.Retained{}, readErr
	case err == nil && (k.complete == nil || retained != *k.complete):
		return domain.Retained{}, fmt.Errorf("node %s: %w: it kept %d bytes with SHA-256 %s", k.client.address, ErrChecksum, retained.Bytes, retained.SHA256)
	case err != nil && retryable(err):
		k.uncertain = true
	}
	return retained, err
}

// resolve decides how Keep continues after the error failed, with which an attempt
// failed in transit. If all bytes were sent, it first asks the node whether the blob
// was stored. It returns true, and the result of Keep, if Keep is over. Otherwise it
// rewinds r for another attempt and returns false.
func (k *keepOperation) resolve(ctx context.Context, failed error) (domain.Retained, bool, error) {
	if k.complete != nil {
		kept, err := k.client.stat(ctx, k.ref)
		switch {
		case err == nil && kept == *k.complete:
			return kept, true, nil
		case err == nil:
			return domain.Retained{}, true, fmt.Errorf("node %s: %w with another content", k.client.address, outputs.ErrExists)
		case !errors.Is(err, outputs.ErrNotFound):
			return domain.Retained{}, true, err
		}
	}
	if !k.consumed {
		return domain.Retained{}, false, nil
	}
	if k.seeker == nil {
		return domain.Retained{}, true, failed
	}
	if _, err := k.seeker.Seek(k.start, io.SeekStart); err != nil {
		return domain.Retained{}, true, errors.Join(failed, fmt.Errorf("read it again: %w", err))
	}
	return domain.Retained{}, false, nil
}

// emptyReads is the number of successive reads of 0 bytes without an error after which
// Keep fails with io.ErrNoProgress.
const emptyReads = 100

// A requestBody streams a reader as the body of a PUT and appends the digest as a
// trailer. The transport reads it on a goroutine of its own, until detach.
type requestBody struct {
	// ctx is the context of the Keep.
	ctx context.Context
	// idle and trailer are set for each attempt by newRequest.
	idle    *idleTimer
	trailer http.Header
	// count computes the digest and the metadata of the bytes read.
	count *outputs.Digester
	// started is set when the reader was read. It may be read after detach.
	started bool
	// ended is set when the reader was read to its end. It may be read after detach.
	ended bool
	mu    struct {
		sync.Mutex
		// r is the caller's reader. Nil: detach was called.
		r io.Reader
		// readErr is the error of r.
		readErr error
		// empty counts the successive reads of 0 bytes.
		empty int
	}
}

// errDetached is the error of a Read after detach. The transport sees it; no caller
// does.
var errDetached = errors.New("the output is not sent any more")

// Read reads from the caller's reader. Read holds mu meanwhile, so that detach waits
// for Read. The idle timer is paused, since a slow reader is no fault of the node.
func (o *requestBody) Read(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.r == nil {
		return 0, errDetached
	}
	o.idle.pause()
	defer o.idle.begin()
	if o.ctx.Err() != nil {
		return 0, context.Cause(o.ctx)
	}
	o.started = true
	n, err := o.mu.r.Read(p)
	_, _ = o.count.Write(p[:n]) // Write of a Digester never fails
	if o.mu.empty++; n > 0 {
		o.mu.empty = 0
	}
	switch {
	case err == io.EOF:
		o.ended = true
		o.trailer.Set(digestHeader, encodeDigest(o.count.Sum()))
	case err == nil && o.mu.empty == emptyReads:
		err = io.ErrNoProgress
		fallthrough
	case err != nil:
		err = fmt.Errorf("read it: %w", err)
		o.mu.readErr = err
	}
	return n, err
}

// Close has no effect: the caller of Keep owns the reader.
func (o *requestBody) Close() error { return nil }

// detach waits for a running Read and makes later ones fail. When it has returned, the
// transport no longer uses the caller's reader, so Keep can return. detach returns the
// error of the reader, or nil.
func (o *requestBody) detach() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.r = nil
	return o.mu.readErr
}
