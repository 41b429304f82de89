package render

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

// A Printer writes results to the standard output, and errors, hints and progress
// to the standard error, in the format that the user asked for. One goroutine may
// use it at a time.
type Printer struct {
	Out         *bufio.Writer               // results; the caller flushes it at the end, and while it follows a log
	Err         io.Writer                   // errors, hints and log lines
	Env         func(string) (string, bool) // looks up an environment variable
	Now         func() time.Time
	Terminal    bool     // Out writes to a terminal
	ErrTerminal bool     // Err writes to a terminal
	OutFile     *os.File // the file under Out; nil: no file
	ErrFile     *os.File // the file under Err; nil: no file

	Format Format         // of results and errors, from --output
	Color  coloring       // from --color
	UTC    bool           // format and parse times in UTC
	zone   *time.Location // the time zone if UTC is not set; nil: the local zone
}

// Line writes one line of results. Out keeps a write error and returns it at Flush.
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

// Rows writes rows in the format of p: a JSON array, or a JSON object on each line. For
// people it calls show, which writes a table.
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

// Object writes v in the format of p: as JSON, or for people by calling show.
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
