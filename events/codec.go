package events

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
)

// A jsonCodec encodes an event as JSON, or decodes one, key by key in the order in which
// the keys are written. One function does both for each type, so encoding and decoding
// cannot differ. The codec writes the bytes and decodes the values that encoding/json
// would, and reads only JSON in the form that it writes. It fails on any other JSON, and
// the caller then uses encoding/json. Decoded values share no memory with the document.
type jsonCodec struct {
	buf      []byte // the document: written so far, or to read
	pos      int    // offset of the next byte to read
	reading  bool
	failed   bool
	interned *internTable // used for reading; may be nil
}

// fail marks the document as unsupported by the codec.
func (c *jsonCodec) fail() { c.failed = true }

// complete reports whether the codec decoded the whole document.
func (c *jsonCodec) complete() bool { return !c.failed && c.pos == len(c.buf) }

// remaining returns the bytes not decoded yet.
func (c *jsonCodec) remaining() []byte { return c.buf[c.pos:] }

// literal writes text while it encodes. While it decodes, it moves past text,
// and fails if the document does not continue with text.
func (c *jsonCodec) literal(text string) {
	switch {
	case !c.reading:
		c.buf = append(c.buf, text...)
	case len(c.buf)-c.pos >= len(text) && string(c.buf[c.pos:c.pos+len(text)]) == text:
		c.pos += len(text)
	default:
		c.fail()
	}
}

// key encodes or decodes the key of a field, so that the value comes next. The argument
// key includes the quotes and the colon. The result tells the caller whether to encode
// or decode the value. While the codec encodes, the result is the argument present.
// While it decodes, the result is whether the document continues with this key.
func (c *jsonCodec) key(key string, present bool) bool {
	if c.failed {
		return false
	}
	if !c.reading {
		if !present {
			return false
		}
		if c.buf[len(c.buf)-1] != '{' {
			c.buf = append(c.buf, ',')
		}
		c.buf = append(c.buf, key...)
		return true
	}
	at := c.pos
	if c.buf[at-1] != '{' { // no value ends in an opening brace
		if at >= len(c.buf) || c.buf[at] != ',' {
			return false
		}
		at++
	}
	if len(c.buf)-at < len(key) || string(c.buf[at:at+len(key)]) != key {
		return false
	}
	c.pos = at + len(key)
	return true
}

// decodeFields decodes the fields of an event up to the end of the document.
// It returns nil if the codec failed.
func decodeFields[E Event](c *jsonCodec, e E, fields func(*jsonCodec, *E)) Event {
	fields(c, &e)
	c.literal("}")
	if !c.complete() {
		return nil
	}
	return e
}

// decodePacked does the work of decodeFields for an event with an encoded form.
func decodePacked[P packedEvent](c *jsonCodec, p P, fields func(*jsonCodec, *P)) Event {
	fields(c, &p)
	c.literal("}")
	if !c.complete() {
		return nil
	}
	return p.unpacked()
}

// always is passed as the argument present for a field that is written with every value.
const always = true

// readPlainString reads an ASCII string without escapes and returns the bytes
// between its quotes, which belong to the document.
func (c *jsonCodec) readPlainString() []byte {
	rest := c.remaining()
	if c.failed || len(rest) == 0 || rest[0] != '"' {
		c.fail()
		return nil
	}
	end := bytes.IndexByte(rest[1:], '"')
	if end < 0 || !isPlain(rest[1:1+end]) {
		c.fail()
		return nil
	}
	c.pos += end + 2
	return rest[1 : 1+end]
}

// textField encodes or decodes a field that is a string.
func textField[T ~string](c *jsonCodec, key string, v *T, present bool) {
	if !c.key(key, present) {
		return
	}
	if c.reading {
		*v = T(c.readString())
		return
	}
	c.buf = appendString(c.buf, string(*v))
}

// nameField encodes or decodes a field that is a string and often repeats in a
// log, such as the name of a tool. Decoding interns the string.
func nameField[T ~string](c *jsonCodec, key string, v *T, present bool) {
	if !c.key(key, present) {
		return
	}
	if !c.reading {
		c.buf = appendString(c.buf, string(*v))
		return
	}
	rest := c.remaining()
	if len(rest) == 0 || rest[0] != '"' {
		c.fail()
		return
	}
	if end := bytes.IndexByte(rest[1:], '"'); end >= 0 && isPlain(rest[1:1+end]) {
		*v = T(c.interned.intern(rest[1 : 1+end]))
		c.pos += end + 2
		return
	}
	*v = T(c.readString())
}

// readString reads a string into new memory.
func (c *jsonCodec) readString() string {
	rest := c.remaining()
	if c.failed || len(rest) == 0 || rest[0] != '"' {
		c.fail()
		return ""
	}
	rest = rest[1:]
	end := firstSpecial(rest)
	if end == len(rest) {
		c.fail()
		return ""
	}
	if rest[end] == '"' {
		c.pos += end + 2
		return c.validUTF8(rest[:end])
	}
	value, n := unescape(rest, end)
	if n < 0 {
		c.fail()
		return ""
	}
	c.pos += n + 2
	return c.validUTF8(value)
}

// validUTF8 returns text as a string. It fails on invalid UTF-8, because
// encoding/json decodes it to replacement characters.
func (c *jsonCodec) validUTF8(text []byte) string {
	if !utf8.Valid(text) {
		c.fail()
		return ""
	}
	return string(text)
}

// textElement encodes or decodes a string in a list.
func textElement[T ~string](c *jsonCodec, v *T) {
	if c.reading {
		*v = T(c.readString())
	} else {
		c.buf = appendString(c.buf, string(*v))
	}
}

// listField encodes or decodes a field that is a list. It calls the function each with a
// pointer to every element. A nil list is encoded as null.
func listField[T any, L ~[]T](c *jsonCodec, key string, v *L, present bool, each func(*jsonCodec, *T)) {
	if !c.key(key, present) {
		return
	}
	if !c.reading {
		if *v == nil {
			c.buf = append(c.buf, "null"...)
			return
		}
		c.buf = append(c.buf, '[')
		for i := range *v {
			if i > 0 {
				c.buf = append(c.buf, ',')
			}
			each(c, &(*v)[i])
		}
		c.buf = append(c.buf, ']')
		return
	}
	if bytes.HasPrefix(c.remaining(), []byte("null")) {
		c.pos += len("null")
		return
	}
	c.literal("[")
	all := L{}
	for !c.failed {
		if rest := c.remaining(); len(rest) > 0 && rest[0] == ']' && len(all) == 0 {
			break
		}
		if len(all) == 1 {
			all = slices.Grow(all, 3) // most lists have one, or a few
		}
		all = append(all, *new(T))
		each(c, &all[len(all)-1])
		if rest := c.remaining(); len(rest) == 0 || rest[0] != ',' {
			break
		}
		c.pos++
	}
	c.literal("]")
	*v = all
}

// boolField encodes or decodes a field that is a boolean.
func (c *jsonCodec) boolField(key string, v *bool, present bool) {
	if !c.key(key, present) {
		return
	}
	switch rest := c.remaining; {
	case !c.reading:
		c.buf = strconv.AppendBool(c.buf, *v)
	case bytes.HasPrefix(rest(), []byte("true")):
		*v = true
		c.pos += len("true")
	default:
		c.literal("false")
	}
}

// intField encodes or decodes a field that is an integer.
func intField[T ~int | ~int64](c *jsonCodec, key string, v *T, present bool) {
	if !c.key(key, present) {
		return
	}
	if !c.reading {
		c.buf = strconv.AppendInt(c.buf, int64(*v), 10)
		return
	}
	rest := c.remaining()
	n := 0
	for n < len(rest) && ('0' <= rest[n] && rest[n] <= '9' || rest[n] == '-') {
		n++
	}
	read, err := strconv.ParseInt(string(rest[:n]), 10, 64)
	// Leave 007, -0 and other spellings to encoding/json, and an overflow of T.
	if err != nil || strconv.FormatInt(read, 10) != string(rest[:n]) || int64(T(read)) != read {
		c.fail()
		return
	}
	*v = T(read)
	c.pos += n
}

// rawField encodes or decodes a field that is a JSON document without
// insignificant space. It fails on an empty document.
func (c *jsonCodec) rawField(key string, v *json.RawMessage, present bool) {
	if !c.key(key, present) {
		return
	}
	if !c.reading {
		if n := compactLen(*v); n != len(*v) || n == 0 {
			c.fail() // not JSON, or with space that encoding/json would remove
			return
		}
		c.buf = append(c.buf, *v...)
		return
	}
	n := compactLen(c.remaining())
	if n <= 0 {
		c.fail()
		return
	}
	*v = bytes.Clone(c.buf[c.pos : c.pos+n])
	c.pos += n
}

// idField encodes or decodes a field that is an ID.
func idField[K domain.IDKind](c *jsonCodec, key string, v *domain.ID[K], present bool) {
	if !c.key(key, present) {
		return
	}
	if !c.reading {
		c.buf = append(c.buf, '"')
		if !v.IsZero() {
			c.buf = append(append(c.buf, v.Prefix()...), '_')
			c.buf = appendULID(c.buf, v.Bytes())
		}
		c.buf = append(c.buf, '"')
		return
	}
	prefix := v.Prefix()
	rest := c.remaining()
	n := 1 + len(prefix) + 1
	switch {
	case bytes.HasPrefix(rest, []byte(`""`)):
		c.pos += 2
		return
	case len(rest) < n+ulidText+1 || rest[0] != '"' || string(rest[1:n-1]) != prefix || rest[n-1] != '_' || rest[n+ulidText] != '"':
		c.fail()
		return
	}
	b, ok := parseULID(rest[n : n+ulidText])
	if !ok {
		c.fail()
		return
	}
	*v = domain.IDFromBytes[K](b)
	c.pos += n + ulidText + 1
}

// enumField encodes or decodes a field that is a constant of a closed set. The
// name of the zero value is empty.
func enumField[T interface {
	~uint8
	String() string
}](c *jsonCodec, key string, v *T, present bool) {
	if !c.key(key, present) {
		return
	}
	if !c.reading {
		text := (*v).String()
		if len(text) > 0 && text[0] == '?' {
			c.fail() // outside the set
			return
		}
		c.buf = append(append(append(c.buf, '"'), text...), '"')
		return
	}
	text := c.readPlainString()
	if c.failed || len(text) > 0 && text[0] == '?' {
		c.fail()
		return
	}
	for i := range 64 {
		if one := T(i).String(); one == string(text) {
			*v = T(i)
			return
		}
	}
	c.fail()
}

// fingerprintField encodes or decodes a field that is a fingerprint.
func (c *jsonCodec) fingerprintField(key string, v *domain.Fingerprint, present bool) {
	if !c.key(key, present) {
		return
	}
	if !c.reading {
		c.buf = append(c.buf, '"')
		if !v.IsZero() {
			c.buf = hex.AppendEncode(c.buf, v[:])
		}
		c.buf = append(c.buf, '"')
		return
	}
	digits := c.readPlainString()
	if len(digits) == 0 {
		return
	}
	if len(digits) != hex.EncodedLen(len(v)) {
		c.fail()
		return
	}
	if _, err := hex.Decode(v[:], digits); err != nil {
		c.fail()
	}
}

// refField encodes or decodes a field that is a reference to a retained output.
func (c *jsonCodec) refField(key string, v *domain.Ref, present bool) {
	if !c.key(key, present) {
		return
	}
	if !c.reading {
		c.buf = appendString(c.buf, v.String())
		return
	}
	if v.UnmarshalText(c.readPlainString()) != nil {
		c.fail()
	}
}

// unsupportedField handles an optional field of a type that the codec does not
// support. If the field is present, encoding fails, and the caller uses
// encoding/json. Decoding does nothing here: it fails at the key of the field,
// where the codec expects another key or the end of the object.
func (c *jsonCodec) unsupportedField(present bool) {
	if !c.reading && present {
		c.fail()
	}
}

// contentElement encodes or decodes a text part. It fails on media, so the
// caller uses encoding/json: most of the time of media goes into base64, which
// the codec does not speed up.
func contentElement(c *jsonCodec, part *domain.Content) {
	if c.reading {
		c.literal(`{"type":"text"`)
		var t domain.Text
		if !c.failed {
			textField(c, `"text":`, &t, always)
		}
		c.literal("}")
		*part = t
		return
	}
	t, ok := (*part).(domain.Text)
	if !ok {
		c.fail()
		return
	}
	c.literal(`{"type":"text"`)
	textField(c, `"text":`, &t, t != "")
	c.literal("}")
}
