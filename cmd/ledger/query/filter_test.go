package query

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated part of docs/queries.md")

// generated returns the part of docs/queries.md that describes the fields.
func generated() string {
	var b strings.Builder
	for _, l := range []struct {
		list    List
		command string
	}{{CallList, "call ls, file history and stats"}, {SessionList, "session ls"}, {TurnList, "turn ls"}, {RequestList, "permission ls"}, {TextList, "search"}} {
		fmt.Fprintf(&b, "\n## Fields of %s\n\nOf `ledger %s`.\n\n| field | type | meaning |\n|---|---|---|\n", l.list.Noun, strings.NewReplacer(", ", "`, `", " and ", "` and `").Replace(l.command))
		for _, f := range l.list.Fields {
			kind := string(f.Type)
			if f.Each != "" {
				kind += ", several"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Name, kind, f.Comment)
		}
	}
	return b.String()
}

// docs/queries.md describes every field of every list.
func TestTheQueriesDocumentHasEachField(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "..", "docs", "queries.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), " -update -->\n")
	if !ok {
		t.Fatal("docs/queries.md has no mark of its generated part")
	}
	if *update {
		if err := os.WriteFile(path, []byte(head+" -update -->\n"+generated()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if rest != generated() {
		t.Error("docs/queries.md does not describe the fields: go test ./cmd/ledger/query -run QueriesDocument -update")
	}
}

// The help text of a list names each field once, in lines of at most 80 columns.
func TestTheHelpOfAListNamesEachField(t *testing.T) {
	t.Parallel()
	for _, l := range []List{CallList, SessionList, TurnList, RequestList, TextList} {
		var names []string
		for line := range strings.SplitSeq(l.FieldsHelp(), "\n") {
			if len(line) > 80 {
				t.Errorf("%s: the line %q is too long", l.Noun, line)
			}
			if rest, ok := strings.CutPrefix(line, "  "); ok {
				names = append(names, strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == ',' })...)
			}
		}
		var want []string
		for _, f := range l.Fields {
			want = append(want, f.Name)
		}
		if strings.Join(names, " ") != strings.Join(want, " ") {
			t.Errorf("%s: the help names %v, want %v", l.Noun, names, want)
		}
	}
}
