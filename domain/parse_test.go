package domain

import (
	"bytes"
	"reflect"
	"testing"

	validate "github.com/santhosh-tekuri/jsonschema/v6"
)

// FuzzParseJSONReadsAsTheValidatorDoes checks that parseJSON returns the value
// that the validator's decoder returns.
func FuzzParseJSONReadsAsTheValidatorDoes(f *testing.F) {
	for _, document := range []string{
		`{}`, `""`, `null`, ` [true, "x"] `, `{"a":"1","a":[]}`, `"\"1"`, `"\\"`, `"\\1"`, `12345678901234567890`, `-0.5e3`,
		`{"n":1}`, `["a",1]`, `{"1":2}`, `"\"", 1`, `["\\\"", 7]`, `{"a":"b"} {}`, `{"a"`, ``, `"é\ud800"`, "\"\xff\"", `tru`, `"\u0031"`,
	} {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		got, err := parseJSON(document)
		want, wrong := validate.UnmarshalJSON(bytes.NewReader(document))
		if (err == nil) != (wrong == nil) || err != nil && err.Error() != wrong.Error() || !reflect.DeepEqual(got, want) {
			t.Errorf("parseJSON(%q) = %#v, %v, want %#v, %v", document, got, err, want, wrong)
		}
	})
}
