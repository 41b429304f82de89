package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

const secretKey = "5ecret-key/with+signs"

// exaBench returns a bench that searches with Exa at a server of this test.
func exaBench(t testing.TB, handler http.HandlerFunc) *bench {
	t.Helper()
	exa, err := NewExa(ExaConfig{Key: secretKey, BaseURL: serve(t, handler) + "/"})
	if err != nil {
		t.Fatal(err)
	}
	return openBench(t, func(c *Config) { c.Search = exa })
}

// A search sends the query with its defaults and the key, and returns the results.
func TestSearchReturnsResults(t *testing.T) {
	t.Parallel()
	var path, key, body string
	answer := `{"results":[{"title":"A\nB","url":"https://a.test","publishedDate":"2026-01-02","text":" text 1 "},{"url":"https://b.test","text":"text 2"}],"unknown":1}`
	b := exaBench(t, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		path, key, body = r.Method+" "+r.URL.Path, r.Header.Get("X-Api-Key"), string(data)
		io.WriteString(w, answer)
	})
	out, text := must[searchResult](t, b, "websearch", input{"query": "what is go"})
	if want := "Title: A B\nURL: https://a.test\nPublished: 2026-01-02\ntext 1\n\nURL: https://b.test\ntext 2"; text != want || out.Provider != "exa" || out.Text != want {
		t.Errorf("websearch = %+v, %q, want %q", out, text, want)
	}
	if want := `{"query":"what is go","type":"auto","numResults":8,"contents":{"text":{"maxCharacters":1250}}}`; body != want || path != "POST /search" || key != secretKey {
		t.Errorf("request = %s %s with the key %q, want %s", path, body, key, want)
	}
	must[searchResult](t, b, "websearch", input{"query": "q", "numResults": 20, "type": "deep", "livecrawl": "preferred", "contextMaxCharacters": 1})
	if want := `{"query":"q","type":"deep","numResults":20,"contents":{"text":{"maxCharacters":1},"livecrawl":"preferred"}}`; body != want {
		t.Errorf("request = %s, want %s", body, want)
	}
	answer = `{"response":"code","resultsCount":1}`
	if _, text := must[searchResult](t, b, "codesearch", input{"query": "q"}); text != "code" || path != "POST /context" || body != `{"query":"q","tokensNum":5000}` {
		t.Errorf("codesearch = %q after %s %s", text, path, body)
	}
}

// Scenario 155. A number out of its range is refused by the schema.
func TestSearchInputIsBounded(t *testing.T) {
	t.Parallel()
	b := exaBench(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	for tool, inputs := range map[string][]input{
		"websearch": {{"query": ""}, {"query": " \n"}, {"numResults": 1}, {"query": "q", "numResults": 0}, {"query": "q", "numResults": 21}, {"query": "q", "numResults": 1.5},
			{"query": "q", "contextMaxCharacters": 0}, {"query": "q", "contextMaxCharacters": 50001}, {"query": "q", "type": "slow"}, {"query": "q", "livecrawl": "always"}, {"query": "q", "key": "x"}},
		"codesearch": {{"query": ""}, {"query": "q", "tokensNum": 999}, {"query": "q", "tokensNum": 50001}, {"query": strings.Repeat("q", 2001)}},
	} {
		for _, in := range inputs {
			if _, err := b.run(t.Context(), t, tool, in); !errors.Is(err, domain.ErrInvalidInput) {
				t.Errorf("%s(%.80v) = %v, want ErrInvalidInput", tool, in, err)
			}
		}
	}
}

// Scenario 155. A key that the provider repeats gets into no result and no error, and into
// no printed value.
func TestKeyStaysSecret(t *testing.T) {
	t.Parallel()
	escaped := strings.ReplaceAll(strings.ReplaceAll(secretKey, "+", "%2B"), "/", "%2F")
	responses := []http.HandlerFunc{
		func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"results":[{"title":%q,"url":"https://a.test/?key=%s","text":"Bearer %s"}],"response":"use %s"}`, secretKey, escaped, secretKey, secretKey)
		},
		func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":"the key `+secretKey+` is not valid"}`, http.StatusUnauthorized)
		},
		func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.test/?"+secretKey, http.StatusTemporaryRedirect)
		},
		func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, secretKey) },
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "x "+secretKey)
			panic(http.ErrAbortHandler)
		},
		func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			fmt.Fprintf(conn, "HTTP/1.1 200 %s\r\n%s\r\n\r\n", secretKey, secretKey)
			conn.Close()
		},
	}
	for i, response := range responses {
		for _, tool := range []string{"websearch", "codesearch"} {
			b := exaBench(t, response)
			output, err := b.run(t.Context(), t, tool, input{"query": "q"})
			all := fmt.Sprint(string(output.Structured()), output.Content().Text(), err)
			if strings.Contains(all, "5ecret") || i > 0 && err == nil {
				t.Errorf("response %d: %s = %s", i, tool, all)
			}
		}
	}
	exa, err := NewExa(ExaConfig{Key: secretKey})
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, exa) + fmt.Sprintf(verb, Config{Search: exa}); strings.Contains(text, "5ecret") {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}

// A provider that redirects does not get the key sent to another host.
func TestKeyIsNotRedirected(t *testing.T) {
	t.Parallel()
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") })
	b := exaBench(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, http.StatusPermanentRedirect) })
	b.fails(t, "websearch", input{"query": "q"}, "status 308")
}

// Scenario 155. A search without results says so.
func TestEmptyResponseIsNoResult(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", " \n", "{}", `{"results":[],"response":""}`, `{"results":null,"response":" "}`} {
		b := exaBench(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) })
		for _, tool := range []string{"websearch", "codesearch"} {
			if _, text := must[searchResult](t, b, tool, input{"query": "q"}); text != "No search results found. Please try a different query." {
				t.Errorf("%s with the response %q = %q", tool, body, text)
			}
		}
	}
}

// Scenario 155. Reading ends at the limit, and the provider is cut off.
func TestResponseIsLimited(t *testing.T) {
	t.Parallel()
	var written atomic.Int64
	done := make(chan struct{})
	b := exaBench(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		for r.Context().Err() == nil {
			n, err := io.WriteString(w, strings.Repeat(" ", 64<<10))
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	b.fails(t, "websearch", input{"query": "q"}, "larger than 256 KiB")
	<-done
	if n := written.Load(); n > 32<<20 {
		t.Errorf("the provider could write %d bytes", n)
	}
}

// A failure of the provider is named, with advice where there is some.
func TestFailureOfTheProviderIsNamed(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{401: "check EXA_API_KEY", 402: "no credit", 429: "too many requests", 500: "status 500 Internal Server Error: something broke", 204: "status 204"} {
		b := exaBench(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, `{"error":"something broke"}`)
		})
		b.fails(t, "websearch", input{"query": "my query"}, want)
		b.fails(t, "codesearch", input{"query": "my query"}, "Unable to search code for my query: ")
	}
	for _, body := range []string{"[]", "null[", `{"results":1,"response":{}}`, strings.Repeat("[", 100_000)} {
		b := exaBench(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) })
		b.fails(t, "websearch", input{"query": "q"}, "not the JSON")
		b.fails(t, "codesearch", input{"query": "q"}, "not the JSON")
	}
	exa, err := NewExa(ExaConfig{Key: "k", BaseURL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	b := openBench(t, func(c *Config) { c.Search = exa })
	b.fails(t, "websearch", input{"query": "q"}, "Unable to search the web for q: reach the search provider: dial tcp 127.0.0.1:1")
}

// A blockedProvider answers when its context ends.
type blockedProvider struct{}

func (blockedProvider) Name() string { return "blocked" }
func (blockedProvider) SearchWeb(ctx context.Context, _ WebQuery) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}
func (blockedProvider) SearchCode(ctx context.Context, _ CodeQuery) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// Scenario 155. A search ends after 25 seconds, and with its context.
func TestSearchTimeIsLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := openBench(t, func(c *Config) { c.Search = blockedProvider{} })
		started := time.Now()
		b.fails(t, "websearch", input{"query": "q"}, "did not answer within 25s")
		if took := time.Since(started); took != 25*time.Second {
			t.Errorf("the search took %v", took)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(domain.ByUser) })
		if _, err := b.run(ctx, t, "codesearch", input{"query": "q"}); !errors.Is(err, domain.ErrInterrupted) {
			t.Errorf("codesearch = %v, want ErrInterrupted", err)
		}
	})
}

// A query needs permission, and a refusal sends nothing.
func TestSearchAsksFirst(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"websearch", "codesearch"} {
		b := newBench(t, "", permission.Headless{}, func(c *Config) { c.Search = blockedProvider{} })
		if _, err := b.run(t.Context(), t, tool, input{"query": "my query"}); !errors.Is(err, domain.ErrDenied) {
			t.Errorf("%s = %v, want a denial", tool, err)
		}
		got := b.requests[0]
		if want := tool + " my query"; b.recorded()[0] != want || got.Save[0] != "*" || !strings.Contains(string(got.Metadata), `"provider":"blocked"`) {
			t.Errorf("request = %+v, want %q with the provider", got.Ask, want)
		}
		var metadata struct{ Input map[string]any }
		if err := json.Unmarshal(got.Metadata, &metadata); err != nil || len(metadata.Input) < 2 {
			t.Errorf("metadata = %s, want the input with its defaults", got.Metadata)
		}
	}
}

// Without a key the search tools are hidden, and the turn says why. Called all the same,
// they say what to do.
func TestSearchIsOffWithoutAKey(t *testing.T) {
	t.Parallel()
	without := domain.TurnFacts{Has: func(string) bool { return false }}
	exa, err := NewExa(ExaConfig{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	for _, provider := range []SearchProvider{nil, exa} {
		b := openBench(t, func(c *Config) { c.Search = provider })
		for _, tool := range []string{"websearch", "codesearch"} {
			unmet := b.tools[tool].Available().Unmet(without)
			if len(unmet) != 1 || unmet[0].String() != "this machine lacks env:EXA_API_KEY" {
				t.Errorf("%s without a key lacks %v, want the variable", tool, unmet)
			}
			if unmet := b.tools[tool].Available().Unmet(domain.TurnFacts{}); len(unmet) != 0 {
				t.Errorf("%s with a key lacks %v", tool, unmet)
			}
			if provider == nil {
				b.fails(t, tool, input{"query": "q"}, "set the environment variable EXA_API_KEY")
			}
		}
	}
	b := openBench(t, func(c *Config) { c.Search = blockedProvider{} })
	if unmet := b.tools["websearch"].Available().Unmet(without); len(unmet) != 0 {
		t.Errorf("websearch with a provider of the program lacks %v", unmet)
	}
}

// An Exa that cannot work is refused without its key in the text.
func TestExaIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []ExaConfig{{}, {Key: "5ecret\n"}, {Key: "5ecret", BaseURL: "ftp://a.test"}, {Key: "5ecret", BaseURL: "https://joe:5ecret@a.test"}, {Key: "5ecret", BaseURL: "https://a.test?key=5ecret"}, {Key: "k", BaseURL: "a.test"}} {
		if exa, err := NewExa(c); !errors.Is(err, ErrBadConfig) || exa != nil || strings.Contains(err.Error(), "5ecret") {
			t.Errorf("NewExa(%+v) = %v, %v, want ErrBadConfig without the key", c, exa, err)
		}
	}
}

// All tools ask first and have a title in one line.
func TestToolsAskFirstAndHaveTitles(t *testing.T) {
	t.Parallel()
	b := openBench(t)
	for name, in := range map[string]string{"webfetch": `{"url":"https://joe:s3cret@a.test/\nx"}`, "websearch": `{"query":"a\nb"}`, "codesearch": `{"query":"a\nb"}`} {
		bound, err := b.tools[name].Bind(json.RawMessage(in))
		if err != nil {
			t.Fatal(err)
		}
		if title := bound.Title(); !b.tools[name].AsksFirst() || title == "" || strings.ContainsAny(title, "\n") || strings.Contains(title, "s3cret") {
			t.Errorf("%s asks first %v with the title %q", name, b.tools[name].AsksFirst(), title)
		}
	}
}
