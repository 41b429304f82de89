package sessionexport

import (
	"bufio"
	"crypto/sha256"
	_ "embed" // the parts of the page
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"strings"

	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// The parts of a page. The script and the style do not depend on the session, and the
// policy of the page names their digests, so that nothing else can run or be loaded.
var (
	//go:embed page/head.html
	pageHead string
	//go:embed page/page.css
	pageStyle string
	//go:embed page/page.js
	pageScript string
)

// writeHTML writes a session as a page that shows it without a network.
//
// The page has each item as JSON in a <script type="application/json"> element, which
// browsers do not run, and an index with a line for each. The characters <, > and & are
// escaped in them, so no text can end the element. The script adds texts by textContent.
func (e *export) writeHTML(out *bufio.Writer, known calls.Session) error {
	s, err := e.open(known)
	if err != nil {
		return err
	}
	if _, err := out.WriteString(headOf(s)); err != nil {
		return err
	}
	b := &pageBuilder{session: s, full: e.opts.Full}
	index := [][6]any{}
	err = e.read(s, func(entry timeline.Entry) error {
		for _, it := range b.items(entry) {
			index = append(index, [6]any{it.kind, it.name, it.outcome, it.at, it.summary, it.depth})
			if err := writeData(out, fmt.Sprintf("item-%d", len(index)-1), it); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := writeData(out, "index", index); err != nil {
		return err
	}
	if counts := e.opts.Redactor.Counts(); len(counts) > 0 {
		var parts []string
		for _, c := range counts {
			parts = append(parts, fmt.Sprintf("%s %d", c.Rule, c.Hidden))
		}
		fmt.Fprintf(out, "<footer>Hidden: %s.</footer>\n", strings.Join(parts, ", "))
	}
	_, err = fmt.Fprintf(out, "<script>%s</script>\n</body>\n</html>\n", pageScript)
	return err
}

// headOf returns the page up to its data.
func headOf(s session) string {
	fields := headFields(s)
	var list strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&list, "<dt>%s</dt><dd>%s</dd>\n", html.EscapeString(f[0]), html.EscapeString(f[1]))
	}
	return strings.NewReplacer(
		"{{title}}", "Session "+s.ID.String(), "{{fields}}", list.String(), "{{style}}", pageStyle,
		"{{script digest}}", digestOf(pageScript), "{{style digest}}", digestOf(pageStyle),
	).Replace(pageHead)
}

// digestOf returns a text as a source of a Content-Security-Policy.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// writeData writes a value as JSON in an element that is not run. encoding/json escapes <,
// >, & and the line separators of JavaScript.
func writeData(out *bufio.Writer, id string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "<script type=\"application/json\" id=\"%s\">%s</script>\n", id, data)
	return err
}
