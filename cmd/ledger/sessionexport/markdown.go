package sessionexport

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// writeMarkdown writes a session as Markdown. Texts of the session are in fenced blocks and
// code spans, so none of them is markup.
func (e *export) writeMarkdown(out *bufio.Writer, known calls.Session) error {
	s, err := e.open(known)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "# Session %s\n\n", s.ID)
	for _, f := range headFields(s) {
		fmt.Fprintf(out, "- %s: %s\n", f[0], span(f[1]))
	}
	b := &pageBuilder{session: s, full: e.opts.Full}
	err = e.read(s, func(entry timeline.Entry) error {
		for _, it := range b.items(entry) {
			writeItem(out, it)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if counts := e.opts.Redactor.Counts(); len(counts) > 0 {
		fmt.Fprint(out, "\n## Hidden\n\n")
		for _, c := range counts {
			fmt.Fprintf(out, "- %s: %d\n", c.Rule, c.Hidden)
		}
	}
	return nil
}

// headFields are the fields of a session.
func headFields(s session) [][2]string {
	var it item
	it.field("agent", string(s.Agent))
	it.field("model", s.Model)
	it.field("location", s.Location)
	it.field("origin", strings.TrimSpace(string(s.Origin.Kind)+" "+s.Origin.Format))
	if !s.Parent.IsZero() {
		it.field("parent", s.Parent.String())
	}
	it.field("opened", render.Timestamp(s.Opened).String())
	it.field("last event", render.Timestamp(s.LastEvent).String())
	it.field("state", fmt.Sprintf("%s at revision %d", s.state(), s.Revision))
	it.field("calls", fmt.Sprintf("%d: %d open, %d not succeeded", s.Calls, s.Open, s.Failed))
	return it.Fields
}

// writeItem writes an item: calls below the reply that asks for them.
func writeItem(out *bufio.Writer, it item) {
	heading := "##" + strings.Repeat("#", it.depth)
	fmt.Fprintf(out, "\n%s %s %s", heading, elapsed(it.at), span(it.kind))
	if it.kind == "call" {
		fmt.Fprintf(out, " %s: %s", span(it.name), it.outcome)
	}
	fmt.Fprint(out, "\n\n")
	for _, f := range it.Fields {
		fmt.Fprintf(out, "- %s: %s\n", f[0], span(f[1]))
	}
	for _, b := range it.Blocks {
		fmt.Fprintf(out, "\n%s", span(b.Title))
		if b.Image != "" {
			fmt.Fprint(out, ": an image, left out\n")
			continue
		}
		fence := strings.Repeat("`", max(3, longestRun(b.Text)+1))
		fmt.Fprintf(out, "\n\n%s%s\n%s", fence, b.Form, b.Text)
		if !strings.HasSuffix(b.Text, "\n") {
			fmt.Fprint(out, "\n")
		}
		fmt.Fprintf(out, "%s\n", fence)
		if b.More > 0 {
			fmt.Fprintf(out, "\n%d more bytes\n", b.More)
		}
	}
}

// span returns a text on one line as a code span, which has no markup.
func span(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return ""
	}
	fence := strings.Repeat("`", longestRun(text)+1)
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") {
		text = " " + text + " "
	}
	return fence + text + fence
}

// longestRun returns the length of the longest run of backticks in a text.
func longestRun(text string) (longest int) {
	run := 0
	for i := range len(text) {
		if text[i] != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}
