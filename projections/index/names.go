package index

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// The kinds of names, which begin the keys of the table names.
const (
	sessionNames = "s"
	turnNames    = "t"
	callNames    = "c"
	messageNames = "m"
)

// The lengths of a key in characters. A segment of the table names has the names of
// 1<<segmentBits events. A look-up seeks once in each segment; in return, the rows of a
// batch change few pages of the table.
const (
	beginChars  = 32
	endChars    = 12
	segmentBits = 17
)

// maxNames is the number of names in memory after which a bulk fill writes them, because
// rows in the order of the table change few of its pages.
const maxNames = 64 << 10

// A nameRow is a row of the table names, whose key is a part of names.keys.
type nameRow struct {
	segment, id int64
	from, to    int
}

// names holds rows of the table names.
type names struct {
	rows []nameRow
	keys []byte
}

// key returns the key of a row.
func (n *names) key(r nameRow) []byte { return n.keys[r.from:r.to] }

// isPlain reports whether a text is ASCII.
func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// lower returns an ASCII character in lower case.
func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// appendBeginKey appends the key of a beginning of a name.
func appendBeginKey(b []byte, kind, text string) []byte {
	b = append(append(b, kind...), '>')
	if isPlain(text) {
		for i := range min(len(text), beginChars) {
			b = append(b, lower(text[i]))
		}
		return b
	}
	n := 0
	for _, r := range strings.ToLower(text) {
		if n++; n > beginChars {
			break
		}
		b = utf8.AppendRune(b, r)
	}
	return b
}

// appendEndKey appends the key of an end of a name.
func appendEndKey(b []byte, kind, text string) []byte {
	b = append(append(b, kind...), '<')
	if isPlain(text) {
		for i := range min(len(text), endChars) {
			b = append(b, lower(text[len(text)-1-i]))
		}
		return b
	}
	text = strings.ToLower(text)
	for n := endChars; n > 0 && text != ""; n-- {
		r, size := utf8.DecodeLastRuneInString(text)
		b = utf8.AppendRune(b, r)
		text = text[:len(text)-size]
	}
	return b
}

// beginKey returns the key of a beginning of a name.
func beginKey(kind, text string) string { return string(appendBeginKey(nil, kind, text)) }

// endKey returns the key of an end of a name.
func endKey(kind, text string) string { return string(appendEndKey(nil, kind, text)) }

// bare returns a name without a prefix such as "ses_", or the name if it has none.
func bare(name string) string {
	if _, rest, ok := strings.Cut(name, "_"); ok && rest != "" {
		return rest
	}
	return name
}

// nameWhole adds the beginning of a name with its prefix.
func (f *filler) nameWhole(kind, name string, id int64) {
	from := len(f.names.keys)
	f.names.keys = appendBeginKey(f.names.keys, kind, name)
	f.addName(from, id)
}

// nameBegin adds the beginning of a name without its prefix.
func (f *filler) nameBegin(kind, name string, id int64) { f.nameWhole(kind, bare(name), id) }

// nameEnd adds the end of a name.
func (f *filler) nameEnd(kind, name string, id int64) {
	from := len(f.names.keys)
	f.names.keys = appendEndKey(f.names.keys, kind, name)
	f.addName(from, id)
}

// addName adds a row of the table names, whose key begins at a place of the keys.
// flushNames writes it.
func (f *filler) addName(from int, id int64) {
	f.names.rows = append(f.names.rows, nameRow{f.progress.events >> segmentBits, id, from, len(f.names.keys)})
}

// flushNames writes the added names in the order of the table.
func (f *filler) flushNames() error {
	n := &f.names
	slices.SortFunc(n.rows, func(a, b nameRow) int {
		return cmp.Or(cmp.Compare(a.segment, b.segment), bytes.Compare(n.key(a), n.key(b)), cmp.Compare(a.id, b.id))
	})
	for _, row := range n.rows {
		if err := f.insert.names.add(row.segment, n.key(row), row.id); err != nil {
			return err
		}
	}
	n.rows, n.keys = n.rows[:0], n.keys[:0]
	return f.insert.names.flush()
}
