package media

import (
	"bytes"
	"encoding/base64"
	"errors"
	"image"
	"image/color"
	_ "image/gif"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/draw"
	_ "golang.org/x/image/webp"

	"github.com/settlement-ledger/ledger/domain"
)

// The limits of an image or a PDF file.
const (
	// maxMediaFile is the maximum size of an image or PDF file, in bytes.
	maxMediaFile = 20 << 20
	// maxDecoded is the maximum size of a decoded image, in bytes. A small file can claim a
	// large image.
	maxDecoded = 256 << 20
	// maxScaleBytes is the maximum memory of the scaler, without both images, in bytes.
	maxScaleBytes = 64 << 20
	// maxSide is the maximum width and height of the image that the model gets, in pixels.
	maxSide = 2000
	// maxBase64 is the maximum size in base64 of the image or PDF file that the model gets,
	// in bytes.
	maxBase64 = 5 << 20
)

// TypeOf returns the media type of an image or a PDF file from its first bytes, or an
// empty text for any other file.
func TypeOf(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(head, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case bytes.HasPrefix(head, []byte("GIF87a")), bytes.HasPrefix(head, []byte("GIF89a")):
		return "image/gif"
	case len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == "WEBP":
		return "image/webp"
	case bytes.HasPrefix(head, []byte(pdfPrefix)):
		return PDF
	}
	return ""
}

// An Attachment is an encoded image or a PDF file for the model.
type Attachment struct {
	MIME string // the media type
	Data []byte
}

// Load reads an image or a PDF file of the media type mime, which TypeOf returned, and
// returns it within the limits: unchanged if it fits, and an image scaled down otherwise.
// resource is the name of the file in failures. The caller owns r and the result.
//
// Load returns a *domain.Failure for a file that is too large, and for an image that cannot
// be decoded or that claims too many pixels. It returns the error of reading from r.
// While it decodes, it reads zero bytes from r, and ends if that returns an error.
func Load(r io.Reader, mime, resource string) (Attachment, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxMediaFile+1))
	if err != nil {
		return Attachment{}, err
	}
	if len(data) > maxMediaFile {
		return Attachment{}, domain.Fail("Media exceeds %d byte ingestion limit: %s", maxMediaFile, resource)
	}
	if mime == PDF {
		return loadPDF(data, resource)
	}
	return loadImage(replayReader{r, bytes.NewReader(data)}, data, mime, resource)
}

// PDF is the media type of a PDF file.
const PDF = "application/pdf"

// pdfPrefix begins a PDF file.
const pdfPrefix = "%PDF-"

// loadPDF returns the content of a PDF file unchanged, or a failure if it exceeds
// maxBase64.
func loadPDF(data []byte, resource string) (Attachment, error) {
	if !fitsBase64(data) {
		return Attachment{}, domain.Fail("PDF %s has %d bytes, which are %d bytes of base64, exceeding the configured limit of %d bytes of base64. Split it into smaller files, or extract its text with a program such as pdftotext.",
			resource, len(data), base64.StdEncoding.EncodedLen(len(data)), maxBase64)
	}
	return Attachment{PDF, data}, nil
}

// loadImage returns an image within the limits: unchanged if it fits, scaled down
// otherwise. It returns a failure for an image that claims too many pixels or cannot be
// decoded. It decodes one image at a time, from replay, whose content is data.
func loadImage(replay io.Reader, data []byte, mime, resource string) (Attachment, error) {
	config, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return Attachment{}, domain.Fail("Image could not be decoded: %s", resource)
	}
	if decodedSize(config, mime, data) > maxDecoded {
		return Attachment{}, tooLarge(resource, config, data)
	}
	decodeSlot <- struct{}{}
	defer func() { <-decodeSlot }()
	decoded, _, err := image.Decode(replay)
	if err != nil {
		return Attachment{}, domain.Fail("Image could not be decoded: %s", resource)
	}
	if config.Width <= maxSide && config.Height <= maxSide && fitsBase64(data) {
		return Attachment{mime, data}, nil
	}
	small, err := shrink(decoded)
	if err != nil {
		return Attachment{}, tooLarge(resource, config, data)
	}
	return small, nil
}

// decodeSlot admits one image at a time, so that concurrent calls do not multiply the
// memory of maxDecoded.
var decodeSlot = make(chan struct{}, 1)

// A replayReader returns the bytes that were already read from source once more. Its
// Read fails when the context of source has ended.
type replayReader struct {
	source io.Reader
	*bytes.Reader
}

// Read returns the next buffered bytes. Once the context of source has ended, it
// returns the cause instead.
func (r replayReader) Read(p []byte) (int, error) {
	if _, err := r.source.Read(nil); err != nil && err != io.EOF {
		return 0, err
	}
	return r.Reader.Read(p)
}

// decodedSize estimates the memory of a decoded image, in bytes.
func decodedSize(config image.Config, mime string, data []byte) int64 {
	pixel := int64(4)
	switch {
	case config.ColorModel == color.RGBA64Model, config.ColorModel == color.NRGBA64Model:
		pixel = 8
	case mime == "image/jpeg" && bytes.Contains(data, []byte{0xff, 0xc2}): // progressive: the coefficients are held too
		pixel = 16
	}
	width, height := int64(config.Width), int64(config.Height)
	if mime == "image/webp" {
		w, h := frameOf(data) // it need not be that of the canvas
		width, height = max(width, w), max(height, h)
	}
	return width * height * pixel
}

// frameOf returns the largest width and height of the frames of a WebP image, in pixels.
// A frame can be larger than the canvas.
func frameOf(data []byte) (width, height int64) {
	for at := 12; at+8 <= len(data); {
		size := int64(littleEndian16(data[at+4:])) | int64(littleEndian16(data[at+6:]))<<16
		body := data[at+8:]
		switch kind := string(data[at : at+4]); {
		case kind == "VP8 " && len(body) >= 10:
			width, height = max(width, int64(littleEndian16(body[6:])&0x3fff)), max(height, int64(littleEndian16(body[8:])&0x3fff))
		case kind == "VP8L" && len(body) >= 5:
			bits := int64(littleEndian16(body[1:])) | int64(littleEndian16(body[3:]))<<16
			width, height = max(width, bits&0x3fff+1), max(height, bits>>14&0x3fff+1)
		}
		next := int64(at) + 8 + size + size&1
		if next > int64(len(data)) {
			break
		}
		at = int(next)
	}
	return width, height
}

// littleEndian16 decodes a 16-bit little-endian integer.
func littleEndian16(b []byte) uint16 { return uint16(b[0]) | uint16(b[1])<<8 }

// tooLarge returns the failure for an image that exceeds the limits even after scaling.
func tooLarge(resource string, config image.Config, data []byte) error {
	return domain.Fail("Image %s is %dx%d with base64 size %d, exceeding configured limits %dx%d and %d bytes of base64",
		resource, config.Width, config.Height, base64.StdEncoding.EncodedLen(len(data)), maxSide, maxSide, maxBase64)
}

// fitsBase64 reports whether data has at most maxBase64 bytes in base64.
func fitsBase64(data []byte) bool { return base64.StdEncoding.EncodedLen(len(data)) <= maxBase64 }

// errImageTooLarge says that no scale and quality brings an image under maxBase64.
var errImageTooLarge = errors.New("no form of the image fits")

// shrink scales an image down to the limits. At each scale it tries PNG and then JPEG
// of falling quality. It reduces the scale by a quarter until a result fits. It returns
// errImageTooLarge if no result fits down to a scale of one percent.
func shrink(source image.Image) (Attachment, error) {
	for scale := min(1, maxSide/float64(max(source.Bounds().Dx(), source.Bounds().Dy()))); scale > 0.01; scale *= 0.75 {
		scaled := resize(source, scale)
		var b bytes.Buffer
		if err := png.Encode(&b, scaled); err != nil {
			return Attachment{}, err
		}
		if fitsBase64(b.Bytes()) {
			return Attachment{"image/png", b.Bytes()}, nil
		}
		flat := flatten(scaled)
		for _, quality := range []int{85, 60, 40} {
			b.Reset()
			if err := jpeg.Encode(&b, flat, &jpeg.Options{Quality: quality}); err != nil {
				return Attachment{}, err
			}
			if fitsBase64(b.Bytes()) {
				return Attachment{"image/jpeg", b.Bytes()}, nil
			}
		}
	}
	return Attachment{}, errImageTooLarge
}

// resize returns a scaled copy of an image. It works in horizontal bands, so that the
// scaler's memory stays under maxScaleBytes.
func resize(original image.Image, scale float64) *image.RGBA {
	from := original.Bounds()
	side := func(n int) int { return min(max(int(float64(n)*scale+0.5), 1), maxSide) }
	width, height := side(from.Dx()), side(from.Dy())
	to := image.NewRGBA(image.Rect(0, 0, width, height))
	// The scaler holds 32 bytes for each column of the result and row of the
	// source, so a high image is scaled in bands.
	const cell = 32
	bands := width*from.Dy()*cell/maxScaleBytes + 1
	for i := range bands {
		part := image.Rect(0, i*height/bands, width, (i+1)*height/bands)
		source := image.Rect(from.Min.X, from.Min.Y+part.Min.Y*from.Dy()/height, from.Max.X, from.Min.Y+part.Max.Y*from.Dy()/height)
		if part.Empty() || source.Empty() {
			continue
		}
		draw.CatmullRom.Scale(to, part, original, source, draw.Src, nil)
	}
	return to
}

// flatten returns the image on a white background, because JPEG has no transparency.
func flatten(source *image.RGBA) *image.RGBA {
	flat := image.NewRGBA(source.Bounds())
	draw.Draw(flat, flat.Bounds(), image.NewUniform(color.White), image.Point{}, draw.Src)
	draw.Draw(flat, flat.Bounds(), source, source.Bounds().Min, draw.Over)
	return flat
}
