package render

import (
	"bufio"
	"bytes"
	"errors"
	"iter"
	"testing"
)

// ObjectWithList writes the bytes that Object writes for the same object.
func TestAnObjectWithAListIsAnObject(t *testing.T) {
	t.Parallel()
	type inner struct {
		A int `json:"a"`
	}
	type head struct {
		Name string `json:"name"`
		Last *inner `json:"last"`
	}
	type whole struct {
		head
		Rows []inner `json:"rows"`
	}
	for _, format := range []Format{AsJSON, AsJSONLines} {
		for n := range 4 {
			for _, last := range []*inner{nil, {5}} {
				h, rows := head{"<x>}", last}, []inner{}
				for i := range n {
					rows = append(rows, inner{i})
				}
				var got, want bytes.Buffer
				p := &Printer{Out: bufio.NewWriter(&want), Format: format}
				if err := errors.Join(p.Object(whole{h, rows}, nil), p.Out.Flush()); err != nil {
					t.Fatal(err)
				}
				p.Out = bufio.NewWriter(&got)
				each := func(yield func(inner, error) bool) {
					for _, r := range rows {
						if !yield(r, nil) {
							return
						}
					}
				}
				if err := errors.Join(ObjectWithList(p, h, "rows", iter.Seq2[inner, error](each)), p.Out.Flush()); err != nil {
					t.Fatal(err)
				}
				if got.String() != want.String() {
					t.Errorf("%s, %d rows: %q, want %q", format, n, got.String(), want.String())
				}
			}
		}
	}
}

// An error of the rows is returned.
func TestAnObjectWithAListReturnsTheErrorOfItsRows(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	p := &Printer{Out: bufio.NewWriter(&bytes.Buffer{}), Format: AsJSON}
	err := ObjectWithList(p, struct{}{}, "rows", func(yield func(int, error) bool) { yield(0, broken) })
	if !errors.Is(err, broken) {
		t.Errorf("ObjectWithList = %v, want %v", err, broken)
	}
}
