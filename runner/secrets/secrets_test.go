package secrets_test

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/settlement-ledger/ledger/runner/secrets"
)

// A redacted text has no secret in any of the written forms, and the rest of the text
// stays.
func TestNoFormOfASecretIsLeft(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[A-Za-z0-9"\\+/=& é-]{8,40}`).Draw(t, "secret")
		longer := secret + rapid.StringMatching(`[a-z]{1,5}`).Draw(t, "rest")
		quoted, _ := json.Marshal(secret)
		forms := []string{secret, longer, string(quoted), url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret))}
		form := rapid.SampledFrom(forms).Draw(t, "form")
		got := secrets.New("short", secret, longer).Redact("<" + form + ">")
		if strings.Contains(got, secret) || strings.Contains(got, form) || !strings.Contains(got, secrets.Redacted) || got[0] != '<' || got[len(got)-1] != '>' {
			t.Errorf("Redact(%q) = %q, with the secret %q", form, got, secret)
		}
	})
}

// A text without a secret is unchanged, and so is every text if the set is empty.
func TestATextWithoutASecretIsUnchanged(t *testing.T) {
	t.Parallel()
	const text = "the key short is not a secret, sk-other is none of these"
	for _, set := range []*secrets.Set{nil, {}, secrets.New(), secrets.New("", "short"), secrets.New("sk-unused-key")} {
		if got := set.Redact(text); got != text {
			t.Errorf("Redact = %q, want it unchanged", got)
		}
	}
}

// A JSON string stays one, also if the secret ends with a character that JSON escapes.
func TestARedactedJSONStringStaysValid(t *testing.T) {
	t.Parallel()
	const secret = `sk-0123456789"`
	quoted, _ := json.Marshal("<" + secret + ">")
	if got := secrets.New(secret).Redact(string(quoted)); got != `"\u003c[redacted]\u003e"` {
		t.Errorf("Redact(%s) = %s, want a JSON string", quoted, got)
	}
}
