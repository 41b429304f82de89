package domain_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// Canonical returns the form that RFC 8785 defines.
func TestCanonicalFormIsThatOfRFC8785(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		` { "b" : 1 , "a" : [ true , false , null ] } `: `{"a":[true,false,null],"b":1}`,
		`{"B":1,"a":2,"A":3,"":4,"1":5,"10":6,"2":7}`:   `{"":4,"1":5,"10":6,"2":7,"A":3,"B":1,"a":2}`,
		// Keys are ordered by UTF-16 code units: a surrogate pair comes before
		// U+FB33.
		`{"\ufb33":1,"\ud83d\ude00":2,"\u00f6":3,"\u0080":4}`: "{\"\u0080\":4,\"ö\":3,\"😀\":2,\"\ufb33\":1}",
		`["\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"]`:   `["€$\u000f\nA'B\"\\\\\"/"]`,
		`["\u0008\u0009\u000c\u000d\u001f\u007f\u2028</>&"]`:  "[\"\\b\\t\\f\\r\\u001f\u007f\u2028</>&\"]",
		`[333333333.33333329,1E30,4.50,2e-3,1e-27]`:           `[333333333.3333333,1e+30,4.5,0.002,1e-27]`,
		`[1e20,1e21,1e-6,1e-7,-0,0.0,-1.0,1.5e2]`:             `[100000000000000000000,1e+21,0.000001,1e-7,0,0,-1,150]`,
		`[9007199254740991,9007199254740993,5e-324]`:          `[9007199254740991,9007199254740992,5e-324]`,
		`[1e400,-1e400]`: `[1.7976931348623157e+308,-1.7976931348623157e+308]`,
		`"a"`:            `"a"`, `[]`: `[]`, `{}`: `{}`, ` null`: `null`,
	} {
		in := json.RawMessage(document)
		got, err := domain.Canonical(in)
		if err != nil || string(got) != want {
			t.Errorf("Canonical(%s) = %s, %v, want %s", document, got, err, want)
		}
		if string(in) != document {
			t.Errorf("Canonical(%s) changed its argument to %s", document, in)
		}
	}
}

// Canonical returns an error for a document without a canonical form.
func TestDocumentWithoutCanonicalFormIsRejected(t *testing.T) {
	t.Parallel()
	for _, document := range []string{
		``, ` `, `{`, `{"a":1,}`, `{"a":1} {}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `"\ud800"`, "\"\xff\"", `NaN`, `01`, `'a'`,
	} {
		if got, err := domain.Canonical(json.RawMessage(document)); err == nil || got != nil {
			t.Errorf("Canonical(%q) = %s, want an error", document, got)
		}
	}
}

// FuzzCanonical checks that the canonical form is JSON, does not change when it
// is computed again, and does not depend on white space.
func FuzzCanonical(f *testing.F) {
	for _, document := range []string{`{"b":[1,2.50],"a":"\u00e9"}`, `1e20`, `"\ud83d\ude00"`, `{}`, `[`} {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		once, err := domain.Canonical(document)
		if err != nil {
			return
		}
		if !json.Valid(document) || !json.Valid(once) {
			t.Fatalf("Canonical(%q) = %q: not JSON", document, once)
		}
		twice, err := domain.Canonical(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("Canonical(%q) = %q, and of that %q, %v", document, once, twice, err)
		}
		var spaced bytes.Buffer
		if err := json.Indent(&spaced, document, " ", "\t"); err != nil {
			t.Fatal(err)
		}
		if again, err := domain.Canonical(spaced.Bytes()); err != nil || !bytes.Equal(once, again) {
			t.Fatalf("space changes Canonical(%q) from %q to %q, %v", document, once, again, err)
		}
	})
}

func searching() domain.Definition {
	return domain.Definition{
		Name: "search", Description: "finds <things> & more",
		Input:  json.RawMessage(`{"type":"object","required":["query"]}`),
		Output: json.RawMessage(`{"type":"string"}`),
	}
}

func fingerprint(t *testing.T, d domain.Definition, action string) domain.Fingerprint {
	t.Helper()
	f, err := d.Fingerprint(action)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The fingerprint is the SHA-256 of the canonical JSON of action, description,
// input and output.
func TestFingerprintIsTheDigestOfTheFourFields(t *testing.T) {
	t.Parallel()
	written := `{"action":"web","description":"finds <things> & more","input":{"required":["query"],"type":"object"},"output":{"type":"string"}}`
	want := sha256.Sum256([]byte(written))
	if got := fingerprint(t, searching(), "web"); got != domain.Fingerprint(want) || got.String() != hex.EncodeToString(want[:]) {
		t.Errorf("fingerprint = %s, want that of %s", got, written)
	}
}

// The fingerprint does not depend on the name, the order of keys or white space.
func TestFingerprintIgnoresNameKeyOrderAndSpace(t *testing.T) {
	t.Parallel()
	want := fingerprint(t, searching(), "web")
	d := searching()
	d.Name = "find"
	d.Input = json.RawMessage(" {\n \"required\" : [\"query\"], \"type\":\"\\u006fbject\" }\n")
	if got := fingerprint(t, d, "web"); got != want {
		t.Errorf("fingerprint = %s, want %s", got, want)
	}
}

// A change of any of the four fields changes the fingerprint.
func TestEachOfTheFourFieldsChangesTheFingerprint(t *testing.T) {
	t.Parallel()
	seen := map[domain.Fingerprint]string{fingerprint(t, searching(), "web"): "nothing"}
	for field, change := range map[string]func(*domain.Definition){
		"description": func(d *domain.Definition) { d.Description += "." },
		"input":       func(d *domain.Definition) { d.Input = json.RawMessage(`{"type":"object"}`) },
		"output":      func(d *domain.Definition) { d.Output = json.RawMessage(`{"type":"null"}`) },
	} {
		d := searching()
		change(&d)
		f := fingerprint(t, d, "web")
		if other, ok := seen[f]; ok {
			t.Errorf("a change of %s gives the fingerprint of a change of %s", field, other)
		}
		seen[f] = field
	}
	if other, ok := seen[fingerprint(t, searching(), "edit")]; ok {
		t.Errorf("a change of the action gives the fingerprint of a change of %s", other)
	}
}

// Fingerprint returns an error for a schema without a canonical form.
func TestDefinitionWithABadSchemaHasNoFingerprint(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{`{`, `{"a":1,"a":2}`} {
		d := searching()
		d.Input = json.RawMessage(schema)
		if f, err := d.Fingerprint("web"); err == nil || !f.IsZero() || !strings.Contains(err.Error(), "search") {
			t.Errorf("fingerprint with input %s = %s, %v, want an error that names search", schema, f, err)
		}
	}
}

// Parsing the text of a fingerprint returns the fingerprint.
func TestFingerprintReadsBack(t *testing.T) {
	t.Parallel()
	want := fingerprint(t, searching(), "web")
	text, err := want.MarshalText()
	var got domain.Fingerprint
	if err == nil {
		err = got.UnmarshalText(text)
	}
	if err != nil || got != want {
		t.Errorf("%s reads back as %s, %v", want, got, err)
	}
	for _, bad := range []string{"0", string(text[1:]), string(text) + "0", string(text) + "00", strings.Repeat("g", 64), strings.Repeat("0", 6400)} {
		kept := want
		if err := kept.UnmarshalText([]byte(bad)); err == nil || kept != want {
			t.Errorf("UnmarshalText(%q) = %v and leaves %s", bad, err, kept)
		}
	}
	if err := got.UnmarshalText(nil); err != nil || !got.IsZero() || got.String() != "" {
		t.Errorf("UnmarshalText of nothing = %v and leaves %s, want the zero Fingerprint", err, got)
	}
}
