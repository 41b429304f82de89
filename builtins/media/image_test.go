package media

import (
	"bytes"
	"context"
	"encoding/base64"
	endian "encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// load reads content as the tool read does: by the type of its first bytes.
func load(content []byte, resource string) (Attachment, error) {
	return Load(bytes.NewReader(content), TypeOf(content), resource)
}

// mustLoad returns the attachment of an image, and fails the test if it is not within the
// limits.
func mustLoad(t *testing.T, content []byte, resource string) (Attachment, image.Config) {
	t.Helper()
	shown, err := load(content, resource)
	if err != nil {
		t.Fatalf("load %s = %v", resource, err)
	}
	config, format, err := image.DecodeConfig(bytes.NewReader(shown.Data))
	if err != nil || "image/"+format != shown.MIME || config.Width > maxSide || config.Height > maxSide || base64.StdEncoding.EncodedLen(len(shown.Data)) > 5<<20 {
		t.Errorf("load %s gives %+v as %s, %d bytes of %s, %v", resource, config, format, len(shown.Data), shown.MIME, err)
	}
	return shown, config
}

// fails fails the test unless loading content is a failure for the model with a text.
func fails(t *testing.T, content []byte, resource, want string) {
	t.Helper()
	_, err := load(content, resource)
	if failure, ok := errors.AsType[*domain.Failure](err); !ok || !strings.Contains(failure.Error(), want) {
		t.Errorf("load %s = %v, want a failure with %q", resource, err, want)
	}
}

// encodePNG returns an image as PNG.
func encodePNG(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// noise returns an image of random pixels, which compression does not make smaller.
func noise(width, height int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	_, _ = rand.NewChaCha8([32]byte{3}).Read(m.Pix)
	m.Set(0, 0, color.White)
	return m
}

func TestTypeComesFromTheFirstBytes(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]string{
		"\x89PNG\r\n\x1a\nrest": "image/png", "\xff\xd8\xff\xe0": "image/jpeg", "GIF87a": "image/gif", "GIF89a": "image/gif", "RIFF\x00\x00\x00\x00WEBPVP8 ": "image/webp",
		"%PDF-1.7": PDF, "RIFF\x00\x00\x00\x00WAVE": "", "RIFF": "", "": "", "\x89PNG": "", "text": "", " %PDF-": "",
	} {
		if got := TypeOf([]byte(head)); got != want {
			t.Errorf("TypeOf(%q) = %q, want %q", head, got, want)
		}
	}
}

// Scenario 146.
func TestFileWithinTheLimitsIsUnchanged(t *testing.T) {
	t.Parallel()
	picture, document := encodePNG(t, noise(200, 200)), []byte("%PDF-1.7\n\x00\xff")
	for _, content := range [][]byte{picture, document} {
		shown, err := load(content, "a")
		if err != nil || shown.MIME != TypeOf(content) || !bytes.Equal(shown.Data, content) {
			t.Errorf("load gives %d bytes of %s, %v, want the %d bytes of the file", len(shown.Data), shown.MIME, err, len(content))
		}
	}
}

// Scenario 146.
func TestPDFOverTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	const most = 5 << 20 / 4 * 3 // bytes of which base64 makes 5 MiB
	document := func(size int) []byte { return append([]byte(pdfPrefix), make([]byte, size-len(pdfPrefix))...) }
	if shown, err := load(document(most), "a.pdf"); err != nil || len(shown.Data) != most {
		t.Errorf("a PDF file of %d bytes gives %d bytes, %v", most, len(shown.Data), err)
	}
	fails(t, document(most+1), "large.pdf", fmt.Sprintf("PDF large.pdf has %d bytes, which are %d bytes of base64, exceeding the configured limit of 5242880 bytes of base64. Split it", most+1, 5<<20+4))
	fails(t, document(20<<20+1), "large.pdf", "Media exceeds 20971520 byte ingestion limit: large.pdf")
}

// Scenario 146.
func TestImageIsScaledToTheLimits(t *testing.T) {
	t.Parallel()
	if _, config := mustLoad(t, encodePNG(t, image.NewGray(image.Rect(0, 0, 4100, 3))), "wide.png"); config.Width != 2000 {
		t.Errorf("an image of 4,100 columns has %d of them", config.Width)
	}
	// A file over the limit of bytes, by a private chunk between the header and
	// the pixels, whose image is small.
	small := encodePNG(t, noise(40, 30))
	const header = 8 + 25 // signature and IHDR
	chunk := append([]byte("prVt"), make([]byte, 4<<20)...)
	padding := endian.BigEndian.AppendUint32(nil, uint32(len(chunk)-4))
	padding = endian.BigEndian.AppendUint32(append(padding, chunk...), crc32.ChecksumIEEE(chunk))
	if shown, config := mustLoad(t, bytes.Join([][]byte{small[:header], padding, small[header:]}, nil), "padded.png"); config.Width != 40 || len(shown.Data) > 1<<20 {
		t.Errorf("a padded image of 40 columns has %d of them, in %d bytes", config.Width, len(shown.Data))
	}
	if os.Getenv("LEDGER_TEST_LONG") != "" { // scaling a million pixels takes seconds with the race detector
		mustLoad(t, encodePNG(t, noise(1000, 1000)), "noisy.png") // as PNG just over the limit of bytes
	}
}

// Scenario 146.
func TestImageThatCannotBeShownSaysWhy(t *testing.T) {
	t.Parallel()
	whole := encodePNG(t, noise(100, 100))
	fails(t, whole[:len(whole)/2], "cut.png", "Image could not be decoded: cut.png")
	fails(t, whole[:10], "head.png", "Image could not be decoded: head.png")
	fails(t, append(whole, make([]byte, 20<<20)...), "huge.png", "Media exceeds 20971520 byte ingestion limit: huge.png")
	fails(t, []byte("GIF89a\xff\xff\xff\xff\x00\x00\x00;"), "bomb.gif", "Image bomb.gif is 65535x65535 with base64 size 20, exceeding configured limits 2000x2000")
}

// A brokenReader returns an error once its content is read for the first time.
type brokenReader struct {
	io.Reader
	err error
}

// Read returns the content, then err.
func (r brokenReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF {
		err = r.err
	}
	return n, err
}

func TestErrorOfTheReaderIsReturnedUnchanged(t *testing.T) {
	t.Parallel()
	for _, mime := range []string{"image/png", PDF} {
		if _, err := Load(brokenReader{strings.NewReader("%PDF-"), context.Canceled}, mime, "a"); err != context.Canceled {
			t.Errorf("load %s from a broken reader = %v, want its error", mime, err)
		}
	}
}

// allocated returns how many bytes f allocates in all, which is more than it
// holds at any moment. Other tests of the package must not run meanwhile.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// claiming returns the beginning of a PNG that claims a size, of 16 bits a
// channel or of 8.
func claiming(width, height int, depth byte) []byte {
	var b bytes.Buffer
	header := append(endian.BigEndian.AppendUint32(endian.BigEndian.AppendUint32([]byte("IHDR"), uint32(width)), uint32(height)), depth, 6, 0, 0, 0)
	b.WriteString("\x89PNG\r\n\x1a\n")
	_ = endian.Write(&b, endian.BigEndian, uint32(13))
	b.Write(header)
	_ = endian.Write(&b, endian.BigEndian, crc32.ChecksumIEEE(header))
	b.WriteString("\x00\x00\x00\x00IDAT")
	return b.Bytes()
}

func TestImageThatIsHugeWhenDecodedIsRefused(t *testing.T) {
	for name, content := range map[string][]byte{
		"deep": claiming(10_200, 10_200, 16),
		"flat": claiming(10_200, 10_200, 8),
		// A canvas of one pixel, and a lossless frame of 16,384 by 16,384.
		"frame": []byte("RIFF\x30\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00VP8L\x10\x00\x00\x00\x2f\xff\xff\xff\x0f\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
	} {
		if used := allocated(func() { fails(t, content, name, "exceeding configured limits") }); used > 64<<20 {
			t.Errorf("refusing %s allocates %d bytes", name, used)
		}
	}
}

func TestHighImageIsScaledInLittleMemory(t *testing.T) {
	width, height := 525, 3000
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		width, height = 2100, 12_000
	}
	content := encodePNG(t, image.NewGray(image.Rect(0, 0, width, height)))
	used := allocated(func() {
		if _, config := mustLoad(t, content, "a"); config.Height != 2000 || config.Width != 350 {
			t.Errorf("the image is %+v", config)
		}
	})
	if used > uint64(700<<20/(2100*12_000)*width*height) {
		t.Errorf("scaling allocates %d bytes", used)
	}
}
