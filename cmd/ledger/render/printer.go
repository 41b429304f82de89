package render

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"time"
)

// A Printer writes results to the standard output, and errors, hints and progress to
// the standard error, in the format that the user asked for. One goroutine may use it
// at a time. The command sets the fields before the first use.
type Printer struct {
	// Out receives the results. The caller flushes it at the end, and while it
	// follows a log.
	Out *bufio.Writer
	// Err receives errors, hints and log lines, unbuffered.
	Err io.Writer
	// Env looks up an environment variable.
	Env func(string) (string, bool)
	// Now is the clock for relative times and for reading times.
	Now func() time.Time
	// Terminal and ErrTerminal report that Out and Err write to a terminal.
	Terminal    bool
	ErrTerminal bool
	// OutFile and ErrFile are the files under Out and Err, or nil if there is no
	// file, as in tests.
	OutFile *os.File
	ErrFile *os.File

	// Format is the format of results and errors, from --output.
	Format Format
	// Color is the value of --color.
	Color coloring
	// UTC selects UTC for printing and reading times. Otherwise zone applies, or the
	// local zone if zone is nil.
	UTC  bool
	zone *time.Location
}

// Line writes one formatted line of results. Out keeps a write error and returns it
// at Flush.
func (p *Printer) Line(format string, args ...any) {
	fmt.Fprintf(p.Out, format+"\n", args...)
}

// Fields writes a page of fields: a line for each name and value, with aligned values. It
// omits fields with an empty value. The arguments are name, value, name, value and so on.
func (p *Printer) Fields(pairs ...string) {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			width = max(width, len(pairs[i]))
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			p.Line("%s  %s", p.Styled(Dim, fmt.Sprintf("%-*s", width, pairs[i])), pairs[i+1])
		}
	}
}

// Rows writes rows in the format of p: a JSON array, or a JSON object on each line. In
// the format for people it calls the function show instead, which writes a table. It
// returns an error if a row has no JSON form; the rows before that row may already be
// written.
func Rows[T any](p *Printer, rows []T, show func()) error {
	switch p.Format {
	case AsJSON:
		if rows == nil {
			rows = []T{}
		}
		return p.document(rows)
	case AsJSONLines:
		for _, row := range rows {
			if err := p.JSONLine(row); err != nil {
				return err
			}
		}
		return nil
	}
	show()
	return nil
}

// Object writes v as JSON, or calls the function show in the format for people. It
// returns an error if v has no JSON form.
func (p *Printer) Object(v any, show func()) error {
	switch p.Format {
	case AsJSON:
		return p.document(v)
	case AsJSONLines:
		return p.JSONLine(v)
	}
	show()
	return nil
}

// ObjectWithList writes a JSON object: the fields of head, and the list rows as its last
// field key. It holds one row at a time. After an error of rows the object is incomplete.
func ObjectWithList[T any](p *Printer, head any, key string, rows iter.Seq2[T, error]) error {
	object, err := EncodeJSON(head)
	if err != nil {
		return err
	}
	name, err := EncodeJSON(key)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	indented := p.Format == AsJSON
	line := func(prefix string) string {
		if indented {
			return "\n" + prefix
		}
		return ""
	}
	put := func(data []byte, prefix string) error {
		if !indented {
			b.Write(data)
			return nil
		}
		return json.Indent(&b, data, prefix, "  ")
	}
	if err := put(object, ""); err != nil {
		return err
	}
	b.Truncate(len(bytes.TrimSuffix(b.Bytes(), []byte(line("")+"}"))))
	colon := ":"
	if indented {
		colon = ": "
	}
	fmt.Fprintf(&b, ",%s%s%s[", line("  "), name, colon)
	n := 0
	for row, err := range rows {
		if err != nil {
			return err
		}
		data, err := EncodeJSON(row)
		if err != nil {
			return err
		}
		if n > 0 {
			b.WriteString(",")
		}
		b.WriteString(line("    "))
		if err := put(data, "    "); err != nil {
			return err
		}
		if _, err := b.WriteTo(p.Out); err != nil {
			return err
		}
		n++
	}
	if n > 0 {
		b.WriteString(line("  "))
	}
	fmt.Fprintf(&b, "]%s}\n", line(""))
	_, err = b.WriteTo(p.Out)
	return err
}

// document writes v as indented JSON.
func (p *Printer) document(v any) error {
	data, err := EncodeJSON(v)
	if err != nil {
		return err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		return err
	}
	p.Line("%s", indented.Bytes())
	return nil
}

// JSONLine writes v as JSON on one line.
func (p *Printer) JSONLine(v any) error {
	data, err := EncodeJSON(v)
	if err == nil {
		p.Line("%s", data)
	}
	return err
}

// Logger returns a logger that writes to the standard error: text for people, and JSON if
// the format is JSON.
func (p *Printer) Logger(level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if p.Format == AsTable {
		return slog.New(slog.NewTextHandler(p.Err, options))
	}
	return slog.New(slog.NewJSONHandler(p.Err, options))
}

// Variable returns the value of an environment variable, or an empty string if it is not set.
func (p *Printer) Variable(name string) string {
	value, _ := p.Env(name)
	return value
}
