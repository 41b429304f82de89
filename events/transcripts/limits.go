package transcripts

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// The limits of an event keep every record within the 16 MiB of an append to
// EventStoreDB. The limits of a report keep it readable. Sizes are in bytes.
const (
	// maxText bounds the JSON of the texts and media of an event.
	maxText = 14 << 20
	// maxMedia bounds the base64 of the media of an event.
	maxMedia = 5 << 20
	// maxContext bounds a context text or a structured value.
	maxContext = 51_200
	// maxMember bounds each member that is kept of a structured value over
	// maxContext.
	maxMember = 1 << 10
	// maxName bounds a name or an ID of the format.
	maxName = 1 << 10
	// callOverhead is the size that a call counts in its reply, besides its input and
	// names.
	callOverhead = 2_048
	// maxCandidates is the number of calls of one ID, and of generations of
	// sub-agents, that are searched. It bounds the time that a hostile file can take.
	maxCandidates = 1_000
	// maxIgnoredKinds is the number of kinds that the report counts separately.
	maxIgnoredKinds = 100
	// maxReported is the number of lines that each list of the report has.
	maxReported = 10_000
	// maxKind bounds a kind in the report.
	maxKind = 64
)

// truncate returns the beginning of a text with at most the given number of bytes,
// without a partial rune. It shares the memory of text.
func truncate(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// fitJSON returns end, the length of the longest beginning of a text that takes at
// most limit bytes in JSON, and size, the bytes that it takes. It never splits a
// rune. It counts at least as many bytes for an escape as encoding/json writes
// without HTML escaping.
func fitJSON(text string, limit int) (end, size int) {
	for end < len(text) {
		n, cost := 1, 1
		switch c := text[end]; {
		case c == '"', c == '\\', c == '\n', c == '\r', c == '\t':
			cost = 2
		case c < 0x20:
			cost = 6
		case c >= utf8.RuneSelf:
			var r rune
			if r, n = utf8.DecodeRuneInString(text[end:]); r == utf8.RuneError || r == 0x2028 || r == 0x2029 {
				cost = 6
			} else {
				cost = n
			}
		}
		if size+cost > limit {
			break
		}
		end, size = end+n, size+cost
	}
	return end, size
}

// fitText returns the part of a text that fits in the remaining limit of an event,
// and adds its size to used. If it cuts the text, it appends a line with the number
// of missing bytes, reports the cut under name, and sets used to the limit.
func (f *sessionFile) fitText(used *int, text, name string) string {
	end, size := fitJSON(text, max(maxText-*used, 0))
	if *used += size; end == len(text) {
		return text
	}
	*used = maxText
	if f.reportCut("%s: %d of %d bytes are kept", name, end, len(text)); end == 0 {
		return ""
	}
	return text[:end] + fmt.Sprintf("\n[%d of %d bytes are left out here]", len(text)-end, len(text))
}

// reportCut reports a text or media of the current line that was cut.
func (f *sessionFile) reportCut(format string, args ...any) {
	if len(f.report.Cut) < maxReported {
		f.report.Cut = append(f.report.Cut, RefusedLine{f.line, fmt.Sprintf(format, args...)})
	}
}

// limitContents returns contents within the limits of an event. It replaces media
// over the limit by a text with their type and size, and reports the cut under name.
func (f *sessionFile) limitContents(all domain.Contents, name string) domain.Contents {
	used := 0
	kept := make(domain.Contents, len(all))
	for i, part := range all {
		media, ok := part.(domain.Media)
		if !ok {
			continue
		}
		if size := base64.StdEncoding.EncodedLen(len(media.Data)); used+size <= maxMedia {
			used += size
			kept[i] = media
			continue
		}
		f.reportCut("%s: %s of %d bytes is not kept", name, media.MIME, len(media.Data))
		kept[i] = domain.Text(fmt.Sprintf("[%s of %d bytes is not kept]", media.MIME, len(media.Data)))
	}
	for i, part := range all {
		if text, ok := part.(domain.Text); ok {
			kept[i] = domain.Text(f.fitText(&used, string(text), name))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return kept
}

// contextEvent returns the event of a text that the user did not write. If it cuts
// the text, the event has the length and the SHA-256 of the whole text.
func (f *sessionFile) contextEvent(source, text string) events.ContextAdded {
	e := events.ContextAdded{Source: source, Text: f.limitContext(text, source)}
	if len(e.Text) < len(text) {
		whole := sha256.Sum256([]byte(text))
		e.Bytes, e.SHA256 = int64(len(text)), hex.EncodeToString(whole[:])
	}
	return e
}

// limitContext cuts a text to maxContext bytes, and reports the cut.
func (f *sessionFile) limitContext(text, name string) string {
	kept := truncate(text, maxContext)
	if len(kept) < len(text) {
		f.reportCut("%s: %d of %d bytes are kept", name, len(kept), len(text))
	}
	return kept
}

// countIgnored counts a record or part that is not imported, by kind. After
// maxIgnoredKinds kinds it counts all further kinds together as "other".
func (f *sessionFile) countIgnored(kind string) {
	kind = truncate(kind, maxKind)
	if _, known := f.report.Ignored[kind]; !known && len(f.report.Ignored) >= maxIgnoredKinds {
		kind = "other"
	}
	f.report.Ignored[kind]++
}
