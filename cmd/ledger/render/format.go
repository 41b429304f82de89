package render

import (
	"fmt"
	"slices"
	"strings"
)

// A Format is the output format of results, errors and log lines. It is the value of
// the flag --output; its zero value is invalid.
type Format string

// The output formats.
const (
	// AsTable is a table or a page of fields, for people.
	AsTable Format = "table"
	// AsJSON is one JSON document, indented.
	AsJSON Format = "json"
	// AsJSONLines is one JSON object on each line.
	AsJSONLines Format = "jsonl"
)

// Formats lists the valid values of the flag.
var Formats = []string{string(AsTable), string(AsJSON), string(AsJSONLines)}

// String returns the value of the flag for the format. With Type and Set it
// implements pflag.Value.
func (f *Format) String() string { return string(*f) }

// Type returns the placeholder of the flag's value in help texts.
func (f *Format) Type() string { return "format" }

// Set parses the value of the flag. It returns an error for a text that is not in Formats.
func (f *Format) Set(text string) error {
	return setWord(f, text, Formats)
}

// A coloring selects when the output has colours. It is the value of the flag
// --color.
type coloring string

// The values of --color.
const (
	// ColorAuto selects colours on a terminal, unless NO_COLOR, FORCE_COLOR or TERM
	// override it.
	ColorAuto   coloring = "auto"
	colorAlways coloring = "always"
	colorNever  coloring = "never"
)

// ColorModes lists the valid values of the flag.
var ColorModes = []string{string(ColorAuto), string(colorAlways), string(colorNever)}

// String returns the value of the flag for the coloring. With Type and Set it
// implements pflag.Value.
func (c *coloring) String() string { return string(*c) }

// Type returns the placeholder of the flag's value in help texts.
func (c *coloring) Type() string { return "when" }

// Set parses the value of the flag. It returns an error for a text that is not in ColorModes.
func (c *coloring) Set(text string) error {
	return setWord(c, text, ColorModes)
}

// setWord sets *word to text if words contains text. Otherwise it returns an error that
// lists words.
func setWord[W ~string](word *W, text string, words []string) error {
	if !slices.Contains(words, text) {
		return fmt.Errorf("%q is not %s", text, strings.Join(words, ", "))
	}
	*word = W(text)
	return nil
}
