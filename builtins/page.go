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
	pageLines    = 2000 - 2           // with room for what says that there is more
	maxRunes     = 2000               // of a line
	maxWholeFile = 50 << 10           // bytes of a file that is returned whole
	maxPageBytes = maxWholeFile - 512 // bytes of content, encoded as JSON, with room for the rest of the output
)

var (
	errOffsetOutOfRange = errors.New("offset is out of range")
	errNotText          = errors.New("it is not UTF-8 text")
)

// A lineForm decides how lines over maxRunes and invalid UTF-8 are returned.
type lineForm uint8

const (
	cutLines  lineForm = iota + 1 // they are cut, and say so; such bytes are an error
	wrapLines                     // they go on as the next line, so that nothing is lost; such bytes are replaced
)

// readPage returns the lines of a text from an offset on. It holds one page and
// one line in memory.
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

// encodedLen returns the length of text in a JSON string.
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

// A lineReader yields lines without their line ends, each cut to maxRunes with a marker. A
// line end at the end of the input begins no line.
type lineReader struct {
	from *bufio.Reader
	form lineForm
}

// maxLineBytes is more than maxRunes can take.
const maxLineBytes = utf8.UTFMax * maxRunes

const lineCut = "... (line truncated to 2000 chars)"

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

// nextBytes returns the bytes of a line.
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

// skipLine goes on behind the next line end.
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

// runeOffset returns where the first n runes of a line end.
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

// isBinary reports whether a file is no text: by its name, by a NUL, or by more
// than three in ten bytes that do not print.
func isBinary(name string, head []byte) bool {
	if slices.Contains(binaryExtensions, strings.ToLower(filepath.Ext(name))) || bytes.HasPrefix(head, []byte("%PDF-")) || bytes.IndexByte(head, 0) >= 0 {
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

// binaryExtensions are extensions of files that are no text.
var binaryExtensions = []string{".7z", ".a", ".bin", ".bz2", ".class", ".dat", ".dll", ".doc", ".docx", ".dylib", ".exe", ".gz", ".jar", ".lib", ".o", ".obj",
	".odp", ".ods", ".odt", ".pdf", ".ppt", ".pptx", ".pyc", ".pyo", ".rar", ".so", ".tar", ".war", ".wasm", ".xls", ".xlsx", ".xz", ".zip", ".zst"}

// mimeOf returns the media type of a text file by its name.
func mimeOf(name string) string {
	if mime, ok := textTypes[strings.ToLower(filepath.Ext(name))]; ok {
		return mime
	}
	return "text/plain"
}

// textTypes are media types by extension: a table of this package, as that of
// the system differs between systems.
var textTypes = map[string]string{
	".css": "text/css", ".csv": "text/csv", ".htm": "text/html", ".html": "text/html", ".js": "text/javascript", ".json": "application/json",
	".md": "text/markdown", ".mjs": "text/javascript", ".svg": "image/svg+xml", ".toml": "application/toml", ".xml": "application/xml",
	".yaml": "application/yaml", ".yml": "application/yaml",
}
