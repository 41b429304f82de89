package builtins

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// The limits of a page of text.
const (
	// pageLines is the maximum number of lines of a page. Two lines of the output limit are
	// left for the note about further lines.
	pageLines = 2000 - 2
	// maxRunes is the maximum length of a line in runes.
	maxRunes = 2000
	// maxWholeFile is the maximum size of a file that is returned as a whole, in bytes.
	maxWholeFile = 50 << 10
	// maxPageBytes is the maximum size of the content of a page as JSON, in bytes. The
	// rest of maxWholeFile is for the other members of the output.
	maxPageBytes = maxWholeFile - 512
)

var (
	// errOffsetOutOfRange is the error of an offset behind the last line or entry.
	errOffsetOutOfRange = errors.New("offset is out of range")
	// errNotText is the error of a file that is not UTF-8.
	errNotText = errors.New("it is not UTF-8 text")
)

// A lineForm selects how a lineReader treats lines over maxRunes and invalid UTF-8.
type lineForm uint8

const (
	// cutLines cuts long lines and marks the cut. Invalid UTF-8 is an error.
	cutLines lineForm = iota + 1
	// wrapLines continues long lines on the next line, so that no text is lost, and replaces
	// invalid UTF-8.
	wrapLines
)

// readPage returns the lines that begin at the offset in the input of the call, up to
// the limits of a page. Its memory is bounded by one page and one line, however long r
// is.
func readPage(r io.Reader, in readArgs, form lineForm) (readResult, error) {
	lines := &lineReader{from: bufio.NewReaderSize(r, 64<<10), form: form}
	from, n := in.firstLine(), 0
	var content strings.Builder
	room := maxPageBytes
	for {
		line, err := lines.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return readResult{}, err
		}
		if n++; n < from {
			continue
		}
		room -= encodedLen(line) + len(`\n`)
		if n-from == in.lineLimit() || room < 0 && n > from {
			return readResult{Type: textPage, Content: content.String(), Offset: from, Truncated: true, Next: n}, nil
		}
		if n > from {
			content.WriteByte('\n')
		}
		content.WriteString(line)
	}
	if from > max(n, 1) {
		return readResult{}, fmt.Errorf("%w: %d: there are %d lines", errOffsetOutOfRange, from, n)
	}
	return readResult{Type: textPage, Content: content.String(), Offset: from}, nil
}

// encodedLen returns the length of text in a JSON string, in bytes. It can be too large
// for text that contains the byte 0xe2, and is never too small.
func encodedLen(text string) int {
	n := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\t' || c == '\r' || c == '\b' || c == '\f':
			n++
		case c < ' ':
			n += len(`\u0000`) - 1
		case c == 0xe2: // a line or paragraph separator begins so
			n += len(`\u2028`) - len("\u2028")
		}
	}
	return n
}

// A lineReader yields lines without their line ends. It cuts or wraps a line over
// maxRunes. A line end at the end of the input begins no line.
type lineReader struct {
	from *bufio.Reader
	form lineForm
}

// maxLineBytes is the maximum size of maxRunes runes, in bytes.
const maxLineBytes = utf8.UTFMax * maxRunes

// lineCut marks a cut line.
const lineCut = "... (line truncated to 2000 chars)"

// next returns the next line as valid UTF-8, or io.EOF.
func (l *lineReader) next() (string, error) {
	line, err := l.nextBytes()
	if err != nil {
		return "", err
	}
	if l.form == cutLines && !utf8.Valid(line) {
		return "", errNotText
	}
	return strings.ToValidUTF8(string(line), "\ufffd"), nil
}

// nextBytes returns the bytes of the next line, without its line end. It cuts or wraps a
// line over maxRunes.
func (l *lineReader) nextBytes() ([]byte, error) {
	ahead, err := l.from.Peek(maxLineBytes + len("\r\n"))
	if len(ahead) == 0 {
		return nil, err
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	end := bytes.IndexByte(ahead, '\n')
	ended := end >= 0
	if !ended {
		end = len(ahead)
	}
	line := slices.Clone(ahead[:end])
	if trimmed := bytes.TrimSuffix(line, []byte("\r")); ended && utf8.RuneCount(trimmed) <= maxRunes || !ended && err == io.EOF && utf8.RuneCount(line) <= maxRunes {
		_, err := l.from.Discard(min(end+1, len(ahead)))
		if ended {
			line = trimmed
		}
		return line, err
	}
	line = line[:runeOffset(line, maxRunes)]
	if l.form == wrapLines {
		_, err := l.from.Discard(len(line))
		return line, err
	}
	return append(line, lineCut...), l.skipLine()
}

// skipLine discards the input up to the next line end or the end of the input.
func (l *lineReader) skipLine() error {
	for {
		switch _, err := l.from.ReadSlice('\n'); err {
		case nil, io.EOF:
			return nil
		case bufio.ErrBufferFull:
		default:
			return err
		}
	}
}

// runeOffset returns the byte offset at which the first n runes of a line end.
func runeOffset(line []byte, n int) int {
	at := 0
	for ; n > 0 && at < len(line); n-- {
		_, size := utf8.DecodeRune(line[at:])
		at += size
	}
	return at
}

// sampleSize is the number of bytes that decide the type of a file.
const sampleSize = 4096

// isBinary reports whether a file is binary: by the extension of its name, a NUL, or
// over 30 % control characters in its first bytes.
func isBinary(name string, head []byte) bool {
	if slices.Contains(binaryExtensions, strings.ToLower(filepath.Ext(name))) || bytes.IndexByte(head, 0) >= 0 {
		return true
	}
	odd := 0
	for _, c := range head {
		if c < ' ' && !bytes.ContainsRune([]byte("\t\n\v\f\r\b\x1b"), rune(c)) || c == 0x7f {
			odd++
		}
	}
	return odd*10 > len(head)*3
}

// binaryExtensions are the extensions of files that are always binary.
var binaryExtensions = []string{".7z", ".a", ".bin", ".bz2", ".class", ".dat", ".dll", ".doc", ".docx", ".dylib", ".exe", ".gz", ".jar", ".lib", ".o", ".obj",
	".odp", ".ods", ".odt", ".pdf", ".ppt", ".pptx", ".pyc", ".pyo", ".rar", ".so", ".tar", ".war", ".wasm", ".xls", ".xlsx", ".xz", ".zip", ".zst"}

// mimeOf returns the media type of a text file from its extension, text/plain if the
// extension is not known.
func mimeOf(name string) string {
	if mime, ok := textTypes[strings.ToLower(filepath.Ext(name))]; ok {
		return mime
	}
	return "text/plain"
}

// textTypes are media types by extension. They do not come from the system, whose
// table differs between systems.
var textTypes = map[string]string{
	".css": "text/css", ".csv": "text/csv", ".htm": "text/html", ".html": "text/html", ".js": "text/javascript", ".json": "application/json",
	".md": "text/markdown", ".mjs": "text/javascript", ".svg": "image/svg+xml", ".toml": "application/toml", ".xml": "application/xml",
	".yaml": "application/yaml", ".yml": "application/yaml",
}
