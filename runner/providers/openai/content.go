package openai

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
)

// imageTypes are the media types of images that the models read.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// pdfType is the one media type of files that the API documents for all models.
const pdfType = "application/pdf"

// isImage and isFile report how a request can contain media. It cannot contain media for
// which both are false, or that are empty.
func isImage(m domain.Media) bool { return len(m.Data) > 0 && slices.Contains(imageTypes, m.MIME) }
func isFile(m domain.Media) bool  { return len(m.Data) > 0 && m.MIME == pdfType }

// mediaName returns a name for media, such as "image/png page.png".
func mediaName(m domain.Media) string {
	if m.Name == "" {
		return m.MIME
	}
	return m.MIME + " " + m.Name
}

// fileName returns the name of a PDF file, which a request must contain.
func fileName(m domain.Media) string {
	if m.Name == "" {
		return "file.pdf"
	}
	return m.Name
}

// omittedMedia returns the text in place of media that the model cannot read.
func omittedMedia(m domain.Media) string {
	return fmt.Sprintf("[%s of %d bytes is omitted: this model cannot read it]", mediaName(m), len(m.Data))
}

// plainText returns a result without media as text.
func plainText(r domain.ToolResult) string {
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

// arguments returns the arguments of a call as the model wrote them. An input that was not
// JSON is on record as a JSON string of the text.
func arguments(input json.RawMessage) string {
	var raw string
	if json.Unmarshal(input, &raw) == nil && string(input) != "null" {
		return raw
	}
	return string(input)
}
