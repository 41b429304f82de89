package builtins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/domain"
)

func TestSmallFileIsReadWhole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, content := range map[string]string{"a.md": "one\r\ntwo\n", "no end": "x", "empty": "", "mark": "\ufeffé"} {
		b.put(t, name, content)
		out, text := must[readResult](t, b, "read", input{"path": name})
		mime := "text/plain"
		if name == "a.md" {
			mime = "text/markdown"
		}
		if out.Type != wholeFile || out.Content != content || out.Encoding != "utf8" || out.Name != name || out.MIME != mime || !strings.HasPrefix(out.URI, "file:///") {
			t.Errorf("read %s = %+v", name, out)
		}
		if content != "" && text != content || content == "" && text != "(empty)" {
			t.Errorf("read %s shows %q, want %q", name, text, content)
		}
	}
}

func TestPageSaysWhereToReadOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "a", "1\r\n2\n"+strings.Repeat("é", 2001)+"\n4\n5\n")
	out, text := must[readResult](t, b, "read", input{"path": "a", "offset": 2, "limit": 2})
	want := readResult{Type: textPage, Content: "2\n" + strings.Repeat("é", 2000) + "... (line truncated to 2000 chars)", MIME: "text/plain", Offset: 2, Truncated: true, Next: 4}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	if !strings.HasSuffix(text, "\n\n(there is more: read on with offset 4)") {
		t.Errorf("the model reads %q", text)
	}
	if out, _ := must[readResult](t, b, "read", input{"path": "a", "offset": 4, "limit": 2}); out.Truncated || out.Content != "4\n5" {
		t.Errorf("the last page = %+v", out)
	}
	b.fails(t, "read", input{"path": "a", "offset": 6}, "Unable to read a: offset is out of range: 6: there are 5 lines")
}

func TestPagesHoldEveryLineAndFitTheLimits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	random := rand.New(rand.NewChaCha8([32]byte{7}))
	var lines []string
	for range 9000 {
		lines = append(lines, strings.Repeat(string("a\t\"é\x01"[random.IntN(3)]), random.IntN(40)))
	}
	for _, lines := range [][]string{lines, slices.Repeat([]string{"short"}, 5000)} {
		b.put(t, "a", strings.Join(lines, "\n"))
		if diff := cmp.Diff(lines, pages(t, b)); diff != "" {
			t.Errorf("the pages differ from the file (-want +got):\n%s", diff)
		}
	}
}

// pages returns the lines of the file a, read page by page, each of which fits
// the default limits.
func pages(t *testing.T, b *bench) []string {
	t.Helper()
	var got []string
	for offset := 1; offset > 0; {
		output, err := b.run(t, "read", input{"path": "a", "offset": offset, "limit": 2000})
		if err != nil {
			t.Fatal(err)
		}
		text := output.Content().Text()
		if len(text) > 51200 || len(output.Structured()) > 51200 || strings.Count(text, "\n")+1 > 2000 {
			t.Fatalf("the page at %d has %d bytes, %d encoded, %d lines", offset, len(text), len(output.Structured()), strings.Count(text, "\n")+1)
		}
		page, _ := must[readResult](t, b, "read", input{"path": "a", "offset": offset, "limit": 2000})
		got = append(got, strings.Split(page.Content, "\n")...)
		offset = page.Next
	}
	return got
}

func TestDirectoryListsDirectoriesFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, name := range []string{"b.txt", "a.txt", "z/x", ".hidden/x"} {
		b.put(t, name, "")
	}
	if err := os.Symlink(b.outside, filepath.Join(b.dir, "out")); err != nil {
		t.Fatal(err)
	}
	out, text := must[readResult](t, b, "read", input{"path": "."})
	want := readResult{Type: directory, Offset: 1, Entries: []dirEntry{{".hidden/", directory}, {"z/", directory}, {"a.txt", "file"}, {"b.txt", "file"}}}
	if diff := cmp.Diff(want, out); diff != "" || text != ".hidden/\nz/\na.txt\nb.txt" {
		t.Errorf("read shows %q; (-want +got):\n%s", text, diff)
	}
	out, _ = must[readResult](t, b, "read", input{"path": ".", "offset": 2, "limit": 1})
	if want := (readResult{Type: directory, Offset: 2, Entries: []dirEntry{{"z/", directory}}, Truncated: true, Next: 3}); !cmp.Equal(want, out) {
		t.Errorf("read of a part = %+v, want %+v", out, want)
	}
	b.fails(t, "read", input{"path": ".", "offset": 5}, "offset is out of range")
}

// Scenario 145.
func TestMissingPathIsNotAskedAbout(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.fails(t, "read", input{"path": "none"}, "File not found: none")
	if len(b.asked) != 0 {
		t.Errorf("asked %v", b.order())
	}
}

// Scenario 145.
func TestDeniedReadShowsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "README.md", "secret")
	b.decide = refuse("read")
	output, err := b.run(t, "read", input{"path": "README.md"})
	if !errors.Is(err, domain.ErrDenied) || output.Structured() != nil || output.Content() != nil {
		t.Errorf("read = %s, %v, want a denial and nothing else", output.Structured(), err)
	}
}

func TestWhatIsNoTextIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, content := range map[string]string{"a.pyc": "text", "nul": "a\x00b", "odd": "\x01\x02\x03abc", "b.pdf": "text"} {
		b.put(t, name, content)
		b.fails(t, "read", input{"path": name}, "Cannot read binary file: "+name)
	}
	b.put(t, "latin1", strings.Repeat("caf\xe9 ", 10))
	b.fails(t, "read", input{"path": "latin1"}, "Unable to read latin1: it is not UTF-8 text")
	if err := syscall.Mkfifo(filepath.Join(b.dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.fails(t, "read", input{"path": "pipe"}, "Unable to read pipe: not a regular file")
}

// store is an Outputs in memory.
type store map[domain.Ref]func() (io.ReadCloser, error)

func (s store) Open(_ context.Context, ref domain.Ref) (io.ReadCloser, domain.Retained, error) {
	open, ok := s[ref]
	if !ok {
		return nil, domain.Retained{}, ErrAbsent
	}
	body, err := open()
	return body, domain.Retained{Ref: ref, MIME: "application/json"}, err
}

// endless yields short lines for a number of bytes and fails the test if a
// reader takes much more of it than it needs.
type endless struct {
	left   int64
	read   *int64
	closed *bool
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), e.left))
	for i := range n {
		p[i] = "0123456\n"[(e.left-int64(i))%8]
	}
	e.left -= int64(n)
	*e.read += int64(n)
	return n, nil
}

func (e *endless) Close() error { *e.closed = true; return nil }

func TestOutputIsReadByPages(t *testing.T) {
	t.Parallel()
	mint := domain.NewMint(time.Now, rand.NewChaCha8([32]byte{}))
	refs := make([]domain.Ref, 5)
	for i := range refs {
		refs[i] = domain.NewRef(mint.Event(), domain.TextChannel)
	}
	long := strings.Repeat("x", 4500) + "\n\xff\nend"
	var read int64
	var closed bool
	gone := &Pruned{At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Policy: "older than 7 days", SHA256: "abc"}
	broken := errors.New("disk on fire")
	outputs := store{
		refs[0]: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(long)), nil },
		refs[1]: func() (io.ReadCloser, error) { return &endless{256 << 20, &read, &closed}, nil },
		refs[2]: func() (io.ReadCloser, error) { return nil, fmt.Errorf("open: %w", gone) },
		refs[3]: func() (io.ReadCloser, error) { return nil, broken },
	}
	b := newBench(t, func(c *Config) { c.Outputs = outputs })

	out, _ := must[readResult](t, b, "read", input{"path": refs[0].String()})
	x := strings.Repeat("x", 2000)
	want := readResult{Type: textPage, Content: x + "\n" + x + "\n" + x[:500] + "\n\ufffd\nend", MIME: "application/json", Offset: 1}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("read of a long line (-want +got):\n%s", diff)
	}
	if got := b.order(); len(got) != 1 || got[0] != "read "+refs[0].String() {
		t.Errorf("asked %v, want read on the reference", got)
	}
	out, _ = must[readResult](t, b, "read", input{"path": refs[1].String(), "offset": 1000, "limit": 10})
	if out.Next != 1010 || !out.Truncated || read > 1<<20 || !closed {
		t.Errorf("read of 10 lines = %+v after %d bytes, closed %v", out, read, closed)
	}
	b.fails(t, "read", input{"path": refs[2].String()}, "the output was pruned at 2026-01-02T03:04:05Z by older than 7 days; its sha256 was abc")
	b.fails(t, "read", input{"path": refs[4].String()}, "there is no such output")
	b.fails(t, "read", input{"path": "output://nonsense"}, "not an output reference")
	if _, err := b.run(t, "read", input{"path": refs[3].String()}); !errors.Is(err, broken) {
		t.Errorf("read of what cannot be opened = %v, want %v and no failure", err, broken)
	}
	newBench(t).fails(t, "read", input{"path": refs[0].String()}, "there is no such output")

	b.decide = refuse("read")
	if _, err := b.run(t, "read", input{"path": refs[0].String()}); !errors.Is(err, domain.ErrDenied) {
		t.Errorf("read of a denied reference = %v", err)
	}
}

// picturePNG returns an image of random or of plain pixels.
func picturePNG(t testing.TB, width, height int, noise bool) string {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	if noise {
		random := rand.NewChaCha8([32]byte{3})
		_, _ = random.Read(m.Pix)
	} else {
		for i := range m.Pix {
			m.Pix[i] = 0x80
		}
	}
	m.Set(0, 0, color.White)
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Scenario 146.
func TestImageIsNativeMedia(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	small := picturePNG(t, 3, 2, false)
	large := picturePNG(t, 200, 200, true) // over the limit of text
	if len(large) < 51200 {
		t.Fatalf("the image has %d bytes", len(large))
	}
	for name, data := range map[string]string{"a.png": small, "misleading.bin": small, "large.png": large} {
		b.put(t, name, data)
		output, err := b.run(t, "read", input{"path": name})
		if err != nil {
			t.Fatal(err)
		}
		media := output.Content().Media()
		if len(media) != 1 || media[0].MIME != "image/png" || string(media[0].Data) != data || media[0].Name != name {
			t.Errorf("read %s gives %d media", name, len(media))
		}
		if text := output.Content().Text(); text != "Image read successfully" {
			t.Errorf("read %s shows %q", name, text)
		}
	}
}

// Scenario 146.
func TestPDFIsNativeMedia(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	content := "%PDF-1.7\n\x00\xff" + strings.Repeat("x", 60_000) // over the limit of text
	for _, name := range []string{"a.pdf", "misleading.txt"} {
		b.put(t, name, content)
		output, err := b.run(t, "read", input{"path": name})
		if err != nil {
			t.Fatal(err)
		}
		media := output.Content().Media()
		if len(media) != 1 || media[0].MIME != "application/pdf" || string(media[0].Data) != content || media[0].Name != name || output.Content().Text() != "PDF read successfully" {
			t.Errorf("read %s gives %d media and %q", name, len(media), output.Content().Text())
		}
	}
}

// Scenario 146.
func TestMediaThatCannotBeShownSaysWhy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	whole := picturePNG(t, 100, 100, true)
	b.put(t, "cut.png", whole[:len(whole)/2])
	b.fails(t, "read", input{"path": "cut.png"}, "Image could not be decoded: cut.png")
	b.put(t, "large.pdf", "%PDF-")
	if err := os.Truncate(filepath.Join(b.dir, "large.pdf"), 20<<20+1); err != nil {
		t.Fatal(err)
	}
	b.fails(t, "read", input{"path": "large.pdf"}, "Media exceeds 20971520 byte ingestion limit: large.pdf")
}
