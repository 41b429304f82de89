package modelapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
)

// imageTypes are the media types of images that the models read.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// pdfType is the one media type of files that the API documents for all models.
const pdfType = "application/pdf"

// IsImage and IsPDF report how a request can contain media. It cannot contain media for
// which both are false, or that are empty.
func IsImage(m domain.Media) bool { return len(m.Data) > 0 && slices.Contains(imageTypes, m.MIME) }
func IsPDF(m domain.Media) bool   { return len(m.Data) > 0 && m.MIME == pdfType }

// MediaName returns a name for media, such as "image/png page.png".
func MediaName(m domain.Media) string {
	if m.Name == "" {
		return m.MIME
	}
	return m.MIME + " " + m.Name
}

// FileName returns the name of a PDF file, which a request must contain.
func FileName(m domain.Media) string {
	if m.Name == "" {
		return "file.pdf"
	}
	return m.Name
}

// OmittedMedia returns the text in place of media that the model cannot read.
func OmittedMedia(m domain.Media) string {
	return fmt.Sprintf("[%s of %d bytes is omitted: this model cannot read it]", MediaName(m), len(m.Data))
}

// PlainText returns a result without media as text.
func PlainText(r domain.ToolResult) string {
	switch {
	case r.Error != "":
		return r.Error
	case r.Structured != nil:
		return string(r.Structured)
	case r.Content != nil:
		return r.Content.Text()
	}
	return r.Text
}

// Arguments returns the arguments of a call as the model wrote them. An input that was not
// JSON is on record as a JSON string of the text.
func Arguments(input json.RawMessage) string {
	var raw string
	if json.Unmarshal(input, &raw) == nil && string(input) != "null" {
		return raw
	}
	return string(input)
}

// BrokenOff returns an input that broke off as a JSON string, which no tool accepts, even
// if the text so far is JSON.
func BrokenOff(text string) json.RawMessage {
	input, _ := json.Marshal(text) // encoding a string never fails
	return input
}

// ValidText returns text with each invalid byte replaced by U+FFFD, as JSON stores it.
func ValidText(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// EncodePart returns a part of a request as JSON. The error is that of the encoder.
func EncodePart(value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encode request: %w", err)
	}
	return string(data), nil
}
