package builtins

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

// The limits of an image.
const (
	maxPicture = 20 << 20  // bytes of the file
	maxPixels  = 100 << 20 // that are decoded: an image can claim far more than its file holds
	maxSide    = 2000      // of what the model is given
	maxBase64  = 5 << 20   // of what the model is given, encoded
)

// pictureType returns the media type of an image by its first bytes, or the
// empty text.
func pictureType(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(head, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case bytes.HasPrefix(head, []byte("GIF87a")), bytes.HasPrefix(head, []byte("GIF89a")):
		return "image/gif"
	case len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == "WEBP":
		return "image/webp"
	}
	return ""
}

// shown is an image as the model is given it.
type shown struct {
	mime string
	data []byte
}

// show returns an image within the limits: as it is if it fits, and else
// scaled down.
func show(r io.Reader, mime, resource string) (shown, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPicture+1))
	if err != nil {
		return shown{}, err
	}
	if len(data) > maxPicture {
		return shown{}, domain.Fail("Media exceeds %d byte ingestion limit: %s", maxPicture, resource)
	}
	config, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return shown{}, domain.Fail("Image could not be decoded: %s", resource)
	}
	if int64(config.Width)*int64(config.Height) > maxPixels {
		return shown{}, tooLarge(resource, config, data)
	}
	decoded, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return shown{}, domain.Fail("Image could not be decoded: %s", resource)
	}
	if config.Width <= maxSide && config.Height <= maxSide && fits(data) {
		return shown{mime, data}, nil
	}
	small, err := shrink(decoded)
	if err != nil {
		return shown{}, tooLarge(resource, config, data)
	}
	return small, nil
}

func tooLarge(resource string, config image.Config, data []byte) error {
	return domain.Fail("Image %s is %dx%d with base64 size %d, exceeding configured limits %dx%d and %d bytes of base64",
		resource, config.Width, config.Height, base64.StdEncoding.EncodedLen(len(data)), maxSide, maxSide, maxBase64)
}

func fits(data []byte) bool { return base64.StdEncoding.EncodedLen(len(data)) <= maxBase64 }

var errNoFit = errors.New("no form of the image fits")

// shrink scales an image down to the limits: as PNG if that is small enough,
// as JPEG of falling quality if not, and then smaller and smaller.
func shrink(source image.Image) (shown, error) {
	for scale := min(1, maxSide/float64(max(source.Bounds().Dx(), source.Bounds().Dy()))); scale > 0.01; scale *= 0.75 {
		scaled := resize(source, scale)
		var b bytes.Buffer
		if err := png.Encode(&b, scaled); err != nil {
			return shown{}, err
		}
		if fits(b.Bytes()) {
			return shown{"image/png", b.Bytes()}, nil
		}
		flat := flatten(scaled)
		for _, quality := range []int{85, 60, 40} {
			b.Reset()
			if err := jpeg.Encode(&b, flat, &jpeg.Options{Quality: quality}); err != nil {
				return shown{}, err
			}
			if fits(b.Bytes()) {
				return shown{"image/jpeg", b.Bytes()}, nil
			}
		}
	}
	return shown{}, errNoFit
}

func resize(source image.Image, scale float64) *image.RGBA {
	from := source.Bounds()
	side := func(n int) int { return min(max(int(float64(n)*scale+0.5), 1), maxSide) }
	to := image.NewRGBA(image.Rect(0, 0, side(from.Dx()), side(from.Dy())))
	draw.CatmullRom.Scale(to, to.Bounds(), source, from, draw.Src, nil)
	return to
}

// flatten puts an image on white, as JPEG knows no transparency.
func flatten(source *image.RGBA) *image.RGBA {
	flat := image.NewRGBA(source.Bounds())
	draw.Draw(flat, flat.Bounds(), image.NewUniform(color.White), image.Point{}, draw.Src)
	draw.Draw(flat, flat.Bounds(), source, source.Bounds().Min, draw.Over)
	return flat
}
