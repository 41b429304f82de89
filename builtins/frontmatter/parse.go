package frontmatter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// ErrInvalid says that a file has no valid front matter, or that a name is not valid.
var ErrInvalid = errors.New("front matter is not valid")

// maxHeader is the maximum length of the front matter in bytes.
const maxHeader = 64 << 10

// Parse decodes the front matter of a file into the struct to which into points, and
// returns the body without blank lines around it. Each field of the struct is a [Value]
// with a yaml tag that names its key. A key that is absent or null leaves its field
// unchanged. The path is for error texts. Parse returns an ErrInvalid that names the
// path, the line, the key and the correction.
func Parse(path string, data []byte, into any) (body string, err error) {
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return "", Fault(path, 0, "", "the file is not UTF-8 text: save it as UTF-8")
	}
	header, body, err := split(path, strings.TrimPrefix(string(data), "\ufeff"))
	if err != nil {
		return "", err
	}
	mapping, err := readMapping(path, header)
	if err != nil {
		return "", err
	}
	if err := decodeMapping(path, mapping, reflect.ValueOf(into).Elem()); err != nil {
		return "", err
	}
	return strings.TrimRight(strings.TrimLeft(body, "\r\n"), " \t\r\n"), nil
}

// Fault returns an ErrInvalid for a line and a key of a file. A line of zero and an
// empty key are left out of the text.
func Fault(path string, line int, key, format string, args ...any) error {
	if line > 0 {
		path = fmt.Sprintf("%s:%d", path, line)
	}
	text := fmt.Sprintf(format, args...)
	if key != "" {
		text = fmt.Sprintf("key %q: %s", key, text)
	}
	return fmt.Errorf("%s: %w: %s", path, ErrInvalid, text)
}

// split separates the text of a file into the front matter and the body. The front
// matter begins with a blank line in place of the first ---, so that its lines have the
// numbers of the file.
func split(path, text string) (header, body string, err error) {
	first, rest, _ := strings.Cut(text, "\n")
	if !isMark(first) {
		return "", "", Fault(path, 1, "", "there is no front matter: begin the file with a line --- and end the keys with another line ---")
	}
	for at := 0; ; {
		line, after, more := strings.Cut(rest[at:], "\n")
		if isMark(line) {
			return "\n" + rest[:at], after, nil
		}
		if at += len(line) + 1; at > maxHeader {
			return "", "", Fault(path, 1, "", "the front matter is longer than %d bytes: shorten it, or add the line --- that ends it", maxHeader)
		}
		if !more {
			return "", "", Fault(path, 1, "", "the front matter does not end: add a line --- after the keys")
		}
	}
}

// isMark reports whether a line begins or ends the front matter.
func isMark(line string) bool { return strings.TrimRight(line, " \t\r") == "---" }

// readMapping parses the front matter as one YAML mapping.
func readMapping(path, header string) (*yaml.Node, error) {
	var document, second yaml.Node
	d := yaml.NewDecoder(strings.NewReader(header))
	err := d.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, Fault(path, 1, "", "the front matter is empty: write KEY: VALUE lines between the two lines ---")
	}
	if err != nil {
		return nil, Fault(path, 0, "", "%s", yamlText(err))
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, Fault(path, 1, "", "there is text after the keys that is not one of them: remove it, and the line ... before it if there is one")
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, Fault(path, max(document.Line, 1), "", "the front matter has no keys: write KEY: VALUE lines")
	}
	return document.Content[0], nil
}

// yamlText returns the text of an error of the YAML library without its prefix.
func yamlText(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  ")
}

// decodeMapping stores the values of a mapping in the fields of a struct by their yaml
// tags.
func decodeMapping(path string, mapping *yaml.Node, into reflect.Value) error {
	fields, keys := map[string]reflect.Value{}, []string{}
	for i := range into.NumField() {
		key := into.Type().Field(i).Tag.Get("yaml")
		fields[key], keys = into.Field(i), append(keys, key)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		field, known := fields[key.Value]
		switch {
		case !known || key.Kind != yaml.ScalarNode:
			return Fault(path, key.Line, "", "unknown key %q: the keys are %s", key.Value, strings.Join(keys, ", "))
		case seen[key.Value]:
			return Fault(path, key.Line, key.Value, "the key is given twice: remove one")
		}
		seen[key.Value] = true
		if err := value.Decode(field.Addr().Interface()); err != nil {
			line := value.Line
			if at, ok := errors.AsType[*mismatch](err); ok {
				line = at.line
			}
			return Fault(path, line, key.Value, "%s", yamlText(err))
		}
	}
	return nil
}

// A Value is a value of the front matter with its line in the file. The zero Value
// belongs to an absent key; its Line is zero. T is string, int or a list of Values.
type Value[T any] struct {
	V    T
	Line int
}

// UnmarshalYAML decodes a node. If the node does not have the type T, UnmarshalYAML
// returns an error that describes the required value.
func (v *Value[T]) UnmarshalYAML(node *yaml.Node) error {
	v.Line = node.Line
	for _, entry := range node.Content {
		if node.Kind == yaml.SequenceNode && entry.ShortTag() == "!!null" { // the library leaves it out
			return &mismatch{entry.Line, "an entry of the list is empty: write a text in double quotes, or remove the entry"}
		}
	}
	err := node.Decode(&v.V)
	if inner, ok := errors.AsType[*mismatch](err); ok {
		return inner
	}
	// The library decodes 1.5 as the integer 1.
	_, number := any(v.V).(int)
	if err == nil && (!number || node.ShortTag() == "!!int") {
		return nil
	}
	want := "a list: write one entry on each line, each after a hyphen"
	switch any(v.V).(type) {
	case string:
		want = "a text: write it in double quotes"
	case int:
		want = "a whole number"
	}
	return &mismatch{node.Line, "the value is not " + want}
}

// A mismatch is the error of a value that has another type than its key requires.
type mismatch struct {
	line int
	text string
}

// Error returns the text without the line.
func (m *mismatch) Error() string { return m.text }
