package replaying

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/settlement-ledger/ledger/runner/replay"
)

// The elements of a JUnit file.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class    string         `xml:"classname,attr"`
		Name     string         `xml:"name,attr"`
		Failures []junitFailure `xml:"failure"`
		Output   string         `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes a report as a JUnit file: a test case for each turn and each call, and
// one for the rest of the session. A difference is a failure with both sides. Characters
// that XML does not allow are written as U+FFFD.
func WriteJUnit(w io.Writer, r *replay.Report) error {
	steps := append([]replay.Step{{}}, r.Steps...)
	suite := junitSuite{Name: "replay of " + r.Session.String()}
	at := map[replay.Step]int{}
	for _, s := range steps {
		name := "session"
		if s.Turn > 0 {
			name = s.String()
		}
		at[replay.Step{Turn: s.Turn, Call: s.Call}] = len(suite.Cases)
		suite.Cases = append(suite.Cases, junitCase{Class: r.Session.String(), Name: validXML(name)})
	}
	for _, d := range r.Differences {
		i := at[replay.Step{Turn: d.Turn, Call: d.Call}] // 0, the session, for another place
		suite.Cases[i].Failures = append(suite.Cases[i].Failures, junitFailure{
			Message: validXML(d.String()), Type: string(d.Kind), Text: validXML(fmt.Sprintf("recorded: %s\nreplayed: %s", d.Recorded, d.Replayed)),
		})
	}
	var notes []string
	for _, n := range r.Incomparable {
		notes = append(notes, "not comparable: "+n.Where+": "+n.Reason)
	}
	suite.Cases[0].Output = validXML(strings.Join(notes, "\n"))
	suite.Tests = len(suite.Cases)
	for _, c := range suite.Cases {
		suite.Failures += len(c.Failures)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// validXML replaces the characters that XML 1.0 does not allow.
func validXML(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n', r == '\r', r >= 0x20 && r <= 0xD7FF, r >= 0xE000 && r <= 0xFFFD, r >= 0x10000:
			return r
		}
		return '\uFFFD'
	}, strings.ToValidUTF8(text, "\uFFFD"))
}
