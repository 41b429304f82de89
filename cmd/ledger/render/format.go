package render

import (
	"fmt"
	"slices"
	"strings"
)

// A Format is how results are written.
type Format string

const (
	AsTable     Format = "table" // for a person
	AsJSON      Format = "json"  // one document
	AsJSONLines Format = "jsonl" // one object a line
)

var Formats = []string{string(AsTable), string(AsJSON), string(AsJSONLines)}

// String, Set and Type make a format the value of a flag.
func (f *Format) String() string { return string(*f) }

func (f *Format) Type() string { return "format" }

func (f *Format) Set(text string) error {
	return setWord(f, text, Formats)
}

// A coloring says when there are colours.
type coloring string

const (
	ColorAuto   coloring = "auto" // where a person looks, and nothing says otherwise
	colorAlways coloring = "always"
	colorNever  coloring = "never"
)

var ColorModes = []string{string(ColorAuto), string(colorAlways), string(colorNever)}

// String, Set and Type make a coloring the value of a flag.
func (c *coloring) String() string { return string(*c) }

func (c *coloring) Type() string { return "when" }

func (c *coloring) Set(text string) error {
	return setWord(c, text, ColorModes)
}

func setWord[W ~string](word *W, text string, words []string) error {
	if !slices.Contains(words, text) {
		return fmt.Errorf("%q is not %s", text, strings.Join(words, ", "))
	}
	*word = W(text)
	return nil
}
