package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// alterResponse has the node respond and changes the response.
func alterResponse(node http.Handler, change func(http.Header, []byte) []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		said := &recordedResponse{header: http.Header{}, status: http.StatusOK}
		node.ServeHTTP(said, r)
		body := change(said.header, said.body.Bytes())
		for name, values := range said.header {
			w.Header()[name] = values
		}
		w.WriteHeader(said.status)
		_, _ = w.Write(body)
	}
}

type recordedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (n *recordedResponse) Header() http.Header         { return n.header }
func (n *recordedResponse) WriteHeader(status int)      { n.status = status }
func (n *recordedResponse) Write(p []byte) (int, error) { return n.body.Write(p) }

func flip(p []byte) []byte {
	p = bytes.Clone(p)
	p[len(p)/2] ^= 1
	return p
}

// A flippingReader flips one bit of the bytes read through it.
type flippingReader struct {
	io.ReadCloser
	done bool
}

func (f *flippingReader) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if n > 0 && !f.done {
		f.done = true
		p[n/2] ^= 1
	}
	return n, err
}

// A page that was changed in transit is requested again.
func TestChangedPageIsReadAgain(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	r, content := refs(1)(), random(3*pageSize+5, 1)
	mustKeep(t, Local(s), r, content)
	node := Serve(s, ServerConfig{})
	for name, spoil := range map[string]http.HandlerFunc{
		"flipped": alterResponse(node, func(_ http.Header, p []byte) []byte { return flip(p) }),
		"shorter than it says": alterResponse(node, func(h http.Header, p []byte) []byte {
			return p[:len(p)-1]
		}),
		"without a digest": alterResponse(node, func(h http.Header, p []byte) []byte {
			h.Del(digestHeader)
			return p
		}),
		"cut": func(w http.ResponseWriter, _ *http.Request) { hangUp(w) },
	} {
		once := clientOf(t, serve(t, withProxy(node, func(n int64, r *http.Request) http.HandlerFunc {
			if r.Method == http.MethodGet && n%2 == 1 {
				return spoil
			}
			return nil
		})), Config{})
		if !bytes.Equal(readAll(t, once, r), content) {
			t.Errorf("%s: it reads back as another", name)
		}
		always := clientOf(t, serve(t, withProxy(node, func(n int64, r *http.Request) http.HandlerFunc {
			if r.Method == http.MethodGet && n > 2 {
				return spoil
			}
			return nil
		})), Config{Retry: 100 * time.Millisecond})
		o, err := always.Open(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(o)
		if !errors.Is(err, ErrChecksum) && !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: read = %v, want an error", name, err)
		}
		if !bytes.Equal(got, content[:2*pageSize]) {
			t.Errorf("%s: %d bytes were read, want the %d before it", name, len(got), 2*pageSize)
		}
		_ = o.Close()
	}
}

// If a node changes bytes together with their digest, a sequential read returns
// ErrDamaged in place of the last page.
func TestNodeThatLiesIsFoundOut(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	r, content := refs(1)(), random(2*pageSize+5, 1)
	mustKeep(t, Local(s), r, content)
	node := Serve(s, ServerConfig{})
	liar := clientOf(t, serve(t, withProxy(node, func(n int64, r *http.Request) http.HandlerFunc {
		if r.Method != http.MethodGet || n != 2 {
			return nil
		}
		return alterResponse(node, func(h http.Header, p []byte) []byte {
			p = flip(p)
			sum := sha256.Sum256(p)
			h.Set(digestHeader, encodeDigest(sum[:]))
			return p
		})
	})), Config{})
	o, err := liar.Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(o)
	wantErr(t, "read", err, outputs.ErrDamaged)
	if len(got) != 2*pageSize {
		t.Errorf("%d bytes were read, want no byte of the last page", len(got))
	}
}

// A malformed response is an ErrNotANode.
func TestNodeThatSaysNonsenseIsNotANode(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	ref := refs(1)
	r, other := ref(), ref()
	mustKeep(t, Local(s), r, []byte("kept"))
	node := Serve(s, ServerConfig{})
	for name, change := range map[string]func(http.Header){
		"another output": func(h http.Header) { h.Set(retainedHeader, encodeRetained(retainedOf(other, nil))) },
		"no output":      func(h http.Header) { h.Del(retainedHeader) },
		"an odd error":   func(h http.Header) { h.Set(errorHeader, "%zz") },
		"an odd tombstone": func(h http.Header) {
			h.Set(errorHeader, url.Values{"text": {"x"}, "is": {"pruned"}, "retained": {"x"}}.Encode())
		},
		"another version": func(h http.Header) { h.Set(protocolHeader, "2") },
		"no version":      func(h http.Header) { h.Del(protocolHeader) },
	} {
		c := clientOf(t, serve(t, withProxy(node, func(int64, *http.Request) http.HandlerFunc {
			return alterResponse(node, func(h http.Header, p []byte) []byte { change(h); return p })
		})), Config{})
		_, err := c.Stat(t.Context(), r)
		wantErr(t, name+": Stat", err, ErrNotANode)
	}
	for name, change := range map[string]func(http.Header, []byte) []byte{
		"another range": func(h http.Header, p []byte) []byte { h.Set("Content-Range", "bytes 1-4/4"); return p },
		"no range":      func(h http.Header, p []byte) []byte { h.Del("Content-Range"); return p },
		"too much": func(h http.Header, p []byte) []byte {
			h.Set("Content-Length", "5")
			h.Set("Content-Range", "bytes 0-4/4")
			return append(bytes.Clone(p), 'x')
		},
	} {
		c := clientOf(t, serve(t, withProxy(node, func(_ int64, r *http.Request) http.HandlerFunc {
			if r.Method == http.MethodGet {
				return alterResponse(node, change)
			}
			return nil
		})), Config{})
		wantErr(t, name+": Verify", c.Verify(t.Context(), r), ErrNotANode)
	}
}

// An upload that was changed in transit is not stored.
func TestChangedUploadIsNotKept(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	node := Serve(s, ServerConfig{})
	ref := refs(1)
	address := func(until int64) string {
		return serve(t, withProxy(node, func(n int64, r *http.Request) http.HandlerFunc {
			if r.Method == http.MethodPut && n <= until {
				r.Body = &flippingReader{ReadCloser: r.Body}
			}
			return nil
		}))
	}
	for _, size := range []int{1, chunkSize, repeats(pageSize+1, 3*pageSize)} {
		r, content := ref(), random(size, 1)
		mustKeep(t, clientOf(t, address(2), Config{Retry: time.Minute}), r, content)
		if !bytes.Equal(readAll(t, Local(s), r), content) {
			t.Errorf("an output of %d bytes, changed twice on the way, is kept as another", size)
		}
		r = ref()
		_, err := clientOf(t, address(1000), Config{Retry: 100 * time.Millisecond}).Keep(t.Context(), r, mime, bytes.NewReader(content))
		wantErr(t, "Keep", err, ErrChecksum)
		wantErr(t, "Keep", err, outputs.ErrNotKept)
		wantNothing(t, s, r)
		_, err = clientOf(t, address(1), Config{}).Keep(t.Context(), r, mime, onlyReader{bytes.NewReader(content)})
		wantErr(t, "Keep of what cannot be read again", err, ErrChecksum)
		wantNothing(t, s, r)
	}
}

// An upload without a digest is not stored.
func TestUploadWithoutDigestIsNotKept(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	address := serve(t, Serve(s, ServerConfig{}))
	r := refs(1)()
	put := func(digest string) int {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPut, address+pathOf(r), strings.NewReader("abc"))
		if err != nil {
			t.Fatal(err)
		}
		if digest != "" {
			q.Header.Set(digestHeader, digest)
		}
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		return a.StatusCode
	}
	if got := put(""); got != http.StatusBadRequest {
		t.Errorf("PUT without a digest = %d, want 400", got)
	}
	wantNothing(t, s, r)
	sum := sha256.Sum256([]byte("abc"))
	if got := put("md5=:AAAA:, " + encodeDigest(sum[:])); got != http.StatusCreated {
		t.Errorf("PUT with a digest before it = %d, want 201", got)
	}
}

// If the response to Keep was lost, the client asks the node for the blob, and Keep
// succeeds without a second upload.
func TestLostAnswerIsAskedFor(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	node := Serve(s, ServerConfig{})
	ref := refs(1)
	losing := func() *Client {
		return clientOf(t, serve(t, withProxy(node, func(n int64, r *http.Request) http.HandlerFunc {
			if n == 1 && r.Method != http.MethodHead {
				return loseResponse(node)
			}
			return nil
		})), Config{})
	}
	for _, content := range [][]byte{nil, []byte("x"), random(2*pageSize, 1)} {
		for _, in := range []io.Reader{bytes.NewReader(content), onlyReader{bytes.NewReader(content)}} {
			r := ref()
			got, err := losing().Keep(t.Context(), r, mime, in)
			if want := retainedOf(r, content); err != nil || got != want {
				t.Errorf("Keep = %+v, %v, want %+v", got, err, want)
			}
		}
	}
	r := ref()
	want := mustKeep(t, losing(), r, []byte("text"))
	at := time.UnixMilli(1_700_000_000_000).UTC()
	c := losing()
	if got, err := c.Prune(t.Context(), r, "old", at); err != nil || got != want {
		t.Errorf("Prune whose answer is lost = %+v, %v, want %+v", got, err, want)
	}
	_, err := losing().Prune(t.Context(), r, "older", at)
	wantErr(t, "Prune by another policy", err, outputs.ErrPruned)
	if err := losing().Drop(t.Context(), r.Settlement()); err != nil {
		t.Errorf("Drop whose answer is lost = %v, want nil", err)
	}
}

// If another blob was stored under the ref while the response was lost, Keep returns
// an ErrExists.
func TestLostAnswerIsNotTakenForAnother(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	node := Serve(s, ServerConfig{})
	r := refs(1)()
	c := clientOf(t, serve(t, withProxy(node, func(n int64, q *http.Request) http.HandlerFunc {
		if n > 1 || q.Method != http.MethodPut {
			return nil
		}
		return func(w http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			mustKeep(t, Local(s), r, []byte("other"))
			hangUp(w)
		}
	})), Config{})
	_, err := c.Keep(t.Context(), r, mime, strings.NewReader("mine"))
	wantErr(t, "Keep", err, outputs.ErrExists)
	if got := readAll(t, c, r); string(got) != "other" {
		t.Errorf("it reads %q, want the other", got)
	}
}

// hangUpAfter aborts a request after so many bytes.
func hangUpAfter(node http.Handler, after int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(r.Body, after), callback(func() { panic(http.ErrAbortHandler) })), r.Body}
		node.ServeHTTP(w, r)
	}
}

type callback func()

func (c callback) Read([]byte) (int, error) {
	c()
	return 0, io.EOF
}

// An upload that was cut is repeated if its reader can seek, and otherwise Keep
// returns ErrNotKept.
func TestCutUploadIsMadeAgainWhereItCan(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	node := Serve(s, ServerConfig{})
	ref := refs(1)
	content := random(5*pageSize, 1)
	cutting := func() *Client {
		return clientOf(t, serve(t, withProxy(node, func(n int64, r *http.Request) http.HandlerFunc {
			if n < 3 && r.Method == http.MethodPut {
				return hangUpAfter(node, 3*pageSize)
			}
			return nil
		})), Config{Retry: time.Minute})
	}
	in := bytes.NewReader(append([]byte("head"), content...))
	_, _ = in.Seek(4, io.SeekStart)
	r := ref()
	got, err := cutting().Keep(t.Context(), r, mime, in)
	if want := retainedOf(r, content); err != nil || got != want {
		t.Errorf("Keep = %+v, %v, want %+v", got, err, want)
	}
	r = ref()
	_, err = cutting().Keep(t.Context(), r, mime, onlyReader{bytes.NewReader(content)})
	wantErr(t, "Keep of what cannot be read again", err, ErrUnreachable)
	wantErr(t, "Keep of what cannot be read again", err, outputs.ErrNotKept)
	checkNotKept(t, clientOf(t, serve(t, node), Config{}), s, r)
}

// A list that was cut continues after the last value that it yielded.
func TestCutListGoesOn(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	node := Serve(s, ServerConfig{})
	ref := refs(1)
	var want []string
	for range repeats(100, 400) {
		r := ref()
		mustKeep(t, Local(s), r, []byte("x"))
		want = append(want, r.String())
	}
	truncate := func(h http.Header, p []byte) []byte { return p[:len(p)*2/3] }
	c := clientOf(t, serve(t, withProxy(node, func(n int64, _ *http.Request) http.HandlerFunc {
		if n%3 != 0 {
			return alterResponse(node, truncate)
		}
		return nil
	})), Config{})
	var got []string
	for r, err := range c.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Ref.String())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("All yields %d, want %d in order and each once", len(got), len(want))
	}
	for range c.Unconfirmed(t.Context()) {
		break
	}
	always := clientOf(t, serve(t, withProxy(node, func(int64, *http.Request) http.HandlerFunc { return alterResponse(node, truncate) })), Config{Retry: 50 * time.Millisecond})
	n, failed := 0, error(nil)
	for _, err := range always.All(t.Context()) {
		if failed != nil {
			t.Fatal("All goes on behind an error")
		}
		n, failed = n+1, err
	}
	wantErr(t, "All that is always cut", failed, ErrUnreachable)
	if n > len(want) {
		t.Errorf("All yields %d, want fewer than %d", n, len(want))
	}
}

// The memory in use does not depend on the size of a blob. The test is not parallel,
// since the memory of other tests would count.
func TestMemoryDoesNotDependOnSize(t *testing.T) {
	const bound = 64 << 20
	size := int64(repeats(68<<20, 96<<20)) // more than the bound
	if large != "" {
		size = 256 << 20
	}
	s, err := outputs.Open(t.TempDir(), outputs.Config{Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := clientOf(t, serve(t, Serve(s, ServerConfig{})), Config{})
	in := newMemoryGauge(size)
	r := refs(1)()
	got, err := c.Keep(t.Context(), r, mime, in)
	if err != nil || got.Bytes != size {
		t.Fatalf("Keep = %d bytes, %v, want %d", got.Bytes, err, size)
	}
	o, err := c.Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	out := newMemoryGauge(0)
	if n, err := io.Copy(out, o); err != nil || n != size {
		t.Fatalf("read %d bytes, %v, want %d", n, err, size)
	}
	if in.peak == 0 || out.peak == 0 || max(in.peak, out.peak) > bound {
		t.Errorf("heap in use = %d MiB in, %d MiB out, want under %d and sampled", in.peak>>20, out.peak>>20, bound>>20)
	}
}

// A client that stops sending is disconnected after the idle timeout, and its ref can
// be stored again.
func TestSilentUploaderHoldsNothing(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	// The timeout is long enough for the client below on a slow machine.
	address := serve(t, Serve(s, ServerConfig{IdleTimeout: 2 * time.Second}))
	r := refs(1)()
	conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nsome", pathOf(r)); err != nil {
		t.Fatal(err)
	}
	// It is refused, after which the name is free again.
	response := make([]byte, 12)
	if _, err := io.ReadFull(conn, response); err != nil || !strings.HasPrefix(string(response), "HTTP/1.1 5") {
		t.Errorf("it is answered %q, %v, want a refusal", response, err)
	}
	mustKeep(t, clientOf(t, address, Config{}), r, []byte("mine"))
}

// Keep does not read from its reader after it has returned.
func TestReaderIsLeftAloneAfterKeep(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	full := clientOf(t, serve(t, Serve(s, ServerConfig{Limit: 3 * chunkSize})), Config{})
	for range repeats(8, 20) {
		in := &lateReader{}
		_, err := full.Keep(t.Context(), refs(1)(), "", in)
		in.over.Store(true)
		wantErr(t, "Keep", err, ErrTooLarge)
		wantErr(t, "Keep", err, outputs.ErrNotKept)
		if in.late.Load() {
			t.Fatal("the reader is called after Keep returned")
		}
	}
}

// A lateReader never ends, and records a Read after over was set.
type lateReader struct{ over, late atomic.Bool }

func (w *lateReader) Read(p []byte) (int, error) {
	if w.over.Load() {
		w.late.Store(true)
	}
	return len(p), nil
}

// A plain HTTP client reads a blob, whole and in ranges, and receives the digest of
// the whole blob.
func TestOtherProgramsReadIt(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	r, content := refs(1)(), random(2*pageSize+9, 1)
	mustKeep(t, Local(s), r, content)
	address := serve(t, Serve(s, ServerConfig{}))
	sum := sha256.Sum256(content)
	for ask, want := range map[string][]byte{"": content, "bytes=-5": content[len(content)-5:], "bytes=7-": content[7:], "bytes=3-" + strconv.Itoa(pageSize+50): content[3 : pageSize+51]} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+pathOf(r), nil)
		if err != nil {
			t.Fatal(err)
		}
		if ask != "" {
			q.Header.Set("Range", ask)
		}
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(a.Body)
		_ = a.Body.Close()
		if err != nil || !bytes.Equal(got, want) || !hasDigest(a.Header.Get("Repr-Digest"), sum[:]) {
			t.Errorf("GET of %q = %d bytes, %v, want %d", ask, len(got), err, len(want))
		}
	}
}

// Every call of a closed client returns ErrClosed.
func TestClosedClientSaysSo(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	c := clientOf(t, serve(t, Serve(s, ServerConfig{})), Config{})
	r := refs(1)()
	mustKeep(t, c, r, []byte("x"))
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Stat(t.Context(), r)
	wantErr(t, "Stat", err, outputs.ErrClosed)
	_, err = c.Keep(context.Background(), domain.NewRef(r.Settlement(), domain.StructuredChannel), "", strings.NewReader("x"))
	wantErr(t, "Keep", err, outputs.ErrClosed)
}
