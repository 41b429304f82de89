package index

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index/where"
)

// conditions collects the parts of a condition of SQL, which AND joins, with their
// arguments.
type conditions struct {
	parts []string
	args  []any
}

// add adds a part. The first one may use an index; the others get a unary plus.
func (c *conditions) add(part string, args ...any) {
	if len(c.parts) > 0 {
		part = plus(part)
	}
	c.also(part, args...)
}

// plus returns a part for which SQLite uses no index.
func plus(part string) string {
	if rest, ok := strings.CutPrefix(part, "("); ok { // a row of columns
		return "(+" + rest
	}
	return "+" + part
}

// also adds a part as it is.
func (c *conditions) also(part string, args ...any) {
	c.parts, c.args = append(c.parts, part), append(c.args, args...)
}

// within adds the parts of a period. Its end is excluded, and a zero time is no bound.
func (c *conditions) within(column string, from, to time.Time) {
	first := len(c.parts) == 0
	for _, bound := range []struct {
		sign string
		at   time.Time
	}{{" >= ?", from}, {" < ?", to}} {
		if bound.at.IsZero() {
			continue
		}
		part := column + bound.sign
		if !first {
			part = plus(part)
		}
		c.also(part, bound.at)
	}
}

// where adds a condition over fields. With plain set, SQLite may use an index for it.
func (c *conditions) where(e *where.Expr, plain bool) {
	if text, args := e.SQL(plain); text != "" {
		c.also(text, args...)
	}
}

// text returns the condition of SQL.
func (c *conditions) text() string {
	if len(c.parts) == 0 {
		return "true"
	}
	return strings.Join(c.parts, " AND ")
}

// A Phrase is words that a text has next to each other, in this order. Case, accents and the
// characters between words do not matter. The zero Phrase has no word.
type Phrase struct {
	text   string
	prefix bool // the last word may be the beginning of a word
}

// ErrNoWord: a text to search has no letter and no digit.
var ErrNoWord = errors.New("the text has no word: a letter or a digit")

// maxPhrase is the largest text of a Phrase, in bytes.
const maxPhrase = 4096

// ErrLongPhrase: a text to search is too long.
var ErrLongPhrase = fmt.Errorf("the text has more than %d bytes", maxPhrase)

// NewPhrase returns the words of a text. A * at the end of the text makes its last word the
// beginning of a word. All other characters that are no letters and digits only separate
// words. It returns an ErrNoWord for a text without a word, and an ErrLongPhrase.
func NewPhrase(text string) (Phrase, error) {
	if len(text) > maxPhrase {
		return Phrase{}, ErrLongPhrase
	}
	words := strings.FieldsFunc(strings.ToValidUTF8(text, " "), func(r rune) bool { return !inWord(r) })
	if len(words) == 0 {
		return Phrase{}, ErrNoWord
	}
	return Phrase{strings.Join(words, " "), strings.HasSuffix(text, words[len(words)-1]+"*")}, nil
}

// inWord reports whether the tokenizer of the full-text index takes a character as a part of
// a word. A combining mark belongs to the character before it.
func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.Co, r) || unicode.Is(unicode.M, r)
}

// match returns the expression of FTS5. Its text has no quote.
func (p Phrase) match() string {
	if p.prefix {
		return `"` + p.text + `" *`
	}
	return `"` + p.text + `"`
}

// Paths selects paths. The zero Paths selects no path and restricts nothing.
type Paths struct {
	numbers []int64
	names   []string
}

// Names returns the selected paths, sorted.
func (p Paths) Names() []string { return p.names }

// JoinPaths returns the paths of both.
func JoinPaths(a, b Paths) Paths {
	return Paths{slices.Concat(a.numbers, b.numbers), slices.Concat(a.names, b.names)}
}

// selects reports whether p is not zero.
func (p Paths) selects() bool { return p.numbers != nil }

// in returns the condition of SQL that holds for the number of a selected path. All numbers
// are one parameter, because the number of parameters of a statement is bounded.
func (p Paths) in(column string) (string, []any) {
	list := []byte{'['}
	for i, n := range p.numbers {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, n, 10)
	}
	return column + " IN (SELECT value FROM json_each(?))", []any{string(append(list, ']'))}
}

// The statements of FindPaths.
const (
	pathByName    = "SELECT path, name FROM paths WHERE name = ?"
	pathsByBase   = "SELECT path, name FROM paths WHERE base = ? AND substr(name, -length(?)) = ? ORDER BY name LIMIT ?"
	pathsInFolder = "SELECT path, name FROM paths WHERE name >= ? AND name < ? ORDER BY name LIMIT ?"
	pathsLike     = "SELECT path, name FROM paths WHERE name LIKE ? ESCAPE '\\' ORDER BY name LIMIT ?"
)

// maxPaths is the largest number of paths that FindPaths returns.
const maxPaths = 10_000

// ErrManyPaths: a name fits more paths than a query takes.
var ErrManyPaths = fmt.Errorf("more than %d paths fit", maxPaths)

// FindPaths returns the recorded paths that a name means: the path itself, for a relative
// name that of the folder; the paths below it; or else those that end with the name. In a
// name with *, which is taken as it is, a * is any text. An ErrManyPaths has no paths.
func (s *Snapshot) FindPaths(folder, name string) (exact, below, ending Paths, err error) {
	if strings.Contains(name, "*") {
		exact, err = s.paths(pathsLike, strings.ReplaceAll(strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(name), "*", "%"), maxPaths+1)
		return exact, below, ending, err
	}
	whole := name
	if !path.IsAbs(name) && !strings.HasPrefix(name, "~") {
		whole = path.Join(folder, name)
	}
	whole = path.Clean(whole)
	if exact, err = s.paths(pathByName, whole); err != nil {
		return exact, below, ending, err
	}
	under := strings.TrimSuffix(whole, "/")
	if below, err = s.paths(pathsInFolder, under+"/", under+"0", maxPaths+1); err != nil || exact.selects() || below.selects() || path.IsAbs(name) {
		return exact, below, ending, err
	}
	clean := path.Clean(name)
	if strings.HasPrefix(clean, "..") || clean == "." {
		return exact, below, ending, nil
	}
	if ending, err = s.paths(pathsByBase, path.Base(clean), "/"+clean, "/"+clean, maxPaths+1); err == nil && !ending.selects() {
		ending, err = s.paths(pathByName, clean) // of a session without a workspace
	}
	return exact, below, ending, err
}

// paths returns the paths of a statement.
func (s *Snapshot) paths(text string, args ...any) (p Paths, err error) {
	err = s.each(func(c *columnReader) error {
		p.numbers, p.names = append(p.numbers, c.integer()), append(p.names, c.string())
		return nil
	}, text, args...)
	if len(p.numbers) > maxPaths {
		return Paths{}, ErrManyPaths
	}
	return p, err
}

// A PathUse is an access of a call to a path.
type PathUse struct {
	Path   string
	Access string // read, write or run
	Source string // result, input or request
}

// readPathUses selects the accesses of a call.
var readPathUses = "SELECT paths.name, path_uses.access, path_uses.source FROM calls AS c CROSS JOIN path_uses ON path_uses.call = c.id CROSS JOIN paths ON paths.path = path_uses.path" +
	" WHERE c.message = ? AND c.call = ? AND c.session = ? ORDER BY 1, 2, 3"

// PathUses returns the accesses of a call to the paths of p, or to all paths if p is zero.
func (s *Snapshot) PathUses(key calls.Key, p Paths) (all []PathUse, err error) {
	err = s.each(func(c *columnReader) error {
		if use := (PathUse{c.string(), c.string(), c.string()}); !p.selects() || slices.Contains(p.names, use.Path) {
			all = append(all, use)
		}
		return nil
	}, readPathUses, key.Message, string(key.Call), key.Session)
	return all, err
}
