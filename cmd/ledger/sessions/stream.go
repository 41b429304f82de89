package sessions

import (
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
)

// A streamWriter writes the texts of replies to the standard output as they arrive. It
// replaces the characters that control a terminal. A nil streamWriter writes nothing. It
// is not safe for concurrent use.
type streamWriter struct {
	*render.Printer
	midLine  bool // the last line has no end
	thinking bool // the last text was thinking
}

// newStream returns a writer for the texts of replies. It returns nil if they are not
// streamed, because the standard output is no terminal or the result is JSON.
func (l *Launcher) newStream() *streamWriter {
	if !l.Printer.Terminal || l.Format != render.AsTable {
		return nil
	}
	return &streamWriter{Printer: l.Printer}
}

// writeText writes a part of the text of a reply.
func (w *streamWriter) writeText(text string) {
	if w != nil {
		w.write(text, render.Printable(text), false)
	}
}

// writeThinking writes a part of the thinking of a model, dimmed. It writes nothing if
// results have no colours, because a reader could not tell thinking from text.
func (w *streamWriter) writeThinking(text string) {
	if w == nil || w.Styled(render.Dim, "-") == "-" {
		return
	}
	body := strings.TrimRight(text, "\n")
	w.write(text, w.Styled(render.Dim, render.Printable(body))+text[len(body):], true)
}

// write writes shown, the form of a text on the terminal. Thinking and text do not share a
// line.
func (w *streamWriter) write(text, shown string, thinking bool) {
	if text == "" {
		return
	}
	if thinking != w.thinking {
		w.endLine()
	}
	w.thinking, w.midLine = thinking, !strings.HasSuffix(text, "\n")
	_, _ = w.Out.WriteString(shown) // Flush at the end of the command returns the error of a write
	_ = w.Out.Flush()
}

// endLine ends the last line if it has no end.
func (w *streamWriter) endLine() {
	if w != nil && w.midLine {
		w.midLine = false
		_, _ = w.Out.WriteString("\n")
		_ = w.Out.Flush()
	}
}
