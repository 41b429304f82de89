package web

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"
)

const pageURL = "https://a.test/dir/page"

// Markdown keeps the structure of a page, and tags that correct HTML may leave out.
func TestMarkdownOfAPage(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{
		`<p>a<p>b`:                                   "a\n\nb",
		`<ul><li>a<ul><li>b</ul><li>c</ul>`:          "- a\n  \n  - b\n- c",
		`<ol start=3><li>a<li>b</ol>`:                "3. a\n4. b",
		`<h1>C#</h1>`:                                `# C\#`,
		`<h1>#</h1>`:                                 `# \#`,
		`snake_case *x* [y] 1. z`:                    "snake_case *x* [y] 1. z",
		`<a href="../x?b=2&a=1">t</a>`:               "[t](https://a.test/x?b=2&a=1)",
		`<base href=/b/><a href=x>t</a>`:             "[t](https://a.test/b/x)",
		`<img src="data:image/png;base64,AA" alt=i>`: "",
		`<img src=/i.png alt=i>`:                     "![i](https://a.test/i.png)",
		`<div>a</span></b>b</div>`:                   "ab",
		`<td>x</td>`:                                 "x",
		`<script/>alert(1)</script>y`:                "y",
		`<svg/>x<svg><svg></svg>no</svg>z`:           "xz",
		`<blockquote><p>q</blockquote>`:              "> q",
		"":                                           "",
	} {
		got, err := toMarkdown(t.Context(), newMarkdownConverter(), page, pageURL)
		if err != nil || got != want {
			t.Errorf("toMarkdown(%q) = %q, %v, want %q", page, got, err, want)
		}
	}
}

// hostilePages are pages that make a converter slow or large, each of size bytes or less.
func hostilePages(size int) map[string]string {
	fill := func(head, unit, tail string) string {
		return head + strings.Repeat(unit, max(size-len(head)-len(tail), 0)/len(unit)) + tail
	}
	var spans strings.Builder
	for i := range 500 {
		fmt.Fprintf(&spans, "<b id=%d>", i)
	}
	return map[string]string{
		"deep":             fill("", "<div>", ""),
		"deep quotes":      fill("", "<blockquote>a", ""),
		"deep lists":       fill("", "<ul><li>a", ""),
		"deep tables":      fill("", "<table><tr><td>a", ""),
		"deep links":       fill("", "<a href=x><marquee>", ""),
		"formatting":       fill(spans.String(), "<p>x", ""),
		"adjacent":         fill("", "<b>some text in bold</b>", ""),
		"adjacent code":    fill("", "<code>x</code>", ""),
		"dividers":         fill("<p>", "-", ""),
		"stars":            fill("<p>", "*a ", ""),
		"brackets":         fill("<p>", "[![", ""),
		"pounds":           fill("<p>", "#", ""),
		"pipes":            fill("<table><tr><td>", "|", ""),
		"backticks":        fill("<code>", "`", ""),
		"spaces":           fill("<h1>", " a", ""),
		"newlines":         fill("<pre>", "\n", ""),
		"breaks":           fill("<a href=x>", "<br>", ""),
		"wide table":       fill("<table><tr>"+strings.Repeat("<td>a", 20000), "<tr>", ""),
		"wide cell":        fill("<table><tr><td>"+strings.Repeat("a", size/2), "<tr><td>a", ""),
		"spanned":          fill("<table>", "<tr><td colspan=1000 rowspan=1000>a", ""),
		"empty lists":      fill("", "<ul></ul><i></i>", ""),
		"empty spans":      fill("", "<b></b><span></span>", ""),
		"nested code":      fill(strings.Repeat("<code>", 100), "<i></i>", ""),
		"attributes":       fill("<p ", "a=b ", ">x"),
		"long attribute":   fill("<a href=x title='", "a", "'>x</a>"),
		"heavy wrapper":    fill("<div class='"+strings.Repeat("c", 70000)+"'>"+strings.Repeat("<div>", 120), "<b>x</b>", ""),
		"unclosed comment": fill("x<!--", "-", ""),
		"entities":         fill("", "&lt;&#0;", ""),
		"unclosed tags":    fill("", "<", ""),
		"end tags":         fill(strings.Repeat("<div>", 100), "</b>", ""),
		"bells":            fill("<h1>", "\a#", ""),
	}
}

// A page of the maximum size is converted or refused within the time limit, whatever is in
// it, and memory is bounded.
func TestHostilePageIsBounded(t *testing.T) {
	size := 32 << 10
	if longTests() {
		size = maxPage
	}
	c := newMarkdownConverter()
	for name, page := range hostilePages(size) {
		t.Run(name, func(t *testing.T) {
			const limit = 2 * time.Second
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			started := time.Now()
			text, err := toMarkdown(ctx, c, page, pageURL)
			took := time.Since(started)
			runtime.ReadMemStats(&after)
			t.Logf("%d bytes in %v, %d MiB allocated, %v", len(text), took.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>20, err)
			if took > limit+5*time.Second {
				t.Errorf("the conversion took %v with a limit of %v", took, limit)
			}
			if _, err := plainText(t.Context(), page); err != nil {
				t.Errorf("plainText = %v", err)
			}
		})
	}
}

// A page with too many elements for Markdown is refused with the way to read it.
func TestElementsAreCounted(t *testing.T) {
	t.Parallel()
	b := treeBuilder{open: []*html.Node{{Type: html.DocumentNode}}, nodes: maxNodes - 1}
	for i, want := range []error{nil, errTooManyNodes} {
		if err := b.add(html.Token{Type: html.TextToken, Data: "x"}); !errors.Is(err, want) {
			t.Errorf("add of node %d = %v, want %v", maxNodes+i, err, want)
		}
	}
}

// A conversion ends with its context.
func TestConversionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	cause := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := toMarkdown(ctx, newMarkdownConverter(), "<p>x", pageURL); !errors.Is(err, cause) {
		t.Errorf("toMarkdown = %v, want the cause", err)
	}
	if _, err := plainText(ctx, "<p>x"); !errors.Is(err, cause) {
		t.Errorf("plainText = %v, want the cause", err)
	}
}

// A page that is converted in parts loses no text and no order.
func TestLargePageLosesNothing(t *testing.T) {
	t.Parallel()
	var page, want strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&page, "<div><p>w%d</div>", i)
		fmt.Fprintf(&want, "w%d\n\n", i)
	}
	got, err := toMarkdown(t.Context(), newMarkdownConverter(), "<html><body><main>"+page.String(), pageURL)
	if err != nil || got != strings.TrimSpace(want.String()) {
		t.Errorf("toMarkdown has %d bytes, %v, want %d with every word in order", len(got), err, want.Len()-2)
	}
}

// The parts of a page are bounded in weight.
func TestPartsAreBounded(t *testing.T) {
	t.Parallel()
	root, _, err := buildTree(t.Context(), "<main>"+strings.Repeat("<p>x</p>", 5000), pageURL)
	if err != nil {
		t.Fatal(err)
	}
	parts := splitTree(root)
	for _, part := range parts {
		if w := weighTree(part, map[*html.Node]int{}); w > maxPart {
			t.Errorf("a part of %d weighs %d, want %d at most", len(parts), w, maxPart)
		}
	}
}

// A page never crashes the conversion, which gives valid UTF-8 of bounded size.
func FuzzHTML(f *testing.F) {
	f.Add(samplePage)
	for _, page := range hostilePages(400) {
		f.Add(page)
	}
	c := newMarkdownConverter()
	f.Fuzz(func(t *testing.T, page string) {
		if len(page) > 64<<10 {
			return
		}
		page = strings.ToValidUTF8(page, "\ufffd")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		text, err := toMarkdown(ctx, c, page, pageURL)
		if err != nil {
			t.Fatalf("toMarkdown(%q) = %v", page, err)
		}
		plain, err := plainText(ctx, page)
		if err != nil || len(plain) > 2*len(page)+2 {
			t.Errorf("plainText(%q) = %d bytes, %v", page, len(plain), err)
		}
		if len(text) > maxMarkdown || !utf8.ValidString(text) || !utf8.ValidString(plain) {
			t.Errorf("toMarkdown(%q) = %d bytes, want valid UTF-8 of at most %d", page, len(text), maxMarkdown)
		}
	})
}
