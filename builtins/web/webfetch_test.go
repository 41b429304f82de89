package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

const samplePage = `<!doctype html><html><head><title>T</title><style>p{}</style><script>alert(1)</script></head>
<body><h1>Title</h1><p>One <b>bold</b> <a href="/x?a=1">link</a>.<ul><li>a<li>b</ul>
<table><tr><th>H<th>I<tr><td>1<td>2|3</table><pre><code class="language-go">if a {
	b()
}</code></pre></body></html>`

// Scenario 154.
func TestPageIsReturnedInTheFormatAskedFor(t *testing.T) {
	t.Parallel()
	b := openBench(t)
	address := serve(t, respond("text/html; charset=utf-8", samplePage))
	out, text := must[fetchResult](t, b, "webfetch", input{"url": address})
	for _, want := range []string{"# Title", "One **bold** [link](" + address + "/x?a=1).", "- a\n- b", "| H | I |", `| 1 | 2\|3 |`, "```go\nif a {\n\tb()\n}\n```"} {
		if !strings.Contains(text, want) {
			t.Errorf("Markdown lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "alert") || strings.Contains(text, "p{}") {
		t.Errorf("Markdown has a script or a style:\n%s", text)
	}
	if out.URL != address+"/" || out.FinalURL != "" || out.ContentType != "text/html" || out.Format != "markdown" || out.Output != text {
		t.Errorf("output = %+v, want the URL, the type and the format", out)
	}
	_, text = must[fetchResult](t, b, "webfetch", input{"url": address, "format": "text"})
	if want := "Title\n\nOne bold link.\n\na\nb\n\nH\tI\n1\t2|3\n\nif a {\n\tb()\n}"; text != want {
		t.Errorf("text = %q, want %q", text, want)
	}
	if _, text = must[fetchResult](t, b, "webfetch", input{"url": address, "format": "html"}); text != samplePage {
		t.Errorf("HTML = %q, want the page unchanged", text)
	}
}

// Scenario 154. A URL that cannot be fetched is refused before permission, and no password
// gets into a text.
func TestURLIsCheckedBeforePermission(t *testing.T) {
	t.Parallel()
	b := newBench(t, "", permission.Headless{})
	for url, want := range map[string]string{
		"file:///etc/passwd":                "only http and https",
		"ftp://a.test/":                     "only http and https",
		"a.test/x":                          "only http and https",
		"javascript:alert(1)":               "only http and https",
		"http:///x":                         "no host",
		"http://./x":                        "no host",
		"http:a.test":                       "no host",
		"https://a.test:0/":                 "port",
		"https://a.test:70000/":             "port",
		"https://joe:s3cret@a.test/":        "Unable to fetch https://a.test/: the URL holds a user name",
		"https://joe:s3cret@a.test:x/":      "Unable to fetch https://a.test:x/: it is not a valid URL",
		"https://joe:s3/cret@a.test/":       "not a valid URL",
		"http:\\\\joe:s3cret@a.test\\":      "Unable to fetch",
		"https://a.test/\n":                 "",
		"http://[fe80::1%25eth0]/":          "zone",
		"https://exa mple.test/":            "not a valid URL",
		"https://\u202e.test/":              "not a valid URL",
		"data:text/html,<script>1</script>": "only http and https",
	} {
		if want == "" {
			continue
		}
		_, err := b.run(t.Context(), t, "webfetch", input{"url": url})
		if _, ok := errors.AsType[*domain.Failure](err); !ok || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3") {
			t.Errorf("webfetch(%q) = %v, want a failure with %q and without the password", url, err, want)
		}
	}
	if got := b.recorded(); len(got) != 0 {
		t.Errorf("permission was requested: %q", got)
	}
	if got := withoutCredentials("https://joe:s3cret@a.test/x@y"); got != "https://a.test/x@y" {
		t.Errorf("withoutCredentials = %q", got)
	}
}

// A timeout or a format out of range is refused by the schema.
func TestFetchInputIsBounded(t *testing.T) {
	t.Parallel()
	b := openBench(t)
	for _, in := range []input{{"url": ""}, {"url": "https://a.test", "timeout": 0}, {"url": "https://a.test", "timeout": 121}, {"url": "https://a.test", "format": "pdf"}, {"url": strings.Repeat("a", 8193)}} {
		if _, err := b.run(t.Context(), t, "webfetch", in); !errors.Is(err, domain.ErrInvalidInput) {
			t.Errorf("webfetch(%.60v) = %v, want ErrInvalidInput", in, err)
		}
	}
}

// Scenario 154. A refusal is returned unchanged, and nothing is sent.
func TestRefusalSendsNothing(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	address := serve(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	for _, rules := range []string{"deny webfetch *", "allow webfetch *", "allow webfetch *\ndeny private_address 127.*", "allow * *\ndeny private_address localhost:*"} {
		b := newBench(t, rules, permission.Headless{})
		url := strings.Replace(address, "127.0.0.1", "LOCALHOST", 1)
		if !strings.Contains(rules, "localhost") {
			url = address
		}
		if _, err := b.run(t.Context(), t, "webfetch", input{"url": url}); !errors.Is(err, domain.ErrDenied) {
			t.Errorf("webfetch under %q = %v, want a *domain.Denied", rules, err)
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("the server got %d requests, want none", n)
	}
}

// A rule cannot be passed by with another text for the same URL.
func TestRuleHoldsForEverySpellingOfAURL(t *testing.T) {
	t.Parallel()
	b := newBench(t, "allow * *\ndeny webfetch https://evil.test/admin/*", permission.Headless{}, (&nameTable{}).use)
	for _, url := range []string{"https://evil.test/admin/x", "HTTPS://EVIL.test./a/../admin/x", "https://evil.test:443/%61dmin/x", " https://evil.test/admin/x#y", "https://ｅvil.test/admin/x?y"} {
		if _, err := b.run(t.Context(), t, "webfetch", input{"url": url}); !errors.Is(err, domain.ErrDenied) {
			t.Errorf("webfetch(%q) = %v, want a denial", url, err)
		}
	}
}

// The question about a private address names it, and the answer "always" allows just that
// address and port.
func TestPrivateAddressNeedsItsOwnPermission(t *testing.T) {
	t.Parallel()
	address := serve(t, respond("text/plain", "inside"))
	queue := &permission.Queue{}
	b := newBench(t, "allow webfetch *", queue)
	done := make(chan error, 1)
	go func() {
		_, err := b.run(t.Context(), t, "webfetch", input{"url": address})
		done <- err
	}()
	for len(queue.Pending()) == 0 {
		select {
		case err := <-done:
			t.Fatalf("webfetch = %v without a question", err)
		case <-time.After(time.Millisecond):
		}
	}
	asked := queue.Pending()[0]
	if err := queue.Reply(asked.ID, permission.Always, ""); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("webfetch after the answer always = %v", err)
	}
	want := []string{hostOf(t, address)}
	if asked.Action != "private_address" || !slices.Equal(asked.Resources, want) || !slices.Equal(asked.Save, want) || !strings.Contains(string(asked.Metadata), `"host":"127.0.0.1"`) {
		t.Errorf("question = %s %q saves %q, metadata %s, want private_address %q", asked.Action, asked.Resources, asked.Save, asked.Metadata, want)
	}
	if _, err := b.run(t.Context(), t, "webfetch", input{"url": address + "/again"}); err != nil {
		t.Errorf("webfetch of the approved address = %v", err)
	}
}

// Scenario 154. A redirect needs no permission of its own, unless a rule denies its target
// or the target is private.
func TestRedirectIsCheckedAtEachHop(t *testing.T) {
	t.Parallel()
	var inner atomic.Int64
	target := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		inner.Add(1)
		respond("text/plain", "inside")(w, nil)
	})
	names := map[string][]string{"a.test": {"127.0.0.1"}, "metadata.test": {"127.0.0.9"}}
	location := atomic.Pointer[string]{}
	address := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, *location.Load(), http.StatusFound) })
	address = strings.Replace(address, "127.0.0.1", "a.test", 1)
	allowed := "allow webfetch *\nallow private_address " + strings.Replace(hostOf(t, address), "a.test", "127.0.0.1", 1)
	fetch := func(rules, to string) (domain.Output, error) {
		location.Store(&to)
		b := newBench(t, rules, permission.Headless{}, (&nameTable{answers: names}).use)
		return b.run(t.Context(), t, "webfetch", input{"url": address})
	}
	for _, to := range []string{target, "http://metadata.test/latest", "http://[::1]:1/", "http://[::ffff:127.0.0.1]:1/"} {
		if _, err := fetch(allowed, to); err == nil || !strings.Contains(err.Error(), "redirects to the private address") {
			t.Errorf("redirect to %s = %v, want a failure", to, err)
		}
	}
	for to, want := range map[string]string{"file:///etc/passwd": "only http and https", "http://joe:s3cret@a.test/": "user name", "http://%zz/": "valid URL"} {
		if _, err := fetch(openRules, to); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("redirect to %s = %v, want a failure with %q", to, err, want)
		}
	}
	for _, deny := range []string{"deny webfetch */secret", "deny private_address 127.0.0.9:*"} {
		if _, err := fetch(openRules+"\n"+deny, "http://metadata.test/secret"); !errors.Is(err, domain.ErrDenied) {
			t.Errorf("redirect under %q = %v, want a denial", deny, err)
		}
	}
	if inner.Load() != 0 {
		t.Fatal("a refused redirect was followed")
	}
	output, err := fetch(allowed+"\nallow private_address "+hostOf(t, target), target+"/end#x")
	if err != nil || output.Content().Text() != "inside" || !strings.Contains(string(output.Structured()), `"finalURL":"`+target+`/end"`) {
		t.Errorf("allowed redirect = %s, %v, want the page", output.Structured(), err)
	}
}

// A loop of redirects ends.
func TestRedirectsAreCounted(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == maxRedirects+1 && r.URL.Path == "/ten" {
			respond("text/plain", "end")(w, r)
			return
		}
		http.Redirect(w, r, r.URL.Path, http.StatusSeeOther)
	})
	b := openBench(t)
	if _, text := must[fetchResult](t, b, "webfetch", input{"url": address + "/ten"}); text != "end" {
		t.Errorf("webfetch after %d redirects = %q", maxRedirects, text)
	}
	b.fails(t, "webfetch", input{"url": address + "/loop"}, "more than 10 redirects")
	if n := requests.Load(); n != 2*(maxRedirects+1) {
		t.Errorf("the server got %d requests, want %d", n, 2*(maxRedirects+1))
	}
}

// A name that resolves to another private address the second time does not lead there: the
// connection goes to the address that was checked, and a redirect is checked anew.
func TestRebindingIsRefused(t *testing.T) {
	t.Parallel()
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, "/", http.StatusFound)
			return
		}
		respond("text/plain", "reached")(w, r)
	})
	host := hostOf(t, address)
	rules := "allow webfetch *\nallow private_address " + host
	names := &nameTable{answers: map[string][]string{"rebind.test": {"127.0.0.1", "127.0.0.2"}}}
	b := newBench(t, rules, permission.Headless{}, names.use)
	url := strings.Replace(address, "127.0.0.1", "rebind.test", 1)
	if _, text := must[fetchResult](t, b, "webfetch", input{"url": url}); text != "reached" || names.lookups != 1 {
		t.Errorf("webfetch = %q after %d lookups, want the page after 1", text, names.lookups)
	}
	if _, err := b.run(t.Context(), t, "webfetch", input{"url": url}); !errors.Is(err, domain.ErrDenied) {
		t.Errorf("webfetch of the rebound name = %v, want a denial", err)
	}
	names = &nameTable{answers: map[string][]string{"rebind.test": {"127.0.0.1", "127.0.0.2"}}}
	b = newBench(t, rules, permission.Headless{}, names.use)
	b.fails(t, "webfetch", input{"url": url + "/redirect"}, "private address 127.0.0.2:")
	mixed := &nameTable{answers: map[string][]string{"rebind.test": {"8.8.8.8,127.0.0.3"}}}
	b = newBench(t, rules, permission.Headless{}, mixed.use)
	if _, err := b.run(t.Context(), t, "webfetch", input{"url": url}); !errors.Is(err, domain.ErrDenied) {
		t.Errorf("webfetch of a name with a private address among others = %v, want a denial", err)
	}
}

// The environment names no proxy to which a request goes.
func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the proxy got a request") })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy)
	}
	names := &nameTable{answers: map[string][]string{"a.test": {"127.0.0.1"}}}
	address := strings.Replace(serve(t, respond("text/plain", "direct")), "127.0.0.1", "a.test", 1)
	if _, text := must[fetchResult](t, openBench(t, names.use), "webfetch", input{"url": address}); text != "direct" {
		t.Errorf("webfetch = %q", text)
	}
}

// gzipped returns data compressed by gzip.
func gzipped(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(data)
	z.Close()
	return b.Bytes()
}

// Scenario 154. A page over the limit is refused by its header, by its stream and after
// decompression, without being read to its end.
func TestSizeIsLimited(t *testing.T) {
	t.Parallel()
	bomb := gzipped(make([]byte, maxPage+1))
	var written atomic.Int64
	pages := map[string]http.HandlerFunc{
		"/header": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(50<<20))
			w.WriteHeader(http.StatusOK)
		},
		"/stream": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			chunk := bytes.Repeat([]byte("x"), 64<<10)
			for r.Context().Err() == nil {
				n, err := w.Write(chunk)
				written.Add(int64(n))
				if err != nil {
					return
				}
			}
		},
		"/bomb": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(bomb)
		},
	}
	address := serve(t, func(w http.ResponseWriter, r *http.Request) { pages[r.URL.Path](w, r) })
	b := openBench(t)
	for path := range pages {
		b.fails(t, "webfetch", input{"url": address + path}, "Unable to fetch "+address+path+": the page is larger than 5 MiB")
	}
	if n := written.Load(); n > 64<<20 {
		t.Errorf("the server could write %d bytes, want about %d", n, maxPage)
	}
	for size, want := range map[int]error{maxPage: nil, maxPage + 1: errTooLarge} {
		if data, err := readLimited(strings.NewReader(strings.Repeat("x", size))); !errors.Is(err, want) || err == nil && len(data) != size {
			t.Errorf("readLimited of %d bytes = %d bytes, %v, want %v", size, len(data), err, want)
		}
	}
}

// Scenario 154. A server that never ends its response, or never begins it, is left when
// the time is over.
func TestTimeIsLimited(t *testing.T) {
	t.Parallel()
	pages := map[string]http.HandlerFunc{
		"/silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"/drip": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			for tick := time.NewTicker(5 * time.Millisecond); r.Context().Err() == nil; <-tick.C {
				io.WriteString(w, "x")
				w.(http.Flusher).Flush()
			}
		},
		"/redirects": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("n") == "" {
				http.Redirect(w, r, "/redirects?n=1", http.StatusFound)
				return
			}
			<-r.Context().Done()
		},
	}
	address := serve(t, func(w http.ResponseWriter, r *http.Request) { pages[r.URL.Path](w, r) })
	b := openBench(t)
	for path := range pages {
		b.fails(t, "webfetch", input{"url": address + path, "timeout": 0.2}, "the time limit of 0.2 s is over")
	}
	slow := openBench(t, func(c *Config) { c.lookup = (&nameTable{}).blocked })
	slow.fails(t, "webfetch", input{"url": "http://a.test/", "timeout": 0.1}, "the time limit of 0.1 s is over")
}

// blocked is a lookup that is never answered.
func (*nameTable) blocked(ctx context.Context, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// An interruption ends a fetch with its cause, at any moment.
func TestInterruptionEndsAFetch(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		respond("text/plain", "head")(w, r)
		w.(http.Flusher).Flush()
		cancel(domain.ByUser)
		<-r.Context().Done()
	})
	if _, err := openBench(t).run(ctx, t, "webfetch", input{"url": address}); !errors.Is(err, domain.ErrInterrupted) {
		t.Errorf("webfetch = %v, want ErrInterrupted", err)
	}
}

// Scenario 154. An image, a PDF and other binary data are refused with their type.
func TestOnlyTextIsReturned(t *testing.T) {
	t.Parallel()
	b := openBench(t)
	for kind, body := range map[string]string{
		"image/png": "\x89PNG", "image/svg+xml": "<svg/>", "application/pdf": "%PDF-1.7", "application/octet-stream": "x", "video/mp4": "x",
		"Application/ZIP; a": "PK", "": "\x89PNG\r\n\x1a\n",
	} {
		want := strings.ToLower(strings.Split(kind, ";")[0])
		if kind == "" {
			want = "image/png"
		}
		b.fails(t, "webfetch", input{"url": serve(t, respond(kind, body))}, `the content is "`+want+`"`)
	}
	b.fails(t, "webfetch", input{"url": serve(t, respond("text/plain", "a\x00b"))}, "binary data")
	for _, kind := range []string{"text/plain", "TEXT/CSV; header=present", "application/json", "application/vnd.api+json", "application/atom+xml", "text/html; charset=x=y"} {
		if _, text := must[fetchResult](t, b, "webfetch", input{"url": serve(t, respond(kind, "body 1"))}); text != "body 1" {
			t.Errorf("webfetch of %s = %q, want the body", kind, text)
		}
	}
}

// The character set is found by header, meta element and content.
func TestCharacterSetIsDecoded(t *testing.T) {
	t.Parallel()
	b := openBench(t)
	for _, c := range []struct{ kind, body, want string }{
		{"text/plain; charset=iso-8859-1", "caf\xe9", "café"},
		{"text/plain", "caf\xe9", "café"},
		{"text/plain", strings.Repeat("x", 2000) + "é", strings.Repeat("x", 2000) + "é"},
		{"text/plain; charset=utf-8", "a\xffb", "a\ufffdb"},
		{"text/plain", "\xff\xfeh\x00i\x00", "hi"},
		{"text/plain; charset=shift_jis", "\x93\xfa\x96\x7b", "日本"},
		{"text/html", "<meta charset=koi8-r><p>\xcd\xc9\xd2", "мир"},
		{"text/plain; charset=utf-8", "\xef\xbb\xbfhi", "hi"},
	} {
		if _, text := must[fetchResult](t, b, "webfetch", input{"url": serve(t, respond(c.kind, c.body))}); text != c.want {
			t.Errorf("webfetch of %s %q = %q, want %q", c.kind, c.body, text, c.want)
		}
	}
}

// A response that is no page is a failure that says why.
func TestFailureOfTheServerIsNamed(t *testing.T) {
	t.Parallel()
	pages := map[string]http.HandlerFunc{
		"/404": http.NotFound,
		"/500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"/304": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) },
		"/302": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(302) },
		"/br": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			w.Write([]byte("x"))
		},
		"/gzip": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write([]byte("no gzip at all"))
		},
		"/header": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 2*maxHeader)) },
		"/cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("short"))
		},
	}
	address := serve(t, func(w http.ResponseWriter, r *http.Request) { pages[r.URL.Path](w, r) })
	b := openBench(t, (&nameTable{}).use)
	for path, want := range map[string]string{
		"/404": "status 404 Not Found", "/500": "status 500", "/304": "status 304", "/302": "status 302 Found",
		"/br": `content encoding "br"`, "/gzip": "decompress the page", "/header": "header", "/cut": "unexpected EOF",
	} {
		b.fails(t, "webfetch", input{"url": address + path}, want)
	}
	b.fails(t, "webfetch", input{"url": "http://none.test/"}, "look up the host none.test: no such name")
	b.fails(t, "webfetch", input{"url": "http://127.0.0.1:1/"}, "connection refused")
	b.fails(t, "webfetch", input{"url": strings.Replace(address, "http:", "https:", 1)}, "TLS handshake")
}

// Scenario 154. A challenge is answered once, with another user agent.
func TestChallengeIsRetriedOnce(t *testing.T) {
	t.Parallel()
	var agents []string
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		agents = append(agents, r.UserAgent())
		if r.UserAgent() == "ledger/test" && r.URL.Path == "/" {
			respond("text/plain", "page")(w, r)
			return
		}
		w.Header().Set("Cf-Mitigated", "challenge")
		w.WriteHeader(http.StatusForbidden)
	})
	b := openBench(t)
	if _, text := must[fetchResult](t, b, "webfetch", input{"url": address}); text != "page" || len(agents) != 2 || agents[0] == agents[1] {
		t.Errorf("webfetch = %q with the agents %q, want the page by the second of two", text, agents)
	}
	agents = nil
	b.fails(t, "webfetch", input{"url": address + "/never"}, "status 403")
	if len(agents) != 2 {
		t.Errorf("the server got %d requests, want 2", len(agents))
	}
}

// The time in which a person decides does not count for the timeout, and the steps before
// and after share it.
func TestWaitingForAPersonIsNotTimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := timeLimit{left: 3 * time.Second, whole: 3}
		step := func(takes time.Duration) error {
			return limit.run(t.Context(), func(ctx context.Context) error {
				select {
				case <-time.After(takes):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		}
		if err := step(2 * time.Second); err != nil {
			t.Errorf("first step = %v", err)
		}
		time.Sleep(time.Hour)
		if err := step(500 * time.Millisecond); err != nil {
			t.Errorf("step after an hour of waiting = %v", err)
		}
		if err := step(time.Second); err == nil || !strings.Contains(err.Error(), "the time limit of 3 s is over") {
			t.Errorf("step over the time limit = %v", err)
		}
	})
}
