package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
	"github.com/settlement-ledger/ledger/registry/registrytest"
)

// update makes tests write the documents that they otherwise compare, docs/laws.md and
// the transcript in README.md.
var update = flag.Bool("update", false, "write docs/laws.md anew")

// reports lists the law suites. Each report function checks its laws and their
// saboteurs, and writes one line for each law.
var reports = []struct {
	about  string
	report func(context.Context, io.Writer) error
}{
	{"Tools, calls and conservation", registrytest.Report},
	{"The log", eventstest.Report},
	{"Projections", projectionstest.Report},
}

// lawsHead is the beginning of docs/laws.md.
const lawsHead = `# The laws

Each law is a value with a name and a sentence, in a package that checks it:
` + "`registry/registrytest`, `events/eventstest`, `projections/projectionstest`" + `. For
each there is a saboteur, an implementation that breaks it and that the law must
catch. ` + "`make laws`" + ` checks that and prints this list, which a test holds true. Laws
of the log that a real history can break are also what ` + "`ledger verify`" + ` checks.
`

// Each law holds for its implementation and catches its saboteur, and docs/laws.md
// lists exactly these laws. With -update the test writes the document.
func TestLawsAreThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	var document strings.Builder
	document.WriteString(lawsHead)
	for _, r := range reports {
		var lines bytes.Buffer
		if err := r.report(t.Context(), &lines); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(&document, "\n## %s\n\n", r.about)
		for line := range strings.Lines(lines.String()) {
			fmt.Print(line) // make laws prints the lines
			name, sentence, _ := strings.Cut(strings.TrimPrefix(line, "law "), ": ")
			sentence, _, _ = strings.Cut(sentence, " — ")
			fmt.Fprintf(&document, "- **%s.** %s\n", name, sentence)
		}
	}
	path := filepath.Join("..", "..", "docs", "laws.md")
	if *update {
		if err := os.WriteFile(path, []byte(document.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != document.String() {
		t.Errorf("docs/laws.md is not what the laws say (%v): go test ./cmd/ledger -run Laws -update", err)
	}
}
