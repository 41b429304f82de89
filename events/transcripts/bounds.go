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

// The limits of one event keep every record small enough for a store: EventStoreDB
// takes 16 MiB at once. The limits of a report keep it readable.
const (
	mostText    = 14 << 20 // of the texts and media of one event, in bytes of JSON
	mostMedia   = 5 << 20  // of the media of one event, in bytes of base64
	mostContext = 51_200   // of a text that no person wrote, and of a structured value
	mostMember  = 1 << 10  // of a member that is kept of a structured value over the limit
	mostName    = 1 << 10  // of a name
	roomOfCall  = 2_048    // what a call takes of the room of its reply besides its input, with its names
	mostAlike   = 1_000    // calls of one ID, and sub-agents of sub-agents, that are looked at
	mostIgnored = 100      // kinds that the report counts apart
	mostRefused = 10_000   // lines that the report lists
	mostKind    = 64       // bytes of a kind in the report
)

// beginning returns the first bytes of a text, whole runes.
func beginning(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// fitting returns how much of a text fits a number of bytes of JSON, and how
// many it takes there.
func fitting(text string, room int) (end, size int) {
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
		if size+cost > room {
			break
		}
		end, size = end+n, size+cost
	}
	return end, size
}

// within returns a text that fits what is left of an event's room, and takes
// that room. Of a text that does not fit it returns the beginning and says how
// much is left out, in the text and in the report.
func (f *file) within(used *int, text, what string) string {
	end, size := fitting(text, max(mostText-*used, 0))
	if *used += size; end == len(text) {
		return text
	}
	*used = mostText
	if f.cut("%s: %d of %d bytes are kept", what, end, len(text)); end == 0 {
		return ""
	}
	return text[:end] + fmt.Sprintf("\n[%d of %d bytes are left out here]", len(text)-end, len(text))
}

// cut reports a text or media of the current line that is not kept whole.
func (f *file) cut(format string, args ...any) {
	if len(f.report.Cut) < mostRefused {
		f.report.Cut = append(f.report.Cut, RefusedLine{f.line, fmt.Sprintf(format, args...)})
	}
}

// bounded returns contents that fit an event. Media over the limit are replaced
// by a text that names them.
func (f *file) bounded(all domain.Contents, what string) domain.Contents {
	used := 0
	kept := make(domain.Contents, len(all))
	for i, part := range all {
		media, ok := part.(domain.Media)
		if !ok {
			continue
		}
		if size := base64.StdEncoding.EncodedLen(len(media.Data)); used+size <= mostMedia {
			used += size
			kept[i] = media
			continue
		}
		f.cut("%s: %s of %d bytes is not kept", what, media.MIME, len(media.Data))
		kept[i] = domain.Text(fmt.Sprintf("[%s of %d bytes is not kept]", media.MIME, len(media.Data)))
	}
	for i, part := range all {
		if text, ok := part.(domain.Text); ok {
			kept[i] = domain.Text(f.within(&used, string(text), what))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return kept
}

// contextOf returns the event of a text that no person wrote.
func (f *file) contextOf(source, text string) events.ContextAdded {
	e := events.ContextAdded{Source: source, Text: f.shortened(text, source)}
	if len(e.Text) < len(text) {
		whole := sha256.Sum256([]byte(text))
		e.Bytes, e.SHA256 = int64(len(text)), hex.EncodeToString(whole[:])
	}
	return e
}

// shortened returns at most the first mostContext bytes of a text, and reports a
// text that is longer.
func (f *file) shortened(text, what string) string {
	kept := beginning(text, mostContext)
	if len(kept) < len(text) {
		f.cut("%s: %d of %d bytes are kept", what, len(kept), len(text))
	}
	return kept
}

// ignore counts something that is not put on record.
func (f *file) ignore(kind string) {
	kind = beginning(kind, mostKind)
	if _, known := f.report.Ignored[kind]; !known && len(f.report.Ignored) >= mostIgnored {
		kind = "other"
	}
	f.report.Ignored[kind]++
}
