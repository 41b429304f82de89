package registry

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
)

// Limits bound the size of a settlement. Text and structured output are bounded
// separately, each by lines and bytes. The text limits also hold for the text of a call
// that did not succeed, for its progress, and for the types and names of its media. The
// zero Limits are [DefaultLimits].
type Limits struct {
	// Lines bounds the lines of text, and of structured output as indented JSON.
	Lines int
	// Bytes bounds the bytes of the text, and of the structured output, in UTF-8.
	Bytes int
	// Media bounds the bytes of all media of a call, in base64.
	Media int64
}

// DefaultLimits are 2,000 lines and 51,200 bytes, and 5 MiB of media.
var DefaultLimits = Limits{Lines: 2000, Bytes: 50 << 10, Media: 5 << 20}

// The smallest limits at which a preview still has room for its complete reference.
const (
	minLines = 8
	minBytes = 256
)

// checked returns the limits to use: l itself, or DefaultLimits for the zero value. It
// returns ErrBadLimits for limits below the smallest.
func (l Limits) checked() (Limits, error) {
	if l == (Limits{}) {
		return DefaultLimits, nil
	}
	if l.Lines < minLines || l.Bytes < minBytes || l.Media < 0 {
		return Limits{}, fmt.Errorf("check limits of %d lines, %d bytes, %d bytes of media: %w: there must be %d lines, %d bytes and 0 bytes of media at least",
			l.Lines, l.Bytes, l.Media, ErrBadLimits, minLines, minBytes)
	}
	return l, nil
}

// fits reports whether a text is within the limits of lines and bytes.
func (l Limits) fits(text string) bool {
	return len(text) <= l.Bytes && countLines(text) <= l.Lines
}

// exceeded names each limit that a text exceeds, with the size of the text. It returns
// an empty string for a text within the limits.
func (l Limits) exceeded(text string) string {
	var over []string
	if len(text) > l.Bytes {
		over = append(over, fmt.Sprintf("%d bytes, over the limit of %d", len(text), l.Bytes))
	}
	if lines := countLines(text); lines > l.Lines {
		over = append(over, fmt.Sprintf("%d lines, over the limit of %d", lines, l.Lines))
	}
	return strings.Join(over, ", and ")
}

// A mediaLimitError names the limit that media exceed. Settle ends the call as
// MediaTooLarge.
type mediaLimitError struct {
	format      string
	size, limit int64
	unit        string
}

func (t mediaLimitError) Error() string {
	return fmt.Sprintf("%s is over the limit of %d %s", fmt.Sprintf(t.format, t.size), t.limit, t.unit)
}

// checkMedia returns a mediaLimitError if media exceed a limit, and otherwise nil. The
// media limit bounds the data in base64, the byte limit bounds the MIME types and file
// names, and the line limit bounds the number of media.
func (l Limits) checkMedia(media []domain.Media) error {
	var size, labels int64
	for _, m := range media {
		size += int64(base64.StdEncoding.EncodedLen(len(m.Data)))
		labels += int64(len(m.MIME) + len(m.Name))
	}
	switch {
	case size > l.Media:
		return mediaLimitError{"media of %d bytes in base64", size, l.Media, "bytes"}
	case labels > int64(l.Bytes):
		return mediaLimitError{"media with types and names of %d bytes", labels, int64(l.Bytes), "bytes"}
	case len(media) > l.Lines:
		return mediaLimitError{"media in %d parts", int64(len(media)), int64(l.Lines), "parts"}
	}
	return nil
}

// compact joins adjacent texts if content has more parts than the line limit. The text of
// the content stays the same.
func (l Limits) compact(content domain.Contents) domain.Contents {
	if len(content) <= l.Lines {
		return content
	}
	var joined domain.Contents
	var text []string
	flush := func() {
		if len(text) > 0 {
			joined, text = append(joined, domain.Text(strings.Join(text, ""))), text[:0]
		}
	}
	for _, c := range content {
		if t, ok := c.(domain.Text); ok {
			text = append(text, string(t))
			continue
		}
		flush()
		joined = append(joined, c)
	}
	flush()
	return joined
}

// Cut returns a text within the limits: the text itself if it fits, and otherwise its
// head and tail around a marker with the number of bytes left out. The bytes left out are
// not stored.
func (l Limits) Cut(text string) string {
	if l.fits(text) {
		return text
	}
	marker := func(left int) string {
		return fmt.Sprintf("... text truncated (%d lines, %d bytes); %d bytes are left out here and not kept ...", countLines(text), len(text), left)
	}
	first, last := split(text, len(marker(len(text))), l.Lines, l.Bytes)
	return around(marker(len(text)-len(first)-len(last)), first, last)
}

// preview returns the head and the tail of a text around a marker, in at most maxLines
// lines and maxBytes bytes. It reserves four lines and four bytes for the marker and
// its blank lines. If this leaves no room for text, it returns only the marker, cut to
// the limits.
func preview(text, marker string, maxLines, maxBytes int) string {
	if maxLines <= 4 || maxBytes <= len(marker)+4 {
		return headLines(head(marker, maxBytes), maxLines)
	}
	first, last := split(text, len(marker), maxLines, maxBytes)
	return around(marker, first, last)
}

// split returns a head and a tail of text that leave room for a marker of marker bytes
// within maxLines lines and maxBytes bytes. It cuts by lines first, and then by bytes if
// the lines are too long.
func split(text string, marker, maxLines, maxBytes int) (first, last string) {
	first, last = sample(text, maxLines-4)
	budget := maxBytes - marker - 4
	if joined := join(first, last); len(joined) > budget {
		first, last = head(joined, (budget+1)/2), tail(joined, budget/2)
	}
	return first, last
}

// around joins head, marker and tail with blank lines. An empty tail is left out.
func around(marker, first, last string) string {
	if last == "" {
		return first + "\n\n" + marker
	}
	return first + "\n\n" + marker + "\n\n" + last
}

// sample returns the first and the last lines of a text, n lines in total. If n is odd,
// first has one line more than last. If the text has at most n lines, first is the text
// and last is empty.
func sample(text string, n int) (first, last string) {
	lines := strings.Split(text, "\n")
	if len(lines) <= n {
		return text, ""
	}
	first = strings.Join(lines[:(n+1)/2], "\n")
	return first, strings.Join(lines[len(lines)-n/2:], "\n")
}

// join joins a head and a tail by a line break, unless the tail is empty.
func join(first, last string) string {
	if last == "" {
		return first
	}
	return first + "\n" + last
}

// headLines returns the first n lines of a text.
func headLines(text string, n int) string {
	lines := strings.SplitN(text, "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "\n")
}

// head returns the longest prefix of text with at most n bytes that does not split a code
// point.
func head(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// tail returns the longest suffix of text with at most n bytes that does not split a code
// point.
func tail(text string, n int) string {
	if len(text) <= n {
		return text
	}
	at := len(text) - n
	for at < len(text) && !utf8.RuneStart(text[at]) {
		at++
	}
	return text[at:]
}

// countLines returns the number of lines of a text, at least 1.
func countLines(text string) int { return 1 + strings.Count(text, "\n") }
