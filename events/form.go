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

// A form goes through the JSON of an event, key after key in the order in
// which they are written, and either writes it or reads it. It does only what
// encoding/json does, byte for byte and value for value, and of that only what
// is usual: it reads nothing but what was written here. At anything else it
// fails, which is no error: encoding/json then has the word. A form that reads
// leaves in what it read no reference to the document.
type form struct {
	b       []byte // what is written so far; what is read
	at      int    // behind what was read
	reading bool
	failed  bool
	known   *known // where it reads: what came before and may come again; may be nil
}

// fail says that this form does not do.
func (f *form) fail() { f.failed = true }

// done reports whether a document was read whole.
func (f *form) done() bool { return !f.failed && f.at == len(f.b) }

// rest returns what is to be read.
func (f *form) rest() []byte { return f.b[f.at:] }

// token writes or reads a text as it stands.
func (f *form) token(text string) {
	switch {
	case !f.reading:
		f.b = append(f.b, text...)
	case len(f.b)-f.at >= len(text) && string(f.b[f.at:f.at+len(text)]) == text:
		f.at += len(text)
	default:
		f.fail()
	}
}

// key goes to the value of a key, which is given in quotes and with its colon.
// It reports whether there is one: written if present says so, read if it
// comes next.
func (f *form) key(key string, present bool) bool {
	if f.failed {
		return false
	}
	if !f.reading {
		if !present {
			return false
		}
		if f.b[len(f.b)-1] != '{' {
			f.b = append(f.b, ',')
		}
		f.b = append(f.b, key...)
		return true
	}
	at := f.at
	if f.b[at-1] != '{' { // as no value ends in it
		if at >= len(f.b) || f.b[at] != ',' {
			return false
		}
		at++
	}
	if len(f.b)-at < len(key) || string(f.b[at:at+len(key)]) != key {
		return false
	}
	f.at = at + len(key)
	return true
}

// always is for a key that is written whatever its value.
const always = true

// quoted reads a string without escapes, between its quotes, which belongs to
// the document.
func (f *form) quoted() []byte {
	rest := f.rest()
	if f.failed || len(rest) == 0 || rest[0] != '"' {
		f.fail()
		return nil
	}
	end := bytes.IndexByte(rest[1:], '"')
	if end < 0 || !plain(rest[1:1+end]) {
		f.fail()
		return nil
	}
	f.at += end + 2
	return rest[1 : 1+end]
}

// text is the value of a string.
func text[T ~string](f *form, key string, v *T, present bool) {
	if !f.key(key, present) {
		return
	}
	if f.reading {
		*v = T(f.string())
		return
	}
	f.b = appendString(f.b, string(*v))
}

// name is text that is likely to come again.
func name[T ~string](f *form, key string, v *T, present bool) {
	if !f.key(key, present) {
		return
	}
	if !f.reading {
		f.b = appendString(f.b, string(*v))
		return
	}
	rest := f.rest()
	if len(rest) == 0 || rest[0] != '"' {
		f.fail()
		return
	}
	if end := bytes.IndexByte(rest[1:], '"'); end >= 0 && plain(rest[1:1+end]) {
		*v = T(f.known.text(rest[1 : 1+end]))
		f.at += end + 2
		return
	}
	*v = T(f.string())
}

// string reads a string.
func (f *form) string() string {
	rest := f.rest()
	if f.failed || len(rest) == 0 || rest[0] != '"' {
		f.fail()
		return ""
	}
	rest = rest[1:]
	end := special(rest)
	if end == len(rest) {
		f.fail()
		return ""
	}
	if rest[end] == '"' {
		f.at += end + 2
		return f.valid(rest[:end])
	}
	value, n := unescaped(rest, end)
	if n < 0 {
		f.fail()
		return ""
	}
	f.at += n + 2
	return f.valid(value)
}

// valid returns a text of its own. What is not UTF-8 is for encoding/json.
func (f *form) valid(text []byte) string {
	if !utf8.Valid(text) {
		f.fail()
		return ""
	}
	return string(text)
}

// strings is a list of strings. A nil list is null.
func (f *form) strings(key string, v *[]string, present bool) {
	list(f, key, v, present, func(f *form, s *string) {
		if f.reading {
			*s = f.string()
		} else {
			f.b = appendString(f.b, *s)
		}
	})
}

// list is an array. A nil list is null.
func list[T any, L ~[]T](f *form, key string, v *L, present bool, each func(*form, *T)) {
	if !f.key(key, present) {
		return
	}
	if !f.reading {
		if *v == nil {
			f.b = append(f.b, "null"...)
			return
		}
		f.b = append(f.b, '[')
		for i := range *v {
			if i > 0 {
				f.b = append(f.b, ',')
			}
			each(f, &(*v)[i])
		}
		f.b = append(f.b, ']')
		return
	}
	if bytes.HasPrefix(f.rest(), []byte("null")) {
		f.at += len("null")
		return
	}
	f.token("[")
	all := L{}
	for !f.failed {
		if rest := f.rest(); len(rest) > 0 && rest[0] == ']' && len(all) == 0 {
			break
		}
		if len(all) == 1 {
			all = slices.Grow(all, 3) // most lists have one, or a few
		}
		all = append(all, *new(T))
		each(f, &all[len(all)-1])
		if rest := f.rest(); len(rest) == 0 || rest[0] != ',' {
			break
		}
		f.at++
	}
	f.token("]")
	*v = all
}

// truth is a boolean.
func (f *form) truth(key string, v *bool, present bool) {
	if !f.key(key, present) {
		return
	}
	switch rest := f.rest; {
	case !f.reading:
		f.b = strconv.AppendBool(f.b, *v)
	case bytes.HasPrefix(rest(), []byte("true")):
		*v = true
		f.at += len("true")
	default:
		f.token("false")
	}
}

// number is a whole number.
func (f *form) number(key string, v *int64, present bool) {
	if !f.key(key, present) {
		return
	}
	if !f.reading {
		f.b = strconv.AppendInt(f.b, *v, 10)
		return
	}
	rest := f.rest()
	n := 0
	for n < len(rest) && ('0' <= rest[n] && rest[n] <= '9' || rest[n] == '-') {
		n++
	}
	read, err := strconv.ParseInt(string(rest[:n]), 10, 64)
	// Only the one way to write a number is read here.
	if err != nil || strconv.FormatInt(read, 10) != string(rest[:n]) {
		f.fail()
		return
	}
	*v = read
	f.at += n
}

// raw is a document within the document. An empty one is null.
func (f *form) raw(key string, v *json.RawMessage, present bool) {
	if !f.key(key, present) {
		return
	}
	if !f.reading {
		if n := compact(*v); n != len(*v) || n == 0 {
			f.fail() // it is not JSON, or has spaces that are not written
			return
		}
		f.b = append(f.b, *v...)
		return
	}
	n := compact(f.rest())
	if n <= 0 {
		f.fail()
		return
	}
	*v = bytes.Clone(f.b[f.at : f.at+n])
	f.at += n
}

// id is an ID.
func id[K domain.Kind](f *form, key string, v *domain.ID[K], present bool) {
	if !f.key(key, present) {
		return
	}
	if !f.reading {
		f.b = append(f.b, '"')
		if !v.IsZero() {
			f.b = append(append(f.b, v.Prefix()...), '_')
			f.b = appendULID(f.b, v.Bytes())
		}
		f.b = append(f.b, '"')
		return
	}
	prefix := v.Prefix()
	rest := f.rest()
	n := 1 + len(prefix) + 1
	switch {
	case bytes.HasPrefix(rest, []byte(`""`)):
		f.at += 2
		return
	case len(rest) < n+ulidText+1 || rest[0] != '"' || string(rest[1:n-1]) != prefix || rest[n-1] != '_' || rest[n+ulidText] != '"':
		f.fail()
		return
	}
	b, ok := parseULID(rest[n : n+ulidText])
	if !ok {
		f.fail()
		return
	}
	*v = domain.IDFromBytes[K](b)
	f.at += n + ulidText + 1
}

// word is one of a closed set, the text of whose zero value is empty.
func word[T interface {
	~uint8
	String() string
}](f *form, key string, v *T, present bool) {
	if !f.key(key, present) {
		return
	}
	if !f.reading {
		text := (*v).String()
		if len(text) > 0 && text[0] == '?' {
			f.fail() // it is outside the set
			return
		}
		f.b = append(append(append(f.b, '"'), text...), '"')
		return
	}
	text := f.quoted()
	if f.failed || len(text) > 0 && text[0] == '?' {
		f.fail()
		return
	}
	for i := range 64 {
		if one := T(i).String(); one == string(text) {
			*v = T(i)
			return
		}
	}
	f.fail()
}

// fingerprint is a fingerprint.
func (f *form) fingerprint(key string, v *domain.Fingerprint, present bool) {
	if !f.key(key, present) {
		return
	}
	if !f.reading {
		f.b = append(f.b, '"')
		if !v.IsZero() {
			f.b = hex.AppendEncode(f.b, v[:])
		}
		f.b = append(f.b, '"')
		return
	}
	digits := f.quoted()
	if len(digits) == 0 {
		return
	}
	if len(digits) != hex.EncodedLen(len(v)) {
		f.fail()
		return
	}
	if _, err := hex.Decode(v[:], digits); err != nil {
		f.fail()
	}
}
