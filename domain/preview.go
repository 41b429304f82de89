package domain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The kinds of preview.
const (
	// PreviewCommand is a shell command.
	PreviewCommand = "command"
	// PreviewDiff is a unified diff of a file.
	PreviewDiff = "diff"
	// PreviewContent is the content of a new file.
	PreviewContent = "content"
	// PreviewCall is the input of a call.
	PreviewCall = "call"
)

// The limits of a preview, in bytes and lines. A command has a larger limit,
// because the part left out could be the harmful one.
const (
	// MaxPreview is the limit of all previews but commands, in bytes.
	MaxPreview = 50 << 10
	// MaxPreviewLines is the limit of all previews but commands, in lines.
	MaxPreviewLines = 2000
	// MaxCommandPreview is the limit of the preview of a command, in bytes.
	MaxCommandPreview = 1 << 20
)

// A Preview is the text that a permission request shows to a person. Size and
// digest are of the complete text, so that the record proves which text the
// person approved.
type Preview struct {
	// Kind is one of the kinds above.
	Kind string `json:"kind" codec:"intern"`
	// Text is UTF-8. If the complete text is over the limit, Text has its head and its
	// tail.
	Text string `json:"text"`
	// Bytes is the size of the complete text.
	Bytes int64 `json:"bytes"`
	// Cut is the number of bytes that Text leaves out.
	Cut int64 `json:"cut,omitempty"`
	// SHA256 is the digest of the complete text, in hexadecimal.
	SHA256 string `json:"sha256"`
}

// IsZero reports whether s is the zero Preview, which means that a request has
// no preview.
func (s Preview) IsZero() bool { return s == Preview{} }

// NewPreview returns the preview of a text. If the text exceeds the limits of
// its kind, the preview has its head and its tail, and between them a line
// with the number of bytes left out. Invalid UTF-8 becomes U+FFFD.
func NewPreview(kind, whole string) Preview {
	sum := sha256.Sum256([]byte(whole))
	s := Preview{Kind: kind, Bytes: int64(len(whole)), SHA256: hex.EncodeToString(sum[:])}
	bytes, lines := MaxPreview, MaxPreviewLines
	if kind == PreviewCommand {
		bytes, lines = MaxCommandPreview, MaxCommandPreview
	}
	from, to := len(whole), 0
	if len(whole) > bytes {
		from, to = bytes/2, len(whole)-bytes/2
	}
	from, to = min(from, endOfLines(whole, lines/2)), max(to, startOfLines(whole, lines/2))
	if from >= to {
		s.Text = strings.ToValidUTF8(whole, "\ufffd")
		return s
	}
	for from > 0 && !utf8.RuneStart(whole[from]) {
		from--
	}
	for to < len(whole) && !utf8.RuneStart(whole[to]) {
		to++
	}
	s.Cut = int64(to - from)
	s.Text = strings.ToValidUTF8(fmt.Sprintf("%s\n... %d bytes are not shown ...\n%s", whole[:from], s.Cut, whole[to:]), "\ufffd")
	return s
}

// endOfLines returns the offset after the first n lines of text.
func endOfLines(text string, n int) int {
	at := 0
	for range n {
		i := strings.IndexByte(text[at:], '\n')
		if i < 0 {
			return len(text)
		}
		at += i + 1
	}
	return at
}

// startOfLines returns the offset of the last n lines of text, or 0 if text has fewer
// lines. A line end at the end of text does not begin a line.
func startOfLines(text string, n int) int {
	at := len(strings.TrimSuffix(text, "\n"))
	for range n {
		if at = strings.LastIndexByte(text[:at], '\n'); at < 0 {
			return 0
		}
	}
	return at + 1
}
