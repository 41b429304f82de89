package domain_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// parts returns one content of each type.
func parts() domain.Contents {
	return domain.Contents{
		domain.Text("one <b> & \u2028"),
		domain.Media{MIME: "text/plain; charset=utf-8", Name: "a b.txt", Data: []byte{0, 0xff}},
		domain.Text(""),
		domain.Media{MIME: "image/png", Data: []byte{}},
	}
}

// Contents read back from their JSON equal the original.
func TestContentsReadBack(t *testing.T) {
	t.Parallel()
	for _, want := range []domain.Contents{parts(), {}} {
		data, err := json.Marshal(want)
		var got domain.Contents
		if err == nil {
			err = json.Unmarshal(data, &got)
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s reads back as %v, %v, want %v", data, got, err, want)
		}
	}
	if data, err := json.Marshal(domain.Contents(nil)); err != nil || string(data) != "[]" {
		t.Errorf("no contents are written %s, %v, want an array", data, err)
	}
}

// The tests cover every type of Content in the package.
func TestEveryTypeOfContentIsAmongThoseTested(t *testing.T) {
	t.Parallel()
	var declared, tested []string
	for _, decl := range declarations(t, ".") {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == "content" && f.Recv != nil && f.Type.Results == nil {
			declared = append(declared, f.Recv.List[0].Type.(*ast.Ident).Name)
		}
	}
	for _, part := range parts() {
		tested = append(tested, reflect.TypeOf(part).Name())
	}
	slices.Sort(declared)
	slices.Sort(tested)
	if tested = slices.Compact(tested); !slices.Equal(declared, tested) {
		t.Errorf("the types of content are %q, tested are %q", declared, tested)
	}
}

// Media read back from their JSON have the same bytes.
// Scenario 53.
func TestMediaReadBackByteForByte(t *testing.T) {
	t.Parallel()
	size := 512 << 10
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		size = 6 << 20
	}
	image := domain.Media{MIME: "image/png", Name: "big.png", Data: bytes.Repeat([]byte{0x89, 'P', 'N', 'G'}, size/4)}
	output := present(t, `{"kind":"image"}`, func(domain.Encoded[json.RawMessage]) []domain.Content { return []domain.Content{image} })
	data, err := json.Marshal(output.Content())
	var got domain.Contents
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil || len(got.Media()) != 1 || !reflect.DeepEqual(got.Media()[0], image) || got.Text() != "" {
		t.Errorf("an image of %d bytes came back as %d parts, %v", size, len(got), err)
	}
	if string(output.Structured()) != `{"kind":"image"}` {
		t.Errorf("structured = %s", output.Structured())
	}
}

// Text joins the text parts without a separator, and Media keeps the order.
func TestTextsAreJoinedWithoutASeparatorAndMediaKeepTheirOrder(t *testing.T) {
	t.Parallel()
	a, b := domain.Media{MIME: "a/a"}, domain.Media{MIME: "b/b"}
	cs := domain.Contents{domain.Text("x"), a, domain.Text("y\n"), b, domain.Text("z")}
	if got := cs.Text(); got != "xy\nz" {
		t.Errorf("Text() = %q", got)
	}
	if got := cs.Media(); !reflect.DeepEqual(got, []domain.Media{a, b}) {
		t.Errorf("Media() = %v", got)
	}
}

// JSON of an unknown type or with an invalid URI is rejected.
func TestInvalidContentIsRejected(t *testing.T) {
	t.Parallel()
	if data, err := json.Marshal(domain.Contents{nil}); !errors.Is(err, domain.ErrBadWord) {
		t.Errorf("a nil part is written %s, %v, want ErrBadWord", data, err)
	}
	for _, document := range []string{
		`[{"type":"audio"}]`, `[{}]`, `[{"type":"file","uri":"https://example.com/a.png","mime":"image/png"}]`,
		`[{"type":"file","uri":"data:image/gif;base64,AAAA","mime":"image/png"}]`,
	} {
		kept := parts()
		if err := json.Unmarshal([]byte(document), &kept); !errors.Is(err, domain.ErrBadWord) || !reflect.DeepEqual(kept, parts()) {
			t.Errorf("%s reads as %v, %v, want ErrBadWord", document, kept, err)
		}
	}
	for _, document := range []string{`[{"type":"file","uri":"data:image/png;base64,%","mime":"image/png"}]`, `{}`, `"text"`, `[1]`} {
		var got domain.Contents
		if err := json.Unmarshal([]byte(document), &got); err == nil {
			t.Errorf("%s reads as %v, want an error", document, got)
		}
	}
}
