package browsertest

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/settlement-ledger/ledger/cmd/ledger/sessionexport"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// screenshots is the folder for screenshots.
var screenshots = flag.String("screenshots", "", "the folder for screenshots of the pages (default: none are made)")

// A browser is a page in Chromium, with what happened in it that must not happen.
type browser struct {
	context.Context
	mu struct {
		sync.Mutex
		requests, faults []string
	}
}

// open opens a file in a new browser, with a script that runs before those of the page.
func open(t *testing.T, file string) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 900))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{Context: ctx}
	if _, err := chromedp.Run(ctx, chromedp.Location()); err != nil { // starts the browser, without a deadline
		t.Fatalf("start chromium: %v", err)
	}
	note := func(list *[]string, format string, args ...any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		*list = append(*list, fmt.Sprintf(format, args...))
	}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			if url := e.Request.URL; !strings.HasPrefix(url, "file://"+file) && !strings.HasPrefix(url, "data:") {
				note(&b.mu.requests, "%s", url)
			}
		case *page.EventJavascriptDialogOpening:
			note(&b.mu.faults, "dialog %s", e.Message)
		case *runtime.EventExceptionThrown:
			note(&b.mu.faults, "exception %s", e.ExceptionDetails.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	b.do(t, chromedp.Navigate("file://"+file))
	b.wait(t, `document.documentElement.dataset.ready === "true"`)
	return b
}

// do runs actions within a minute.
func (b *browser) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// wait waits until an expression is true, at most a minute.
func (b *browser) wait(t *testing.T, expression string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b, time.Minute)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression)); err != nil {
		t.Fatalf("wait for %s: %v", expression, err)
	}
}

// press presses keys as a person does: a key that the page handles writes no character.
func (b *browser) press(t *testing.T, keys string) {
	t.Helper()
	for _, c := range keys {
		p := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: string(c), Text: string(c)}
		switch c {
		case '\r':
			p.Key, p.Code, p.WindowsVirtualKeyCode = "Enter", "Enter", 13
		case '\x1b':
			p.Key, p.Code, p.Text, p.WindowsVirtualKeyCode = "Escape", "Escape", "", 27
		}
		ctx, cancel := context.WithTimeout(b, time.Minute)
		_, err := chromedp.Call(ctx, input.DispatchKeyEvent, p)
		if p.Type, p.Text = input.DispatchKeyEventTypeKeyUp, ""; err == nil {
			_, err = chromedp.Call(ctx, input.DispatchKeyEvent, p)
		}
		if cancel(); err != nil {
			t.Fatal(err)
		}
	}
}

// value returns the value of an expression.
func value[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b, time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("evaluate %s: %v", expression, err)
	}
	return v
}

// want checks the value of an expression.
func want[T comparable](t *testing.T, b *browser, expression string, wanted T) {
	t.Helper()
	if got := value[T](t, b, expression); got != wanted {
		t.Errorf("%s is %v, want %v", expression, got, wanted)
	}
}

// quiet checks that no script but that of the page ran and nothing was requested.
func (b *browser) quiet(t *testing.T) {
	t.Helper()
	want(t, b, `typeof window.__pwned`, "undefined")
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.requests)+len(b.mu.faults) > 0 {
		t.Errorf("the page made the requests %q, and in it happened %q", b.mu.requests, b.mu.faults)
	}
}

// shoot saves a screenshot, if a folder is given.
func (b *browser) shoot(t *testing.T, name string) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	picture, err := chromedp.Run(b, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.MkdirAll(*screenshots, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(*screenshots, name+".png"), picture, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// write writes the session of a history, which is one stream, as a page and returns the file.
func write(t *testing.T, history []events.Envelope) string {
	t.Helper()
	store := eventstest.NewSlice()
	state, p := calls.New(), calls.Projection()
	var records []events.Record
	for _, v := range history {
		state = p.Apply(state, v)
		r, err := events.Encode(events.Draft{ID: v.ID, Time: v.Time, Correlation: v.Correlation, Event: v.Event})
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	if err := store.Append(t.Context(), history[0].Stream, 0, records...); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	from := sessionexport.Source{Ledger: events.NewLedger(store, projectionstest.NewLog(1).Mint, time.Now)}
	if err := sessionexport.Write(t.Context(), &out, from, state.Sessions()[0], sessionexport.Options{Format: sessionexport.HTML}, nil); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "session.html")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// demo runs the demo of the command and exports its first session as a page.
func demo(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run := func(name string, args ...string) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = "../../../.." // the module of the command
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	ledger, file := filepath.Join(dir, "ledger"), filepath.Join(dir, "demo", "page.html")
	run("go", "build", "-o", ledger, "./cmd/ledger")
	run(ledger, "demo", "--store", filepath.Join(dir, "store"))
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	list, err := exec.CommandContext(t.Context(), ledger, "session", "ls", "--store", filepath.Join(dir, "store"), "-o", "json").Output()
	var sessions []struct{ Session string }
	if err != nil || json.Unmarshal(list, &sessions) != nil {
		t.Fatalf("list sessions: %v\n%s", err, list)
	}
	run(ledger, "export", "session", sessions[0].Session, "--store", filepath.Join(dir, "store"), "--to", file)
	return file
}

// shown is the number of rows that the filter shows, and unfolded that of the open ones.
const (
	shown    = `document.querySelectorAll("#rows > li").length`
	unfolded = `document.querySelectorAll("#rows .detail").length`
)

// The page of the demo is used by keyboard alone: moved in, unfolded, searched, filtered.
func TestTheDemoIsReadByKeyboard(t *testing.T) {
	b := open(t, demo(t))
	all := value[int](t, b, shown)
	if all < 20 {
		t.Errorf("the page has %d rows", all)
	}
	want(t, b, unfolded, 0)
	b.shoot(t, "demo")
	key := func(keys string) { b.press(t, keys) }
	const focus = `[...document.querySelectorAll("#rows > li")].findIndex((li) => li.contains(document.activeElement))`
	key("j")
	want(t, b, focus, 0)
	key("jjjk")
	want(t, b, focus, 2)
	key("G")
	want(t, b, focus, all-1)
	key("g")
	want(t, b, focus, 0)
	want(t, b, `getComputedStyle(document.activeElement).outlineStyle`, "solid")
	key("\r")
	want(t, b, unfolded, 1)
	want(t, b, `document.activeElement.getAttribute("aria-expanded")`, "true")
	want(t, b, `document.getElementById(document.activeElement.getAttribute("aria-controls")).getAttribute("role")`, "region")
	key("\r")
	want(t, b, unfolded, 0)
	key("/")
	want(t, b, `document.activeElement.id`, "search")
	key("bash")
	b.wait(t, shown+` < `+fmt.Sprint(all))
	key("\r")
	want(t, b, focus, 0)
	key("u")
	b.wait(t, unfolded+` === `+shown)
	if n := value[int](t, b, `document.querySelectorAll("mark").length`); n == 0 {
		t.Error("the words of the search are not marked")
	}
	b.shoot(t, "demo-search")
	key("f")
	want(t, b, unfolded, 0)
	key("/")
	key("\x1b")
	want(t, b, shown, all)

	choose := func(id, option string) {
		value[bool](t, b, fmt.Sprintf(`(() => { const s = document.getElementById(%q); s.value = %q; s.dispatchEvent(new Event("change")); return true })()`, id, option))
	}
	choose("outcome", "stale")
	if n := value[int](t, b, shown); n == 0 || n >= all {
		t.Errorf("%d rows are stale calls", n)
	}
	choose("outcome", "")
	choose("tool", "edit")
	value[bool](t, b, `(() => { document.querySelectorAll("#rows > li > button").forEach((r) => r.click()); return true })()`)
	if n := value[int](t, b, `document.querySelectorAll("pre .add").length`); n == 0 {
		t.Error("the edit of the demo has no diff")
	}
	b.shoot(t, "demo-diff")
	light := value[string](t, b, `getComputedStyle(document.body).backgroundColor`)
	value[bool](t, b, `(() => { document.activeElement.blur(); return true })()`)
	key("t")
	if dark := value[string](t, b, `getComputedStyle(document.body).backgroundColor`); dark == light {
		t.Errorf("light and dark are both %s", dark)
	}
	b.shoot(t, "demo-dark")
	b.quiet(t)
}

// No text of a session runs, makes a request or changes the page, folded or unfolded.
func TestHostileTextsAreShownAsText(t *testing.T) {
	data, err := os.ReadFile("../testdata/hostile.json")
	var texts []string
	if err != nil || json.Unmarshal(data, &texts) != nil {
		t.Fatalf("read the texts: %v", err)
	}
	l := projectionstest.NewLog(1)
	id := l.Mint.Session()
	s := events.SessionStream(id)
	all := strings.Join(texts, " ")
	l.Add(s, events.SessionOpened{Session: id, Agent: domain.AgentID(all), Location: all, Model: all, Origin: events.Origin{Kind: events.RunHere}})
	for _, text := range texts {
		data, err := json.Marshal(map[string]string{"command": text, text: text, "patch": "+" + text + "\n-" + text})
		if err != nil {
			t.Fatal(err)
		}
		media := domain.Contents{domain.Media{MIME: "image/svg+xml", Name: text, Data: []byte("<svg xmlns='http://www.w3.org/2000/svg' onload='parent.__pwned=1'/>")}, domain.Media{MIME: "text/html", Name: text, Data: []byte(text)}}
		l.Add(s, events.PromptAdmitted{Message: l.Mint.Message(), Text: text, Media: media})
		m := l.Mint.Message()
		l.Add(s, events.ReplyReceived{Message: m, Text: text, Thinking: text, Calls: []domain.Call{{ID: domain.CallID(text), Name: text, Input: data}}})
		l.Add(s, events.CallSettled{Message: m, Call: domain.CallID(text), Tool: text, Outcome: domain.Failed, Text: text, Detail: text, Structured: data})
		l.Add(s, events.Unknown{Name: text, Version: 1, Data: data})
	}
	l.Add(s, events.CommandRan{By: events.ByUser, Command: all, Output: strings.Repeat("<img src=x onerror=parent.__pwned=1>", 10<<20/36)})
	b := open(t, write(t, l.Envelopes()))
	rows := value[int](t, b, shown)
	if wanted := 2 + 4*len(texts); rows != wanted {
		t.Errorf("the page has %d rows, want %d", rows, wanted)
	}
	value[bool](t, b, `(() => { document.getElementById("unfold").click(); return true })()`)
	b.wait(t, unfolded+` === `+fmt.Sprint(rows))
	b.shoot(t, "hostile")
	want(t, b, `document.querySelectorAll("#rows img, #rows svg, #rows iframe, #rows script, #rows style, #rows meta, #rows a").length`, 0)
	want(t, b, `document.scripts.length - document.querySelectorAll("script[type='application/json']").length`, 1)
	want(t, b, `document.body.innerText.includes("</script><script>window.__pwned=1</script>")`, true)
	want(t, b, `/[\u202a-\u202e\u2066-\u2069\u001b]/.test(document.documentElement.textContent)`, false)
	b.quiet(t)
}

// The first view of a long session comes within the bound of a wait. The test prints its
// time beside that of an empty page.
func TestALongSessionIsShown(t *testing.T) {
	page := func(n int) string {
		l := projectionstest.NewLog(1)
		id := l.Mint.Session()
		s := events.SessionStream(id)
		l.Add(s, events.SessionOpened{Session: id, Agent: "build", Location: "/w", Origin: events.Origin{Kind: events.RunHere}})
		for i := range n {
			m, turn := l.Mint.Message(), l.Mint.Turn()
			name := []string{"read", "bash", "edit"}[i%3]
			l.Add(s, events.TurnMaterialized{Turn: turn, Message: m, Agent: "build"})
			l.Add(s, events.ReplyReceived{Turn: turn, Message: m, Text: "Next.", Calls: []domain.Call{{ID: domain.CallID(fmt.Sprint("call_", i)), Name: name, Input: json.RawMessage(`{"command":"make"}`)}}})
			l.Add(s, events.CallSettled{Turn: turn, Message: m, Call: domain.CallID(fmt.Sprint("call_", i)), Tool: name, Outcome: domain.Succeeded, Began: true,
				Content: domain.Contents{domain.Text(strings.Repeat(fmt.Sprintf("line %d of an output\n", i), 150))}})
		}
		return write(t, l.Envelopes())
	}
	view := `(() => { const n = performance.getEntriesByType("navigation")[0]; return n.loadEventEnd - n.startTime })()`
	empty := open(t, page(0))
	empty.wait(t, view+` > 0`)
	b := open(t, page(2000))
	b.wait(t, view+` > 0`)
	want(t, b, shown, 1+3*2000)
	first, none := value[float64](t, b, view), value[float64](t, empty, view)
	t.Logf("first view of 2,000 calls: %.0f ms, %.1f times that of an empty page (%.0f ms)", first, first/none, none)
	b.shoot(t, "long")
	b.press(t, "/line 1999 of")
	b.wait(t, shown+` === 1`)
	b.quiet(t)
}
