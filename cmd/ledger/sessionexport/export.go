package sessionexport

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/redaction"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// A Format is the form of an export. It is the value of the flag --format.
type Format string

// The formats.
const (
	HTML      Format = "html"  // one page that needs no network
	Markdown  Format = "md"    // text with headings
	JSONLines Format = "jsonl" // one entry per line, complete
	ATIF      Format = "atif"  // Agent Trajectory Interchange Format 1.8
	OTLP      Format = "otlp"  // traces of OpenTelemetry as JSON
)

// Formats lists the formats.
var Formats = []string{string(HTML), string(Markdown), string(JSONLines), string(ATIF), string(OTLP)}

// extensions are the ends of the names of files, by format.
var extensions = map[Format]string{HTML: ".html", Markdown: ".md", JSONLines: ".jsonl", ATIF: ".atif.json", OTLP: ".otlp.json"}

// String returns the value of the flag. With Type and Set it implements pflag.Value.
func (f *Format) String() string { return string(*f) }

// Type returns the placeholder of the flag's value in help texts.
func (f *Format) Type() string { return "format" }

// Set parses the value of the flag.
func (f *Format) Set(text string) error {
	if !slices.Contains(Formats, text) {
		return fmt.Errorf("%q is not %s", text, strings.Join(Formats, ", "))
	}
	*f = Format(text)
	return nil
}

// A Source is a log to export from.
type Source struct {
	Ledger *events.Ledger
	// Children returns the sessions that the calls of a session started.
	Children func(domain.SessionID) ([]calls.Session, error)
}

// Options are the form of an export and the part of the texts that it has.
type Options struct {
	Format Format
	// Full has texts whole that pages otherwise bound.
	Full bool
	// Redactor hides secrets. Nil: they are left.
	Redactor *redaction.Redactor
}

// Write writes a session up to its revision. The same session gives the same bytes. It
// reports the number of entries to progress as it goes on, if progress is not nil.
func Write(ctx context.Context, to io.Writer, from Source, s calls.Session, opts Options, progress func(events.Revision)) error {
	e := &export{ctx: ctx, from: from, opts: opts, progress: progress}
	out := bufio.NewWriterSize(to, 64<<10)
	var err error
	switch opts.Format {
	case HTML:
		err = e.writeHTML(out, s)
	case Markdown:
		err = e.writeMarkdown(out, s)
	case JSONLines:
		err = e.writeLines(out, s)
	case ATIF:
		err = e.writeATIF(out, s)
	case OTLP:
		err = e.writeOTLP(out, s)
	default:
		err = fmt.Errorf("format %q is not %s", opts.Format, strings.Join(Formats, ", "))
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("export session %s: %w", s.ID, err)
	}
	return nil
}

// An export is one run of Write.
type export struct {
	ctx      context.Context
	from     Source
	opts     Options
	progress func(events.Revision)
}

// A session is a session with what is known about it before its entries are read.
type session struct {
	calls.Session
	// pruned are the outputs of the session that were deleted.
	pruned map[domain.Ref]events.OutputPruned
}

// state returns the state of a session in words. An open session may go on.
func (s session) state() string {
	switch {
	case s.Closed:
		return "closed"
	case s.Open > 0:
		return "open"
	case s.Interrupted:
		return "interrupted"
	}
	return "resting"
}

// open returns a session without secrets and reads which of its outputs were deleted.
func (e *export) open(s calls.Session) (session, error) {
	opened := session{redacted(e.opts.Redactor, s), map[domain.Ref]events.OutputPruned{}}
	for v, err := range e.from.Ledger.Read(e.ctx, events.SessionStream(s.ID), 0) {
		if err != nil {
			return session{}, err
		}
		if v.Revision > s.Revision {
			break
		}
		if pruned, ok := v.Event.(events.OutputPruned); ok {
			opened.pruned[pruned.Retained.Ref] = pruned
		}
	}
	return opened, nil
}

// read calls use with each entry of a session up to its revision, without secrets.
func (e *export) read(s session, use func(timeline.Entry) error) error {
	for entry, err := range timeline.Read(e.ctx, e.from.Ledger, s.ID, s.Revision) {
		if err != nil {
			return err
		}
		if err := use(redacted(e.opts.Redactor, entry)); err != nil {
			return err
		}
		if e.progress != nil {
			e.progress(entry.Revision)
		}
	}
	return nil
}

// outcomeOf returns the outcome of a call, or open.
func outcomeOf(c *timeline.Call) string {
	if c.End == nil {
		return openOutcome
	}
	return c.End.Outcome.String()
}

// openOutcome is the outcome of a call without a settlement.
const openOutcome = "open"
