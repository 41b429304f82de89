package redaction_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/settlement-ledger/ledger/cmd/ledger/redaction"
)

// run returns n characters that end with a digit.
func run(n int) string { return strings.Repeat("aZ4kQ9", n/6+1)[:n-1] + "7" }

// planted has a secret of each form, by rule: a text and the part that must not be left.
// The tokens are made here, so that no scanner takes this file for a leak.
var planted = []struct{ rule, before, secret, after string }{
	{"anthropic-key", "export X=", "sk-ant-" + "api03-" + run(40), " "},
	{"openrouter-key", "", "sk-or-" + "v1-" + run(64), ""},
	{"openai-key", "key: ", "sk-" + "proj-" + run(48), "."},
	{"secret-key", "(", "sk-" + run(48), ")"},
	{"google-key", "?key=", "AIza" + run(35), "&x=1"},
	{"google-oauth", "", "ya29" + "." + run(60), ""},
	{"model-key", "", "gsk" + "_" + run(52), ""},
	{"huggingface-token", "", "hf" + "_" + run(34), ""},
	{"aws-key-id", "id ", "AKIA" + strings.ToUpper(run(16)), "\n"},
	{"github-token", "https://", "ghp" + "_" + run(36), "@github.com"},
	{"github-token", "\\n", "github" + "_pat_" + run(30) + "_" + run(50), ""},
	{"gitlab-token", "", "glpat" + "-" + run(20), ""},
	{"slack-token", "", "xoxb" + "-" + run(12) + "-" + run(24), ""},
	{"slack-webhook", "https://", "hooks.slack.com" + "/services/T" + run(8) + "/B" + run(8) + "/" + run(24), ""},
	{"npm-token", "_authToken=", "npm" + "_" + run(36), ""},
	{"pypi-token", "", "pypi" + "-" + run(80), ""},
	{"stripe-key", "", "sk" + "_live_" + run(24), ""},
	{"sendgrid-key", "", "SG" + "." + run(22) + "." + run(43), ""},
	{"digitalocean-token", "", "dop" + "_v1_" + run(64), ""},
	{"docker-token", "", "dckr" + "_pat_" + run(27), ""},
	{"vault-token", "", "hvs" + "." + run(30), ""},
	{"age-key", "", "AGE-SECRET" + "-KEY-1" + strings.ToUpper(run(58)), ""},
	{"jwt", "cookie ", "eyJ" + run(33) + "." + "eyJ" + run(50) + "." + run(43), ";"},
	{"private-key", "x\n", "-----BEGIN RSA " + "PRIVATE KEY-----\n" + run(64) + "\n" + run(64) + "\n-----END RSA PRIVATE KEY-----", "\ny"},
	{"private-key", `{"k":"`, "-----BEGIN " + `PRIVATE KEY-----\n` + run(64) + `\n-----END PRIVATE KEY-----`, `\n"}`},
	{"bearer-token", "-H 'Authorization: Bearer ", run(30), "'"},
	{"bearer-token", `"Authorization": "Basic `, "dXNlcjpwYXNz", `"`},
	{"url-password", "postgres://ada:", "p4ss!word", "@db.example.org/x"},
	{"github-token", "https://", "ghp" + "_" + run(36), ":@github.com"},
	{"assigned-secret", "AWS_SECRET_ACCESS_KEY=", "wJalr/" + run(33), "\n"},
	{"assigned-secret", "aws_secret_access_key = ", strings.Repeat("FAKE", 10), "\n"},
	{"assigned-secret", "DB_PASS=", "hunter", "\n"},
	{"assigned-secret", `{"dbPassword": "`, "correct horse", `"}`},
	{"assigned-secret", `"{\"client_secret\": \"`, "correct horse", `\"}"`},
	{"assigned-secret", "x-api-key: ", "abc123def", "\r\n"},
	{"assigned-secret", `token := "`, "abcdefghijkl", `"`},
	{"assigned-secret", "?password=", "hunter2", "&user=ada"},
	{"home-folder", "in ", "/home/ada", "/project"},
	{"home-folder", "file://", "/Users/ada.l", "/x"},
	{"home-folder", "", `C:\Users\ada`, `\x`},
	{"home-folder", `"`, `c:\\Users\\ada`, `\\x"`},
}

func TestEachRuleHidesItsSecrets(t *testing.T) {
	t.Parallel()
	unseen := map[string]bool{"user-name": true, "host-name": true}
	for _, rule := range redaction.Rules() {
		unseen[rule.Name] = true
	}
	for _, p := range planted {
		r := redaction.New()
		want := "[hidden: " + p.rule + " 1]"
		if p.rule == "home-folder" {
			want = "~"
		}
		if got := r.Text(p.before + p.secret + p.after); got != p.before+want+p.after {
			t.Errorf("%s: Text(%q) = %q", p.rule, p.before+p.secret+p.after, got)
		}
		if got := r.Counts(); !slices.Equal(got, []redaction.Count{{Rule: p.rule, Hidden: 1}}) {
			t.Errorf("%s: the counts are %v", p.rule, got)
		}
		delete(unseen, p.rule)
	}
	r := redaction.New()
	if u, h := r.User("ada"), r.Host("box"); u != "[hidden: user-name 1]" || h != "[hidden: host-name 1]" || r.User(u) != u || r.User("") != "" {
		t.Errorf("the names are %q and %q", u, h)
	}
	delete(unseen, "user-name")
	delete(unseen, "host-name")
	if len(unseen) > 0 {
		t.Errorf("no secret is planted for the rules %v", unseen)
	}
}

// harmless are texts that rules may take for secrets, and must not.
var harmless = []string{
	"commit 3f786850e387550fdab836ed7e6dc881de23001b", "id 123e4567-e89b-12d3-a456-426614174000", "sha256:" + strings.Repeat("ab12", 16),
	"data:image/png;base64," + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0x89, 'P', 'N', 'G', 7, 250, 33}, 900)),
	"sk-learn-contrib and task-oriented-programming-language", "https://example.org/home/page and ./home/ada", "/usr/home", "/Users/Shared/x", `C:\Users\Public\x`,
	"token = parser.next()", `HOOKS_STORAGE_KEY = "hooks"`, "password: string;", "func f(token string) error", "max_tokens=4096", `"tokens": 1234567`, `{"token":12345678}`, "API_KEY=$API_KEY", "API_KEY=${API_KEY}",
	"PASSWORD=<your password>", `"password": "********"`, "Bearer authentication is a basic scheme", "tokenizer=abc123456", "https://example.org:8080/a@b", "key=value1234567",
	"-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----", "eyJhbGciOiJIUzI1NiJ9", "SG.short", "git@github.com:ada/x.git", "ses_01JD8Z2N6M3W5Y7K9Q1T4P2QRS", "toolu_01A2b3C4d5E6f7G8h9J0k1L2",
	`{"x":"a\npm_` + run(36) + `"}`, // a line end before pm_
	`{"cmd":"the password: "},{"x":"the token: ","y":1}`, `["secret: "  ,"b"]`, `{"a":"my 'token': "},{"b":"c"}`,
}

func TestHarmlessTextsAreKept(t *testing.T) {
	t.Parallel()
	for _, text := range harmless {
		r := redaction.New()
		if got := r.Text(text); got != text || len(r.Counts()) > 0 {
			t.Errorf("Text(%q) = %q", text, got)
		}
		var raw *redaction.Redactor
		if got := raw.Text(text); got != text || len(raw.Counts()) > 0 || string(raw.JSON([]byte(text))) != text || raw.User("ada") != "ada" {
			t.Errorf("without a Redactor the text is %q", got)
		}
	}
}

// The sources of this module hold no secret. Each finding in them is a false positive.
func TestSourcesHaveNoFalsePositives(t *testing.T) {
	t.Parallel()
	files, bytes := 0, 0
	for _, pattern := range []string{"../*/*.go", "../../../*/*.go", "../../../*/*/*.go", "../../../docs/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "redaction") {
				continue // tests plant secrets
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files, bytes = files+1, bytes+len(text)
			for i, line := range strings.Split(string(text), "\n") {
				if got := redaction.New().Text(line); got != line && !strings.Contains(got, "~") {
					t.Errorf("%s:%d: %s", name, i+1, got)
				}
			}
		}
	}
	if files < 300 {
		t.Errorf("only %d files with %d bytes were read", files, bytes)
	}
}

func TestEqualSecretsHaveEqualMarks(t *testing.T) {
	t.Parallel()
	one, two := "ghp_"+run(36), "ghp_z"+run(36)
	r := redaction.New()
	got := r.Text(one+" "+two+" "+one) + r.Text(two)
	const mark = "[hidden: github-token %d]"
	if want := fmt.Sprintf(mark+" "+mark+" "+mark+mark, 1, 2, 1, 2); got != want {
		t.Errorf("Text = %q, want %q", got, want)
	}
}

// The value of a member with a secret name is always hidden, and JSON finds escaped secrets.
// Other bytes stay.
func TestJSONChangesOnlyStringsWithSecrets(t *testing.T) {
	t.Parallel()
	token := "ghp_" + run(36)
	for document, want := range map[string]string{
		`{"password" : "a\"b", "n":1.0}`:                     `{"password" : "[hidden: assigned-secret 1]", "n":1.0}`,
		`["\u0067` + token[1:] + `", {"x":"\u003c"}]`:        `["[hidden: github-token 1]", {"x":"\u003c"}]`,
		`{"` + token + `":[]} `:                              `{"[hidden: github-token 1]":[]} `,
		`{"secrets":{"api_key":null,"apiKey":"$KEY"}}`:       `{"secrets":{"api_key":null,"apiKey":"$KEY"}}`,
		`{"a":"{\"auth_token\":\"\\u0041bcdefgh\"}","b": 2}`: `{"a":"{\"auth_token\":\"[hidden: assigned-secret 1]\"}","b": 2}`,
		`half of {"token": "` + token:                        `half of {"token": "[hidden: github-token 1]`,
		``:                                                   ``,
	} {
		if got := string(redaction.New().JSON([]byte(document))); got != want {
			t.Errorf("JSON(%s) = %s, want %s", document, got, want)
		}
	}
}

// drawText draws a text with secrets, parts of secrets and quotes in it.
func drawText(t *rapid.T) string {
	var b strings.Builder
	for range rapid.IntRange(1, 12).Draw(t, "parts") {
		p := rapid.SampledFrom(planted).Draw(t, "planted")
		part := p.before + p.secret + p.after
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
			part = rapid.StringMatching(`[a-zA-Z0-9 "'\\{}:=,/\n.~\]-]{0,30}`).Draw(t, "text")
		case 1:
			part = part[rapid.IntRange(0, len(part)).Draw(t, "from"):]
		}
		b.WriteString(part)
	}
	return b.String()
}

func TestTextIsIdempotentAndKeepsJSONValid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := drawText(t)
		r := redaction.New()
		once := r.Text(text)
		if twice := redaction.New().Text(once); twice != once {
			t.Fatalf("Text(%q) = %q, and again %q", text, once, twice)
		}
		document, err := json.Marshal(map[string]any{"text": text, "list": []any{text[:len(text)/2], 7, nil}, "password": 12345678})
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []string{redaction.New().Text(string(document)), string(redaction.New().JSON(document))} {
			if !json.Valid([]byte(got)) {
				t.Fatalf("%s is redacted as %s, not JSON", document, got)
			}
		}
	})
}

func TestAWriterWritesTheTextInPieces(t *testing.T) {
	t.Parallel()
	filler := strings.Repeat("a line of text that fills the buffer of the writer\n", 900)
	for _, p := range planted {
		for _, fill := range []int{0, len(filler)} {
			text := strings.Repeat(filler[:fill]+p.before+p.secret+p.after, 3)
			for _, step := range []int{997, 64 << 10} {
				var got bytes.Buffer
				w := redaction.New().Writer(&got)
				for rest := text; rest != ""; {
					n := min(step, len(rest))
					if _, err := w.Write([]byte(rest[:n])); err != nil {
						t.Fatal(err)
					}
					rest = rest[n:]
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				if want := redaction.New().Text(text); got.String() != want {
					t.Fatalf("%s in pieces of %d differs from Text at %d", p.rule, step, prefix(got.String(), want))
				}
			}
		}
	}
}

// A Writer finds secrets wherever it cuts the text: in the secret, in the name before it, and
// behind its beginning.
func TestAWriterCutsNoSecret(t *testing.T) {
	t.Parallel()
	const piece = 1 << 10
	filler := strings.Repeat("a line of text that fills the buffer of the writer\n", 3000)
	for _, p := range planted {
		if p.rule != "assigned-secret" && p.rule != "private-key" && p.rule != "url-password" && p.rule != "github-token" {
			continue
		}
		whole := p.before + p.secret + p.after
		for k := range len(whole) + 1 {
			// The Writer gets 128 KiB before it writes the first 64 KiB.
			cut := []int{64 << 10, 128 << 10}[k%2]
			if k%9 > 1 {
				continue
			}
			text := filler[:cut-k] + whole + filler[:80<<10]
			var got bytes.Buffer
			w := redaction.New().Writer(&got)
			for rest := text; rest != ""; rest = rest[min(piece, len(rest)):] {
				if _, err := w.Write([]byte(rest[:min(piece, len(rest))])); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if want := redaction.New().Text(text); got.String() != want {
				t.Fatalf("%s cut at %d of %q differs from Text", p.rule, k, whole)
			}
		}
	}
}

// prefix returns the length of the common beginning of two texts.
func prefix(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// Long lines on which rules begin again and again, whose time the benchmark compares with
// a plain text.
var long = map[string]string{
	"text": "the quick brown fox jumps over the lazy dog, and ", "names": "token", "assigned": "api_key=", "jwt": "eyJaaaaaaaa.", "keys": "-----BEGIN PRIVATE KEY-----",
	"slashes": `"token": "\\\\`, "urls": "http://a:", "homes": "/home/", "bearer": "authorization: ", "escapes": `\u003c`, "dashes": "sk-",
}

func BenchmarkText(b *testing.B) {
	for name, part := range long {
		b.Run(name, func(b *testing.B) {
			text := strings.Repeat(part, (10<<20)/len(part))
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				redaction.New().Text(text)
			}
		})
	}
}

// docs/redaction.md has each rule with its text.
func TestTheDocsListTheRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/redaction.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for _, rule := range redaction.Rules() {
		fmt.Fprintf(&rows, "| `%s` | %s |\n", rule.Name, rule.Hides)
	}
	if !strings.Contains(string(page), rows.String()) {
		t.Errorf("docs/redaction.md does not have the rows:\n%s", rows.String())
	}
}
