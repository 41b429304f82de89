package sessionexport

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/settlement-ledger/ledger/cmd/ledger/redaction"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// A parsedPage is a page as a browser parses it.
type parsedPage struct {
	scripts, styles []string
	data            map[string]string // JSON elements, by ID
	attributes      map[string]string // the last value of each
	elements        map[string]int
}

// parsePage parses a page by the algorithm of the HTML standard.
func parsePage(t *testing.T, text string) parsedPage {
	t.Helper()
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	p := parsedPage{data: map[string]string{}, attributes: map[string]string{}, elements: map[string]int{}}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		p.elements[n.Data]++
		attributes := map[string]string{}
		for _, a := range n.Attr {
			attributes[a.Key], p.attributes[a.Key] = a.Val, a.Val
		}
		content := ""
		if n.FirstChild != nil {
			content = n.FirstChild.Data
		}
		switch {
		case n.Data == "style":
			p.styles = append(p.styles, content)
		case n.Data == "script" && attributes["type"] == "application/json":
			p.data[attributes["id"]] = content
		case n.Data == "script":
			p.scripts = append(p.scripts, content)
		}
	}
	return p
}

func init() {
	callsIn[HTML] = func(t *testing.T, text string) (found []string) {
		p := parsePage(t, text)
		var index [][6]any
		if err := json.Unmarshal([]byte(p.data["index"]), &index); err != nil {
			t.Fatal(err)
		}
		for i, row := range index {
			var it item
			if err := json.Unmarshal([]byte(p.data[fmt.Sprintf("item-%d", i)]), &it); err != nil {
				t.Fatal(err)
			}
			if row[0] != "call" {
				continue
			}
			at := slices.IndexFunc(it.Fields, func(f [2]string) bool { return f[0] == "call" })
			found = append(found, fmt.Sprint(row[1], " ", it.Fields[at][1], " ", row[2]))
		}
		return found
	}
}

// hostileTexts are texts that run, end an element, make a request or reorder the line in
// careless pages.
func hostileTexts(t *testing.T) (texts []string) {
	t.Helper()
	data, err := os.ReadFile("testdata/hostile.json")
	if err == nil {
		err = json.Unmarshal(data, &texts)
	}
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// hostileHistory returns a history of one session with hostile texts in each place.
func hostileHistory(t *testing.T) []events.Envelope {
	l := projectionstest.NewLog(1)
	id := l.Mint.Session()
	s := events.SessionStream(id)
	x := strings.Join(hostileTexts(t), " ")
	l.Add(s, events.SessionOpened{Session: id, Agent: domain.AgentID(x), Location: x, Model: x, Origin: events.Origin{Kind: events.RunHere}})
	for _, text := range hostileTexts(t) {
		raw, _ := json.Marshal(map[string]string{"command": text, text: text})
		l.Add(s, events.PromptAdmitted{Message: l.Mint.Message(), Text: text, Media: domain.Contents{
			domain.Media{MIME: "image/svg+xml", Name: text, Data: []byte("<svg onload='window.__pwned=1'/>")}, domain.Media{MIME: "image/png", Name: text, Data: []byte("<script>window.__pwned=1</script>")},
		}})
		m := l.Mint.Message()
		l.Add(s, events.ReplyReceived{Message: m, Text: text, Calls: []domain.Call{{ID: domain.CallID(text), Name: text, Input: raw}}})
		l.Add(s, events.CallSettled{Message: m, Call: domain.CallID(text), Tool: text, Outcome: domain.Failed, Text: text, Detail: text, Structured: raw})
		l.Add(s, events.Unknown{Name: text, Version: 1, Data: raw})
	}
	l.Add(s, events.CommandRan{By: events.ByUser, Command: x, Output: strings.Repeat("<b>", 4<<20)})
	return l.Envelopes()
}

func TestAPageHasOneScriptAndRunsNoText(t *testing.T) {
	t.Parallel()
	for name, history := range map[string][]events.Envelope{"hostile": hostileHistory(t), "random": projectionstest.History(2, 200), "secrets": secretSession()} {
		from, sessions := source(t, history)
		text := export1(t, from, sessions[0], Options{Format: HTML, Redactor: redaction.New()})
		p := parsePage(t, text)
		if len(p.scripts) != 1 || p.scripts[0] != pageScript || len(p.styles) != 1 || p.styles[0] != pageStyle {
			t.Errorf("%s: the page has %d scripts and %d styles, or others", name, len(p.scripts), len(p.styles))
		}
		policy := p.attributes["content"]
		for _, m := range []string{digestOf(pageScript), digestOf(pageStyle)} {
			if !strings.Contains(text, "'"+m+"'") {
				t.Errorf("%s: the policy %q does not have %s", name, policy, m)
			}
		}
		for key, value := range p.attributes {
			if strings.HasPrefix(key, "on") || key == "style" || key == "src" || key == "href" {
				t.Errorf("%s: the page has the attribute %s=%q", name, key, value)
			}
		}
		for _, tag := range []string{"img", "svg", "iframe", "object", "link", "base", "a", "form"} {
			if want := map[string]int{"form": 1}[tag]; p.elements[tag] != want {
				t.Errorf("%s: the page has %d elements %s", name, p.elements[tag], tag)
			}
		}
		for _, forbidden := range []string{"\u202e", "\x1b", "\x00"} {
			if strings.Contains(text, forbidden) {
				t.Errorf("%s: the page has the character %q", name, forbidden)
			}
		}
		for id, data := range p.data {
			if strings.ContainsAny(data, "<>&\u2028\u2029") || !json.Valid([]byte(data)) {
				t.Errorf("%s: the data of %s are not escaped", name, id)
			}
		}
		if limit := 3 << 20; len(text) > limit {
			t.Errorf("%s: the page has %d bytes, more than %d", name, len(text), limit)
		}
	}
}

// Images are in the page if their bytes are of a type that browsers show as an image.
func TestOnlyCheckedImagesAreShown(t *testing.T) {
	t.Parallel()
	png := []byte("\x89PNG\r\n\x1a\nrest")
	var it item
	new(pageBuilder).media(&it, domain.Contents{
		domain.Media{MIME: "image/png", Name: "a.png", Data: png}, domain.Media{MIME: "image/jpeg", Name: "b.jpg", Data: png}, domain.Media{MIME: "image/svg+xml", Data: []byte("<svg/>")},
	})
	if len(it.Blocks) != 1 || it.Blocks[0].Form != "image" || !strings.HasPrefix(it.Blocks[0].Image, "data:image/png;base64,iVBOR") || len(it.Fields) != 2 {
		t.Errorf("the images are %+v", it)
	}
}

// An edit is shown as a diff, whichever tool made it.
func TestEditsAreShownAsDiffs(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		`{"filePath":"a.go","oldString":"one\n","newString":"two\n"}`:                "--- a/a.go\n+++ b/a.go\n@@ -1 +1 @@\n-one\n+two\n",
		`{"file_path":"a.go","edits":[{"old_string":"one\n","new_string":"two\n"}]}`: "--- a/a.go\n+++ b/a.go\n@@ -1 +1 @@\n-one\n+two\n",
		`{"patchText":"*** Begin Patch\n*** Delete File: a.go\n*** End Patch"}`:      "*** Begin Patch\n*** Delete File: a.go\n*** End Patch",
		`{"command":"ls"}`: "", `[]`: "", `{"patch":"fast"}`: "",
	} {
		l := projectionstest.NewLog(1)
		id, m := l.Mint.Session(), l.Mint.Message()
		l.Add(events.SessionStream(id), events.ReplyReceived{Message: m, Calls: []domain.Call{{ID: "c", Name: "edit", Input: json.RawMessage(input)}}})
		from, _ := source(t, l.Envelopes())
		e := &export{ctx: t.Context(), from: from}
		s := session{}
		s.ID = id
		err := e.read(s, func(entry timeline.Entry) error {
			if got := diffOf(entry.Calls[0]); got != want {
				t.Errorf("the diff of %s is %q, want %q", input, got, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
