package secrets_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/settlement-ledger/ledger/runner/secrets"
)

// write writes pieces to a Stream. It returns the redacted text, and the largest number of
// bytes of the text that the Stream kept while no secret was found.
func write(set *secrets.Set, pieces ...string) (text string, kept int) {
	s, length := set.Stream(), 0
	for _, piece := range pieces {
		text += s.Write(piece)
		if length += len(piece); !s.Found() {
			kept = max(kept, length-len(text))
		}
	}
	return text + s.Flush(), kept
}

// A stream replaces a secret at each place where the text is cut, keeps less than the
// secret, and passes a text without the beginning of a secret on at once.
func TestAStreamFindsASecretAcrossPieces(t *testing.T) {
	t.Parallel()
	const secret = "sk-0123\"456789"
	set := secrets.New(secret)
	quoted, _ := json.Marshal(secret)
	for _, form := range []string{secret, string(quoted[1 : len(quoted)-1]), base64.StdEncoding.EncodeToString([]byte(secret))} {
		text := "sk sk-0" + form + form + "sk-01"
		for i := range len(text) + 1 {
			for j := i; j <= len(text); j++ {
				if got, kept := write(set, text[:i], text[i:j], text[j:]); got != "sk sk-0[redacted][redacted]sk-01" || kept >= len(form)+2 {
					t.Fatalf("%q, %q, %q are %q with %d bytes kept", text[:i], text[i:j], text[j:], got, kept)
				}
			}
		}
		if got, _ := write(set, strings.Split(text, "")...); got != set.Redact(text) {
			t.Errorf("byte by byte the text is %q, want %q", got, set.Redact(text))
		}
	}
	if got := set.Stream().Write("the rest is said"); got != "the rest is said" {
		t.Errorf("Write = %q, want the whole text", got)
	}
}

// The pieces of any text are together what Redact returns for it, and less than the longest
// secret is kept.
func TestAStreamIsRedactInPieces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.StringMatching(`[ab]{8,12}`), 1, 3).Draw(t, "secrets")
		set := secrets.New(values...)
		pieces := rapid.SliceOf(rapid.OneOf(rapid.StringMatching(`[abc]{0,9}`), rapid.SampledFrom(values))).Draw(t, "pieces")
		if got, kept := write(set, pieces...); got != set.Redact(strings.Join(pieces, "")) || kept >= 20 { // 12 bytes are at most 16 in base64
			t.Errorf("the pieces are %q with %d bytes kept, want %q", got, kept, set.Redact(strings.Join(pieces, "")))
		}
	})
}

// A Flush returns the text that was kept, and a secret that goes on behind it is not
// returned whole.
func TestAFlushedStreamStillFindsTheSecret(t *testing.T) {
	t.Parallel()
	const secret = "sk-0123456789"
	for i := 1; i < len(secret); i++ {
		s := secrets.New(secret).Stream()
		got := s.Write("<"+secret[:i]) + s.Flush()
		if got != "<"+secret[:i] || s.Flush() != "" {
			t.Fatalf("after %q the stream has %q", secret[:i], got)
		}
		if got = got + s.Write(secret[i:]+">") + s.Flush(); got != "<"+secret[:i]+"[redacted]>" || !s.Found() {
			t.Errorf("cut at %d the stream has %q", i, got)
		}
		s = secrets.New(secret).Stream()
		if got := s.Write(secret[:i]) + s.Flush() + s.Write("<") + s.Flush(); got != secret[:i]+"<" || s.Found() {
			t.Errorf("a text that does not go on as the secret is %q", got)
		}
	}
}

// A document keeps no secret in its strings and keys, however it is escaped.
func TestADocumentHasNoSecretInItsStrings(t *testing.T) {
	t.Parallel()
	set := secrets.New("sk-0123456789")
	for document, want := range map[string]string{
		`{"b": "<sk-0123456789>", "a":1.0}`:                `{"b":"<[redacted]>","a":1.0}`,
		`["\u0073k-0123456789",{"sk-012345678\u0039":[]}]`: `["[redacted]",{"[redacted]":[]}]`,
		`{"a":"sk"}`: `{"a":"sk"}`,
	} {
		clean, found, err := set.RedactJSON([]byte(document))
		if string(clean) != want || found != strings.Contains(want, "[redacted]") || err != nil {
			t.Errorf("RedactJSON(%s) = %s, %t, %v, want %s", document, clean, found, err, want)
		}
	}
	if clean, _, err := set.RedactJSON([]byte(`{"a":`)); clean != nil || err == nil {
		t.Errorf("RedactJSON of half a document = %s, %v, want an error", clean, err)
	}
}

// A Stream of any text in any pieces, with and without a Flush, returns no whole secret.
func FuzzStream(f *testing.F) {
	f.Add("secret-value", "a secret-", "value of", uint8(1))
	f.Add("aaaaaaaaab", "aaaaaaaaa", "aaaaaaaaab", uint8(2))
	f.Fuzz(func(t *testing.T, secret, before, after string, step uint8) {
		if strings.Contains(secret, "[") || strings.Contains(secret, "]") || len(secret) < secrets.MinLength || len(secret) > 100 {
			return // the replacement could complete such a secret
		}
		set, text := secrets.New(secret), before+secret+after
		var pieces []string
		for rest, n := text, int(step)+1; rest != ""; rest = rest[min(n, len(rest)):] {
			pieces = append(pieces, rest[:min(n, len(rest))])
		}
		if got, _ := write(set, pieces...); got != set.Redact(text) {
			t.Fatalf("the pieces are %q, want %q", got, set.Redact(text))
		}
		var flushed strings.Builder
		s := set.Stream()
		for _, piece := range pieces {
			flushed.WriteString(s.Write(piece) + s.Flush())
		}
		if got := flushed.String(); strings.Contains(got, secret) && !strings.Contains(secrets.Redacted, secret) {
			t.Fatalf("with flushes the pieces are %q, with the secret %q", got, secret)
		}
	})
}
