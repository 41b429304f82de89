package frontmatter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/builtins/frontmatter"
)

// header has one key of each type.
type header struct {
	Title frontmatter.Value[string]                      `yaml:"title"`
	Count frontmatter.Value[int]                         `yaml:"count"`
	List  frontmatter.Value[[]frontmatter.Value[string]] `yaml:"list"`
}

func TestValuesKeepTheirLines(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\n", "\r\n"} {
		text := "\ufeff---\n# a comment\ntitle: x # y\nlist:\n  - a\n  - \"b: c\"\ncount: 3\n--- \n\n  body\n---\nmore\n\n"
		var h header
		body, err := frontmatter.Parse("f.md", []byte(strings.ReplaceAll(text, "\n", end)), &h)
		want := header{
			Title: frontmatter.Value[string]{V: "x", Line: 3}, Count: frontmatter.Value[int]{V: 3, Line: 7},
			List: frontmatter.Value[[]frontmatter.Value[string]]{V: []frontmatter.Value[string]{{V: "a", Line: 5}, {V: "b: c", Line: 6}}, Line: 5},
		}
		if diff := cmp.Diff(want, h); err != nil || diff != "" {
			t.Errorf("Parse = %v, (-want +got):\n%s", err, diff)
		}
		if want := strings.ReplaceAll("  body\n---\nmore", "\n", end); body != want {
			t.Errorf("body = %q, want %q", body, want)
		}
	}
}

func TestInvalidFrontMatterNamesLineAndCorrection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"", "f.md:1: front matter is not valid: there is no front matter: begin the file with a line ---"},
		{"# Title\n---\ntitle: x\n---\n", "f.md:1: front matter is not valid: there is no front matter"},
		{" ---\ntitle: x\n---\n", "there is no front matter"},
		{"---\ntitle: x\n", "f.md:1: front matter is not valid: the front matter does not end: add a line ---"},
		{"---\n" + strings.Repeat("# comment\n", 10_000), "longer than 65536 bytes"},
		{"---\n---\nbody", "the front matter is empty"},
		{"---\n# only a comment\n---\n", "f.md:1: front matter is not valid"},
		{"---\n- a\n---\n", "the front matter has no keys: write KEY: VALUE lines"},
		{"---\ntitle: x\ntitel: y\n---\n", `f.md:3: front matter is not valid: unknown key "titel": the keys are title, count, list`},
		{"---\n? [a, b]\n: c\n---\n", "unknown key"},
		{"---\n<<: {title: x}\n---\n", `unknown key "<<"`},
		{"---\ntitle: x\ncount: 1\ntitle: y\n---\n", `f.md:4: front matter is not valid: key "title": the key is given twice`},
		{"---\ntitle: [x]\n---\n", `f.md:2: front matter is not valid: key "title": the value is not a text: write it in double quotes`},
		{"---\ntitle: a\ncount: 1.5\n---\n", `f.md:3: front matter is not valid: key "count": the value is not a whole number`},
		{"---\ncount: 99999999999999999999\n---\n", "not a whole number"},
		{"---\nlist: a\n---\n", `key "list": the value is not a list`},
		{"---\nlist:\n  - a\n  - b: c\n---\n", `f.md:4: front matter is not valid: key "list": the value is not a text`},
		{"---\ntitle: a: b\n---\n", "front matter is not valid: line 2: mapping values are not allowed"},
		{"---\ntitle: a\n...\ncount: x\n---\n", "there is text after the keys that is not one of them"},
		{"---\ntitle: a\n...\n%!\n---\n", "front matter is not valid: line 4"},
		{"---\ntitle: \"\xff\"\n---\n", "the file is not UTF-8 text"},
		{"---\ntitle: \x00\n---\n", "the file is not UTF-8 text"},
		{"---\ntitle: &a [*a]\n---\n", "front matter is not valid"},
		{"---\ntitle: *none\n---\n", "front matter is not valid: unknown anchor"},
		{"---\ntitle: " + strings.Repeat("[", 20_000) + "\n---\n", "front matter is not valid"},
	} {
		var h header
		_, err := frontmatter.Parse("f.md", []byte(c.text), &h)
		if !errors.Is(err, frontmatter.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Parse(%.60q) = %v, want ErrInvalid with %q", c.text, err, c.want)
		}
	}
}

func TestNamesFollowTheirGrammar(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a": true, "plan": true, "a-b_2": true, "a" + strings.Repeat("b", 63): true,
		"": false, "A": false, "aB": false, "2a": false, "_a": false, "a b": false, "a.b": false, "../a": false, "ä": false, "a" + strings.Repeat("b", 64): false,
	} {
		if err := frontmatter.CheckName(name); (err == nil) != want || err != nil && !errors.Is(err, frontmatter.ErrInvalid) {
			t.Errorf("CheckName(%q) = %v, want valid %t", name, err, want)
		}
	}
}

// FuzzParse checks that Parse returns a body or an ErrInvalid, and that the values of a
// valid file read back from a file that has each of them as a quoted text.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"---\ntitle: x\ncount: 3\nlist:\n  - a\n---\nbody\n", "---\r\ntitle: |\r\n  a\r\n---\r\n", "---\ntitle: &a x\nlist: [*a, *a]\n---\n", "---\n<<: {}\n---\n",
		"---\ntitle: !!binary aGk=\n---\n", "---\ntitle: ~\n---\n", "---\n? a\n: b\n---", "---\n\"ti\\u0074le\": x\n---\n", "---\n%YAML 1.1\n---\n", "---\ntitle: 2001-01-01\ncount: 0x1F\n---\n",
		"\ufeff---\n---\n", "---\nlist: [a, [b]]\n---\n", "---\n{title: a, count: 2}\n---\nx",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var h header
		body, err := frontmatter.Parse("f", data, &h)
		if err != nil {
			if body != "" || !errors.Is(err, frontmatter.ErrInvalid) {
				t.Fatalf("Parse = %q, %v", body, err)
			}
			return
		}
		last := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 1
		for _, line := range []int{h.Title.Line, h.Count.Line, h.List.Line} {
			if line < 0 || line > last {
				t.Fatalf("line %d of %d in %q", line, last, data)
			}
		}
		var again header
		second, err := frontmatter.Parse("f", []byte("---\ntitle: x\n---\n"+body), &again)
		if err != nil || second != body {
			t.Fatalf("the body %q reads back as %q, %v", body, second, err)
		}
	})
}
