package events

import (
	"encoding/binary"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// appendString appends a string with the quotes and escapes of encoding/json,
// except that <, > and & have no escapes.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			b = append(b, s[start:i]...)
			b = appendEscape(b, c)
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = append(append(b, s[start:i]...), `\ufffd`...)
			start = i + n
		case r == '\u2028' || r == '\u2029':
			b = append(append(b, s[start:i]...), `\u202`...)
			b = append(b, hexDigits[r&0xf])
			start = i + n
		}
		i += n
	}
	return append(append(b, s[start:]...), '"')
}

// appendEscape appends the escape of a control character, a quote or a
// backslash.
func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\b':
		return append(b, '\\', 'b')
	case '\f':
		return append(b, '\\', 'f')
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	return append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// specialMask sets the high bit of each byte of w that is a quote, a backslash
// or a control character. Only the lowest set bit is reliable: a borrow may set
// bits above it.
func specialMask(w uint64) uint64 {
	quote, slash := w^(ones*'"'), w^(ones*'\\')
	return ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*' ')&^w) & highs
}

// firstSpecial returns the index of the first quote, backslash or control
// character of b, or len(b).
func firstSpecial(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		if specialMask(binary.LittleEndian.Uint64(b[i:])) != 0 {
			break
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < ' ' || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

// isPlain reports whether b is ASCII without quotes, backslashes and control
// characters.
func isPlain(b []byte) bool {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		if w := binary.LittleEndian.Uint64(b[i:]); (specialMask(w)|w)&highs != 0 {
			return false
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// unescape decodes the string at the start of b, which begins after the opening quote
// and has its first escape at the index at. It returns the decoded bytes and the index
// of the closing quote. For an invalid string, and for escaped surrogates, which it
// leaves to encoding/json, it returns nil and -1.
func unescape(b []byte, at int) (value []byte, end int) {
	value = append(make([]byte, 0, len(b[:at])+256), b[:at]...)
	for at < len(b) {
		switch c := b[at]; {
		case c == '"':
			return value, at
		case c < ' ':
			return nil, -1
		case c == '\\':
			r, n := decodeEscape(b[at:])
			if n == 0 {
				return nil, -1
			}
			value = utf8.AppendRune(value, r)
			at += n
		}
		run := firstSpecial(b[at:])
		value = append(value, b[at:at+run]...)
		at += run
	}
	return nil, -1
}

// decodeEscape returns the rune of the escape sequence at the start of b and
// its length in bytes, or 0 for an invalid or unsupported one.
func decodeEscape(b []byte) (r rune, n int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r = hex4(b[2:])
		if r < 0 || 0xd800 <= r && r < 0xe000 {
			return 0, 0
		}
		return r, 6
	}
	return 0, 0
}

// hex4 returns the value of four hexadecimal digits, or -1.
func hex4(b []byte) (r rune) {
	if len(b) < 4 {
		return -1
	}
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return -1
		}
	}
	return r
}

// maxNesting bounds the nesting of a raw document that the codec supports.
const maxNesting = 100

// compactLen returns the length of the JSON value at the start of b, or -1 if
// b starts with no valid value, the value has white space between its tokens,
// or it nests deeper than maxNesting.
func compactLen(b []byte) int { return compactLenAt(b, 0) }

// compactLenAt does the work of compactLen for a value that is nested in as many arrays
// and objects as depth says.
func compactLenAt(b []byte, depth int) int {
	if len(b) == 0 || depth > maxNesting {
		return -1
	}
	switch c := b[0]; c {
	case '"':
		return stringLen(b)
	case '{':
		return compactPartsLen(b, depth, '}')
	case '[':
		return compactPartsLen(b, depth, ']')
	case 't':
		return literalLen(b, "true")
	case 'f':
		return literalLen(b, "false")
	case 'n':
		return literalLen(b, "null")
	default:
		return numberLen(b)
	}
}

// compactPartsLen does the work of compactLen for an array or an object. The argument
// end is its closing bracket or brace.
func compactPartsLen(b []byte, depth int, end byte) int {
	at := 1
	if len(b) > 1 && b[1] == end {
		return 2
	}
	for {
		if end == '}' {
			n := -1
			if at < len(b) && b[at] == '"' {
				n = stringLen(b[at:])
			}
			if n < 0 || at+n >= len(b) || b[at+n] != ':' {
				return -1
			}
			at += n + 1
		}
		n := compactLenAt(b[at:], depth+1)
		if n < 0 || at+n >= len(b) {
			return -1
		}
		at += n + 1
		switch b[at-1] {
		case end:
			return at
		case ',':
		default:
			return -1
		}
	}
}

// stringLen returns the length of the string at the start of b, quotes
// included, or -1.
func stringLen(b []byte) int {
	at := 1
	for {
		at += firstSpecial(b[at:])
		if at >= len(b) {
			return -1
		}
		switch b[at] {
		case '"':
			return at + 1
		case '\\':
			n := 0
			if at+1 < len(b) {
				if n = 2; b[at+1] == 'u' {
					if n = 6; hex4(b[at+2:]) < 0 {
						return -1
					}
				} else if _, n = decodeEscape(b[at:]); n == 0 {
					return -1
				}
			}
			if n == 0 {
				return -1
			}
			at += n
		default:
			return -1
		}
	}
}

// literalLen returns the length of text if b starts with it, or -1.
func literalLen(b []byte, text string) int {
	if len(b) < len(text) || string(b[:len(text)]) != text {
		return -1
	}
	return len(text)
}

// numberLen returns the length of the number at the start of b, or -1.
func numberLen(b []byte) int {
	at := 0
	digits := func() (n int) {
		for at < len(b) && '0' <= b[at] && b[at] <= '9' {
			at++
			n++
		}
		return n
	}
	if at < len(b) && b[at] == '-' {
		at++
	}
	switch first := at; {
	case digits() == 0, at > first+1 && b[first] == '0':
		return -1
	}
	if at < len(b) && b[at] == '.' {
		if at++; digits() == 0 {
			return -1
		}
	}
	if at < len(b) && (b[at] == 'e' || b[at] == 'E') {
		if at++; at < len(b) && (b[at] == '+' || b[at] == '-') {
			at++
		}
		if digits() == 0 {
			return -1
		}
	}
	return at
}

// ulidText is the length of the text of a ULID.
const ulidText = 26

// ulidDigits are the digits of Crockford's base 32, the alphabet of a ULID.
const ulidDigits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ulidValues maps a digit to its value, and any other byte to 0xff. Letters
// are upper case only.
var ulidValues = func() (values [256]byte) {
	for i := range values {
		values[i] = 0xff
	}
	for i := range len(ulidDigits) {
		values[ulidDigits[i]] = byte(i)
	}
	return values
}()

// appendULID appends the text of a ULID.
func appendULID(b []byte, id [16]byte) []byte {
	hi, lo := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	var text [ulidText]byte
	for i := ulidText - 1; i >= 0; i-- {
		text[i] = ulidDigits[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return append(b, text[:]...)
}

// parseULID is the inverse of appendULID. It rejects the zero ULID.
func parseULID(text []byte) (id [16]byte, ok bool) {
	text = text[:ulidText]
	if text[0] > '7' { // 26 digits hold two bits more than a ULID
		return id, false
	}
	var hi, lo uint64
	var seen byte
	for _, c := range text[:13] {
		v := ulidValues[c]
		seen |= v
		hi = hi<<5 | uint64(v&31)
	}
	middle := ulidValues[text[13]] // its first bit belongs to hi, the others to lo
	seen |= middle
	for _, c := range text[14:] {
		v := ulidValues[c]
		seen |= v
		lo = lo<<5 | uint64(v&31)
	}
	hi, lo = hi<<1|uint64(middle&31)>>4, lo|uint64(middle&15)<<60
	if seen&0x80 != 0 || hi|lo == 0 {
		return id, false
	}
	binary.BigEndian.PutUint64(id[:8], hi)
	binary.BigEndian.PutUint64(id[8:], lo)
	return id, true
}
