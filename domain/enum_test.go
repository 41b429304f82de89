package domain_test

import (
	"encoding"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// An enum is a type with a closed set of named constants.
type enum struct {
	word    func(uint8) string
	marshal func(uint8) (string, error)
	parse   func(string) (uint8, error)
}

func closed[T interface {
	~uint8
	fmt.Stringer
	encoding.TextMarshaler
}, P interface {
	*T
	encoding.TextUnmarshaler
}]() enum {
	return enum{
		word:    func(v uint8) string { return T(v).String() },
		marshal: func(v uint8) (string, error) { text, err := T(v).MarshalText(); return string(text), err },
		parse: func(text string) (uint8, error) {
			v := T(255)
			err := P(&v).UnmarshalText([]byte(text))
			return uint8(v), err
		},
	}
}

// enums returns the closed sets of the package by the names of their types.
func enums() map[string]enum {
	return map[string]enum{
		"Outcome":      closed[domain.Outcome](),
		"Interruption": closed[domain.Interruption](),
		"Placement":    closed[domain.Placement](),
		"Effect":       closed[domain.Effect](),
		"Channel":      closed[domain.Channel](),
	}
}

// constants returns the number of constants of each uint8 type in the sources of
// this package.
func constants(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	var blocks []*ast.GenDecl
	for _, decl := range declarations(t, ".") {
		d, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range d.Specs {
			if s, ok := spec.(*ast.TypeSpec); ok && fmt.Sprint(s.Type) == "uint8" {
				counts[s.Name.Name] = 0
			}
		}
		if d.Tok == token.CONST {
			blocks = append(blocks, d)
		}
	}
	for _, d := range blocks {
		of := ""
		for _, spec := range d.Specs {
			s := spec.(*ast.ValueSpec)
			if s.Type != nil || s.Values != nil {
				of = fmt.Sprint(s.Type)
			}
			if _, ok := counts[of]; ok {
				counts[of] += len(s.Names)
			}
		}
	}
	return counts
}

// declarations returns the declarations in the sources of a folder, without the
// tests.
func declarations(t *testing.T, folder string) (all []ast.Decl) {
	t.Helper()
	names, err := fs.Glob(os.DirFS(folder), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), folder+"/"+name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file.Decls...)
	}
	return all
}

// Every constant of a closed set has a name, and parsing the name returns the
// constant.
func TestEveryEnumConstantHasANameThatReadsBack(t *testing.T) {
	t.Parallel()
	sets, counts := enums(), constants(t)
	if got, want := slices.Sorted(maps.Keys(sets)), slices.Sorted(maps.Keys(counts)); !slices.Equal(got, want) {
		t.Fatalf("this test knows the closed sets %q, the sources declare %q", got, want)
	}
	for name, set := range sets {
		count := uint8(counts[name])
		if count == 0 {
			t.Errorf("%s has no constants", name)
		}
		seen := map[string]bool{}
		for v := uint8(1); v <= count; v++ {
			word, err := set.marshal(v)
			if err != nil || word != set.word(v) || word == "" || strings.HasPrefix(word, "?") || seen[word] {
				t.Errorf("%s(%d) is written %q and prints as %q, %v: it has no word of its own", name, v, word, set.word(v), err)
			}
			seen[word] = true
			if got, err := set.parse(word); err != nil || got != v {
				t.Errorf("%s %q reads back as %d, %v, want %d", name, word, got, err, v)
			}
		}
		if text, err := set.marshal(0); text != "" || err != nil {
			t.Errorf("the zero %s is written %q, %v, want nothing", name, text, err)
		}
		if got, err := set.parse(""); got != 0 || err != nil {
			t.Errorf("the empty text of %s reads as %d, %v, want zero", name, got, err)
		}
		for _, v := range []uint8{count + 1, 255} {
			if text, err := set.marshal(v); !errors.Is(err, domain.ErrBadWord) || !strings.HasPrefix(set.word(v), "?") {
				t.Errorf("%s(%d) is no constant and is written %q, %v, want ErrBadWord", name, v, text, err)
			}
		}
	}
}

// Parsing an unknown name returns ErrBadWord.
func TestUnknownEnumNamesAreRejected(t *testing.T) {
	t.Parallel()
	for name, set := range enums() {
		for _, word := range []string{"?", "?1", "nonsense", " ", set.word(1) + " ", strings.ToUpper(set.word(1)), "0", "1"} {
			got, err := set.parse(word)
			if !errors.Is(err, domain.ErrBadWord) || got != 255 {
				t.Errorf("%s %q reads as %d, %v, want ErrBadWord and the value left alone", name, word, got, err)
			} else if !strings.Contains(err.Error(), set.word(1)) {
				t.Errorf("%s: error %q does not say which words there are", name, err)
			}
		}
	}
}

// Outcomes returns every outcome once, in order.
func TestOutcomesListsEveryOutcome(t *testing.T) {
	t.Parallel()
	all := domain.Outcomes()
	if got, want := len(all), constants(t)["Outcome"]; got != want {
		t.Errorf("Outcomes() has %d, the sources declare %d", got, want)
	}
	for i, o := range all {
		if int(o) != i+1 {
			t.Errorf("Outcomes()[%d] = %s, want them in order", i, o)
		}
	}
}
