package web

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// A permissionLog is a Recorder in memory.
type permissionLog struct {
	mu       sync.Mutex
	requests []permission.Request
	saved    []permission.Approval
}

func (l *permissionLog) Requested(_ context.Context, r permission.Request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, r)
	return nil
}

func (l *permissionLog) Saved(_ context.Context, a permission.Approval) (domain.EventID, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saved = append(l.saved, a)
	return domain.EventID{}, nil
}

func (*permissionLog) Decided(context.Context, permission.Decision) error { return nil }

func (*permissionLog) QuestionAsked(context.Context, permission.QuestionRequest) error { return nil }

func (*permissionLog) QuestionAnswered(context.Context, permission.QuestionResult) error { return nil }

// recorded returns the recorded requests, each as "action resource,resource". A request
// that a rule allows is not recorded.
func (l *permissionLog) recorded() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	order := []string{}
	for _, r := range l.requests {
		order = append(order, r.Action+" "+strings.Join(r.Resources, ","))
	}
	return order
}

// A bench has the tools behind a real gate.
type bench struct {
	*permissionLog
	tools map[string]domain.Tool
}

// newBench returns a bench whose gate decides by rules and then asks the approver.
func newBench(t testing.TB, rules string, approver permission.Approver, change ...func(*Config)) *bench {
	t.Helper()
	parsed, err := permission.ParseRules("rules", strings.NewReader(rules))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{permissionLog: &permissionLog{}}
	gate, err := permission.NewGate(permission.Config{
		Rules:    func(domain.Invocation) domain.RuleSets { return domain.RuleSets{parsed} },
		Approver: approver, Recorder: b.permissionLog, Now: time.Now,
		Mint: domain.NewMint(time.Now, rand.NewChaCha8([32]byte{1})),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Permission: gate, UserAgent: "ledger/test"}
	for _, f := range change {
		f(&c)
	}
	if b.tools, err = Tools(c); err != nil {
		t.Fatal(err)
	}
	return b
}

// openRules allow everything, private addresses too.
const openRules = "allow * *"

// openBench returns a bench that allows everything.
func openBench(t testing.TB, change ...func(*Config)) *bench {
	t.Helper()
	return newBench(t, openRules, permission.Headless{}, change...)
}

// An input is the JSON object that a tool receives, by key.
type input map[string]any

// run binds and runs a tool.
func (b *bench) run(ctx context.Context, t testing.TB, tool string, in input) (domain.Output, error) {
	t.Helper()
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := b.tools[tool].Bind(data)
	if err != nil {
		return domain.Output{}, err
	}
	return bound.Run(ctx, domain.Invocation{})
}

// must runs a tool, fails the test if the tool fails, and decodes the output.
func must[Out any](t testing.TB, b *bench, tool string, in input) (Out, string) {
	t.Helper()
	output, err := b.run(t.Context(), t, tool, in)
	if err != nil {
		t.Fatalf("%s(%v) = %v", tool, in, err)
	}
	var out Out
	if err := json.Unmarshal(output.Structured(), &out); err != nil {
		t.Fatal(err)
	}
	return out, output.Content().Text()
}

// fails runs a tool and fails the test unless the tool fails with a text for the model
// that contains want.
func (b *bench) fails(t testing.TB, tool string, in input, want string) {
	t.Helper()
	output, err := b.run(t.Context(), t, tool, in)
	if failure, ok := errors.AsType[*domain.Failure](err); !ok || !strings.Contains(failure.Error(), want) {
		t.Errorf("%s(%v) = %.200s, %v, want a failure with %q", tool, in, output.Structured(), err, want)
	}
}

// serve starts a server on 127.0.0.1 and returns its URL.
func serve(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

// respond returns a handler that sends one body.
func respond(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{contentType}
		w.Write([]byte(body))
	}
}

// hostOf returns HOST:PORT of a URL.
func hostOf(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// A nameTable resolves names from fixed answers: the n-th lookup of a name gets the n-th
// answer, and later ones the last.
type nameTable struct {
	mu      sync.Mutex
	answers map[string][]string
	lookups int
}

func (n *nameTable) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lookups++
	answers := n.answers[host]
	if len(answers) == 0 {
		return nil, errors.New("no such name")
	}
	if len(answers) > 1 {
		n.answers[host] = answers[1:]
	}
	var found []netip.Addr
	for a := range strings.SplitSeq(answers[0], ",") {
		found = append(found, netip.MustParseAddr(a))
	}
	return found, nil
}

// use sets the resolver of a Config.
func (n *nameTable) use(c *Config) { c.lookup = n.lookup }

// A Config without its required field is refused by name.
func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{}, {Permission: &permission.Gate{}, UserAgent: "a\r\nb: c"}} {
		if tools, err := Tools(c); !errors.Is(err, ErrBadConfig) || tools != nil {
			t.Errorf("Tools(%+v) = %v, %v, want ErrBadConfig", c, tools, err)
		}
	}
}

// longTests reports whether the long forms of tests are wanted.
func longTests() bool { return os.Getenv("LEDGER_TEST_LONG") != "" }
