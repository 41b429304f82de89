package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// A ServerConfig configures the handler of Serve. The zero ServerConfig allows all
// requests.
type ServerConfig struct {
	// Authorize returns an error to refuse a request. Requests with GET and HEAD read;
	// all others change the store. The client does not receive the text of the error.
	// Nil: all requests are allowed, which is safe only for clients on this machine.
	// Authorize is called concurrently.
	Authorize func(*http.Request) error
	// Limit is the greatest size of a blob in bytes. Zero: the disk is the only limit.
	Limit int64
	// IdleTimeout is the time after which the handler ends the request of an idle
	// client. Zero: 30 s.
	IdleTimeout time.Duration
}

// Serve returns a handler that serves a store to clients, at paths below /. It rejects
// cross-origin requests of browsers. The caller owns the store, and stops serving
// before it closes the store. The handler starts no goroutine.
func Serve(store *outputs.Store, s ServerConfig) http.Handler {
	if s.IdleTimeout == 0 {
		s.IdleTimeout = 30 * time.Second
	}
	n := &server{store: store, ServerConfig: s}
	mux := http.NewServeMux()
	for pattern, do := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/outputs/{settlement}/{channel}":        n.get,
		"PUT /v1/outputs/{settlement}/{channel}":        n.keep,
		"POST /v1/outputs/{settlement}/{channel}/prune": n.prune,
		"POST /v1/settlements/{settlement}/confirm":     n.confirm,
		"DELETE /v1/settlements/{settlement}":           n.drop,
		"GET /v1/outputs":                               n.all,
		"GET /v1/unconfirmed":                           n.unconfirmed,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := do(w, r); err != nil {
				writeError(w, err)
			}
		})
	}
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(protocolHeader, protocol)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if err := origins.Check(r); err != nil || n.Authorize != nil && n.Authorize(r) != nil {
			w.Header().Set("WWW-Authenticate", `Basic realm="outputs of a ledger", charset="UTF-8"`)
			writeError(w, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, ErrDenied))
			return
		}
		mux.ServeHTTP(&deadlineWriter{w, http.NewResponseController(w), n.IdleTimeout}, r)
	})
}

// A server handles the requests for one store. Its handlers return an error only
// before they have written a response.
type server struct {
	ServerConfig
	store *outputs.Store
}

// writeError writes an error response. It removes the headers that describe a blob.
func writeError(w http.ResponseWriter, err error) {
	text, status := encodeError(err)
	for _, name := range []string{retainedHeader, digestHeader, "Content-Length", "ETag", "Repr-Digest"} {
		w.Header().Del(name)
	}
	w.Header().Set(errorHeader, text)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, truncate(err.Error())) // a client that is gone needs no text; others read the header
}

// A deadlineWriter sets a write deadline for each part of a response, so that a client
// that stops reading does not block the handler forever.
type deadlineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// Unwrap gives http.ResponseController access to the connection.
func (p *deadlineWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write writes data in parts of 64 KiB, each within the timeout.
func (p *deadlineWriter) Write(data []byte) (written int, err error) {
	for written < len(data) && err == nil {
		_ = p.control.SetWriteDeadline(time.Now().Add(p.timeout)) // a connection without deadlines works as well
		n := 0
		n, err = p.ResponseWriter.Write(data[written:min(len(data), written+64<<10)])
		written += n
	}
	return written, err
}

// refOf returns the blob that the path of a request names, or a domain.ErrBadRef.
func refOf(r *http.Request) (domain.Ref, error) {
	return domain.ParseRef("output://" + r.PathValue("settlement") + "/" + r.PathValue("channel"))
}

// settlementOf returns the settlement that the path of a request names, or a
// domain.ErrBadRef.
func settlementOf(r *http.Request) (domain.EventID, error) {
	var id domain.EventID
	if err := id.UnmarshalText([]byte(r.PathValue("settlement"))); err != nil || id.IsZero() {
		return id, errors.Join(fmt.Errorf("%q: %w: it has no settlement ID", r.PathValue("settlement"), domain.ErrBadRef), err)
	}
	return id, nil
}

// setHeaders sets the headers that describe a blob.
func setHeaders(w http.ResponseWriter, retained domain.Retained) {
	w.Header().Set(retainedHeader, encodeRetained(retained))
	w.Header().Set("Content-Type", "application/octet-stream") // so that no browser interprets the output of a tool
	w.Header().Set("ETag", etag(retained))
	if sum, err := hex.DecodeString(retained.SHA256); err == nil {
		w.Header().Set("Repr-Digest", encodeDigest(sum))
	}
}

// etag returns the entity tag of a blob: its SHA-256 in quotation marks.
func etag(retained domain.Retained) string { return `"` + retained.SHA256 + `"` }

// get handles GET and HEAD of a blob. The response to a range of at most one page has a
// digest. http.ServeContent sends other ranges and whole blobs. If the request has an
// If-Match with another digest than the blob, get returns an outputs.ErrNotFound.
func (n *server) get(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		retained, err := n.store.Stat(r.Context(), ref)
		if err != nil {
			return err
		}
		setHeaders(w, retained)
		w.Header().Set("Accept-Ranges", "bytes")
		w.Header().Set("Content-Length", strconv.FormatInt(retained.Bytes, 10))
		return nil
	}
	o, err := n.store.Open(r.Context(), ref)
	if err != nil {
		return err
	}
	defer o.Close()
	if match := r.Header.Get("If-Match"); match != "" && match != "*" && match != etag(o.Retained()) {
		return fmt.Errorf("read %v: %w: another output has its name", ref, outputs.ErrNotFound)
	}
	if from, to, ok := pageRange(r.Header.Get("Range"), o.Retained().Bytes); ok && r.Header.Get("If-Range") == "" {
		return servePage(w, o, from, to)
	}
	setHeaders(w, o.Retained())
	http.ServeContent(w, r, "", time.Time{}, o) // an error in the middle ends the connection before the promised length
	return nil
}

// pageRange parses a range of at most one page: the bytes from the offset from up to,
// but not including, the offset to. ok is false for other ranges, which
// http.ServeContent handles.
func pageRange(header string, size int64) (from, to int64, ok bool) {
	first, last, two := strings.Cut(strings.TrimPrefix(header, "bytes="), "-")
	from, err := strconv.ParseInt(first, 10, 64)
	to, err2 := strconv.ParseInt(last, 10, 64)
	if !two || err != nil || err2 != nil || !strings.HasPrefix(header, "bytes=") || from < 0 || from > to || from >= size || to-from >= pageSize {
		return 0, 0, false
	}
	return from, min(to+1, size), true
}

// pages pools page buffers across requests.
var pages = sync.Pool{New: func() any { return new([pageSize]byte) }}

// servePage writes the bytes of a blob between the offsets from (inclusive) and to
// (exclusive), with their digest. If some of these bytes are damaged, it writes only
// the bytes before the damage. If the first byte is damaged, it writes nothing and
// returns the error.
func servePage(w http.ResponseWriter, o *outputs.BlobReader, from, to int64) error {
	page := pages.Get().(*[pageSize]byte)
	defer pages.Put(page)
	n, err := o.ReadAt(page[:to-from], from)
	if n == 0 {
		return err
	}
	setHeaders(w, o.Retained())
	sum := sha256.Sum256(page[:n])
	w.Header().Set(digestHeader, encodeDigest(sum[:]))
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, from+int64(n)-1, o.Retained().Bytes))
	w.Header().Set("Content-Length", strconv.Itoa(n))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(page[:n]) // a client detects a cut by the length
	return nil
}

// confirm handles POST of a confirmation.
func (n *server) confirm(w http.ResponseWriter, r *http.Request) error {
	return n.change(w, r, n.store.Confirm)
}

// drop handles DELETE of a settlement's blobs.
func (n *server) drop(w http.ResponseWriter, r *http.Request) error {
	return n.change(w, r, n.store.Drop)
}

// change calls do with the settlement in the path, and responds without content.
func (n *server) change(w http.ResponseWriter, r *http.Request, do func(context.Context, domain.EventID) error) error {
	id, err := settlementOf(r)
	if err == nil {
		err = do(r.Context(), id)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// prune handles POST of a pruning. The response has the metadata of the pruned blob.
func (n *server) prune(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	at, err := time.Parse(time.RFC3339Nano, query.Get("at"))
	if err != nil {
		return fmt.Errorf("prune %v: %w", ref, err)
	}
	retained, err := n.store.Prune(r.Context(), ref, query.Get("policy"), at)
	if err == nil {
		setHeaders(w, retained)
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// all handles GET of the list of blobs. Each line has the metadata of one blob.
func (n *server) all(w http.ResponseWriter, r *http.Request) error {
	return writeList(w, n.store.All(r.Context()), encodeRetained)
}

// unconfirmed handles GET of the list of unconfirmed settlements.
func (n *server) unconfirmed(w http.ResponseWriter, r *http.Request) error {
	return writeList(w, n.store.Unconfirmed(r.Context()), domain.EventID.String)
}

// writeList writes one value of list on each line. The last line says that the list is
// complete, or has the error that ended the list. The status 200 is sent before the
// values, so a later error cannot change it.
func writeList[T any](w http.ResponseWriter, list iter.Seq2[T, error], line func(T) string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	last := listEnd
	for v, err := range list {
		text := ""
		if err != nil {
			text, _ = encodeError(err)
			last = listError + text
			break
		}
		if _, err := io.WriteString(w, line(v)+"\n"); err != nil {
			return nil //nolint:nilerr // the client is gone
		}
	}
	_, _ = io.WriteString(w, last+"\n")
	return nil
}

// keep handles PUT of a blob. The body returns io.EOF to the store only after its
// digest was verified, so the store discards a blob that was cut or changed in transit.
func (n *server) keep(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r)
	if err != nil {
		return err
	}
	mime, err := url.QueryUnescape(r.Header.Get(mimeHeader))
	if err != nil {
		return fmt.Errorf("keep %v: media type: %w", ref, err)
	}
	in := &uploadBody{request: r, control: http.NewResponseController(w), timeout: n.IdleTimeout, limit: n.Limit, count: outputs.NewDigester()}
	retained, err := n.store.Keep(r.Context(), ref, mime, in)
	if err != nil {
		in.reject(w, err)
		return nil
	}
	setHeaders(w, retained)
	w.WriteHeader(http.StatusCreated)
	return nil
}

// An uploadBody reads the body of a PUT. It returns io.EOF only if the digest of the
// bytes equals the digest in the trailer or the header.
type uploadBody struct {
	request *http.Request
	control *http.ResponseController
	// timeout limits each Read.
	timeout time.Duration
	// limit is ServerConfig.Limit.
	limit int64
	// count computes the digest.
	count *outputs.Digester
	// started is set when the store has begun to read the body. Before that, the client
	// may still wait for a 100 Continue.
	started bool
}

// Read reads within the timeout. It returns an ErrTooLarge as soon as the body exceeds
// the limit, and an ErrChecksum for a digest that is missing or differs.
func (in *uploadBody) Read(p []byte) (int, error) {
	in.started = true
	_ = in.control.SetReadDeadline(time.Now().Add(in.timeout)) // a connection without deadlines works as well
	n, err := in.request.Body.Read(p)
	_, _ = in.count.Write(p[:n]) // Write of a Digester never fails
	if in.limit > 0 && in.count.Bytes() > in.limit {
		return 0, fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, in.limit)
	}
	if err == io.EOF {
		_ = in.control.SetReadDeadline(time.Time{})
		if sum := in.count.Sum(); !hasDigest(in.request.Trailer.Get(digestHeader), sum) && !hasDigest(in.request.Header.Get(digestHeader), sum) {
			return n, fmt.Errorf("%w: its digest is not the %s that was sent with it", ErrChecksum, digestHeader)
		}
	}
	return n, err
}

// reject writes an error response before the request has been read to its end. It then
// reads and discards the rest of the body, until the client has sent no data for the
// timeout. If the connection were closed with unread data, the kernel would reset it,
// and the client might lose the response.
func (in *uploadBody) reject(w http.ResponseWriter, err error) {
	_ = in.control.EnableFullDuplex() // HTTP/2 is full duplex and returns an error
	if in.request.ProtoMajor == 1 {   // a connection of HTTP/2 has other requests too
		w.Header().Set("Connection", "close")
	}
	writeError(w, err)
	if !in.started {
		return
	}
	if in.control.Flush() == nil && in.control.SetReadDeadline(time.Now().Add(in.timeout)) == nil {
		_, _ = io.Copy(io.Discard, in.request.Body)
	}
}
