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

// Keep is [outputs.Store.Keep] at the node. It retries an attempt that failed in
// transit if nothing of r was read, if r was read to its end and the node can say
// whether it has the blob, or if r is an io.Seeker, which Keep then rewinds to its
// offset at the call. Any other failed attempt is an outputs.ErrNotKept and an
// [ErrUnreachable].
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

// keep is Keep without the text of the operation in its errors.
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

// A keepOperation is the state of one Keep across its attempts.
type keepOperation struct {
	client    *Client
	ref       domain.Ref
	mime      string
	r         io.Reader
	seeker    io.Seeker
	start     int64
	uncertain bool             // an attempt failed in transit: the node may have the blob
	consumed  bool             // bytes of r were read
	complete  *domain.Retained // metadata of all bytes of r, once r was read to its end
}

// attempt sends the blob once.
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
	case readErr != nil: // of r
		return domain.Retained{}, readErr
	case err == nil && (k.complete == nil || retained != *k.complete):
		return domain.Retained{}, fmt.Errorf("node %s: %w: it kept %d bytes with SHA-256 %s", k.client.address, ErrChecksum, retained.Bytes, retained.SHA256)
	case err != nil && retryable(err):
		k.uncertain = true
	}
	return retained, err
}

// resolve is called after an attempt failed in transit. It asks the node whether the
// blob was stored, and otherwise rewinds r for the next attempt. It reports whether the
// operation is over, with its result.
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

// emptyReads is the number of successive reads of 0 bytes after which Keep gives a
// reader up.
const emptyReads = 100

// A requestBody streams a reader as the body of a PUT and appends the digest as a
// trailer. The transport reads it on a goroutine of its own, until detach.
type requestBody struct {
	ctx     context.Context // of the Keep
	idle    *idleTimer
	trailer http.Header
	count   *outputs.Digester
	started bool // once it is taken
	ended   bool // once it is taken
	mu      struct {
		sync.Mutex
		r       io.Reader // nil after detach
		readErr error     // error of r
		empty   int
	}
}

var errDetached = errors.New("the output is not sent any more")

// Read reads from the caller's reader. The idle timer is paused meanwhile, since a slow
// reader is no fault of the node.
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
	_, _ = o.count.Write(p[:n]) // it never fails
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

// Close does nothing: the caller owns the reader.
func (o *requestBody) Close() error { return nil }

// detach waits for a running Read and prevents later ones, so that Keep can return. It
// returns the error of the reader.
func (o *requestBody) detach() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.r = nil
	return o.mu.readErr
}
