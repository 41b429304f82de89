package index

import (
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

// A nameRow is a row of the table names.
type nameRow struct {
	segment int64
	key     string
	id      int64
}

// firstChars returns the first n characters of a text.
func firstChars(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

// backwards returns the last n characters of a text, the last one first.
func backwards(text string, n int) string {
	var b strings.Builder
	for ; n > 0 && text != ""; n-- {
		r, size := utf8.DecodeLastRuneInString(text)
		b.WriteRune(r)
		text = text[:len(text)-size]
	}
	return b.String()
}

// beginKey returns the key of a beginning of a name.
func beginKey(kind, text string) string {
	return kind + ">" + firstChars(strings.ToLower(text), beginChars)
}

// endKey returns the key of an end of a name.
func endKey(kind, text string) string {
	return kind + "<" + backwards(strings.ToLower(text), endChars)
}

// bare returns a name without a prefix such as "ses_", or the name if it has none.
func bare(name string) string {
	if _, rest, ok := strings.Cut(name, "_"); ok && rest != "" {
		return rest
	}
	return name
}

// nameWhole adds the beginning of a name with its prefix.
func (f *filler) nameWhole(kind, name string, id int64) { f.addName(beginKey(kind, name), id) }

// nameBegin adds the beginning of a name without its prefix.
func (f *filler) nameBegin(kind, name string, id int64) { f.addName(beginKey(kind, bare(name)), id) }

// nameEnd adds the end of a name.
func (f *filler) nameEnd(kind, name string, id int64) { f.addName(endKey(kind, name), id) }

// addName adds a row of the table names, which flushNames writes.
func (f *filler) addName(key string, id int64) {
	f.changed.names = append(f.changed.names, nameRow{f.progress.events >> segmentBits, key, id})
}

// namesAtOnce is the number of rows of one statement.
const namesAtOnce = 32

var (
	insertName  = "INSERT OR IGNORE INTO names (segment, key, id) VALUES (?, ?, ?)"
	insertNames = insertName + strings.Repeat(", (?, ?, ?)", namesAtOnce-1)
)

// flushNames writes the added names in the order of the table.
func (f *filler) flushNames() error {
	slices.SortFunc(f.changed.names, func(a, b nameRow) int {
		return cmp.Or(cmp.Compare(a.segment, b.segment), strings.Compare(a.key, b.key), cmp.Compare(a.id, b.id))
	})
	rest, args := f.changed.names, make([]any, 0, 3*namesAtOnce)
	for len(rest) > 0 {
		text, n := insertName, 1
		if len(rest) >= namesAtOnce {
			text, n = insertNames, namesAtOnce
		}
		args = args[:0]
		for _, row := range rest[:n] {
			args = append(args, row.segment, row.key, row.id)
		}
		if _, err := f.exec(text, args...); err != nil {
			return err
		}
		rest = rest[n:]
	}
	f.changed.names = f.changed.names[:0]
	return nil
}
