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
	maxText         = 14 << 20 // of the texts and media of one event, in bytes of JSON
	maxMedia        = 5 << 20  // of the media of one event, in bytes of base64
	maxContext      = 51_200   // of a text that no person wrote, and of a structured value
	maxMember       = 1 << 10  // of a member that is kept of a structured value over the limit
	maxName         = 1 << 10  // of a name
	callOverhead    = 2_048    // what a call takes of the room of its reply besides its input, with its names
	maxCandidates   = 1_000    // calls of one ID, and sub-agents of sub-agents, that are looked at
	maxIgnoredKinds = 100      // kinds that the report counts apart
	maxReported     = 10_000   // lines that the report lists
	maxKind         = 64       // bytes of a kind in the report
)

// truncate returns the first bytes of a text, whole runes.
func truncate(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// fitJSON returns how much of a text fits a number of bytes of JSON, and how
// many it takes there.
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

// fitText returns a text that fits what is left of an event's room, and takes
// that room. Of a text that does not fit it returns the beginning and says how
// much is left out, in the text and in the report.
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

// reportCut reports a text or media of the current line that is not kept whole.
func (f *sessionFile) reportCut(format string, args ...any) {
	if len(f.report.Cut) < maxReported {
		f.report.Cut = append(f.report.Cut, RefusedLine{f.line, fmt.Sprintf(format, args...)})
	}
}

// limitContents returns contents that fit an event. Media over the limit are replaced
// by a text that names them.
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

// contextEvent returns the event of a text that no person wrote.
func (f *sessionFile) contextEvent(source, text string) events.ContextAdded {
	e := events.ContextAdded{Source: source, Text: f.limitContext(text, source)}
	if len(e.Text) < len(text) {
		whole := sha256.Sum256([]byte(text))
		e.Bytes, e.SHA256 = int64(len(text)), hex.EncodeToString(whole[:])
	}
	return e
}

// limitContext returns at most the first mostContext bytes of a text, and reports a
// text that is longer.
func (f *sessionFile) limitContext(text, name string) string {
	kept := truncate(text, maxContext)
	if len(kept) < len(text) {
		f.reportCut("%s: %d of %d bytes are kept", name, len(kept), len(text))
	}
	return kept
}

// countIgnored counts something that is not put on record.
func (f *sessionFile) countIgnored(kind string) {
	kind = truncate(kind, maxKind)
	if _, known := f.report.Ignored[kind]; !known && len(f.report.Ignored) >= maxIgnoredKinds {
		kind = "other"
	}
	f.report.Ignored[kind]++
}
