package publish_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// A topic has the values of the record in place of its placeholders, with an
// underscore for other characters and a fixed word for a missing value.
func TestTopicsExpandTheirPlaceholders(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	session := events.SessionStream(l.mint.Session())
	l.add(session, "SessionOpened", `{"agent":"a.b/c"}`)
	l.add(session, "CallStarted", `{"tool":"bäsh > *"}`)
	l.add("thing-1", "Happened", `{}`)
	for text, want := range map[string][]string{
		"all":                 {"all", "all", "all"},
		"l.{category}.{kind}": {"l.session.SessionOpened", "l.session.CallStarted", "l.thing.Happened"},
		"{agent}{tool}":       {"a_b_cnone", "a_b_cb_sh____", "nonenone"},
		"{stream}":            {string(session), string(session), "thing-1"},
		"x-{session}-y":       {"x-" + string(session[len("session-"):]) + "-y", "x-" + string(session[len("session-"):]) + "-y", "x-none-y"},
		"{kind}.{kind}":       {"SessionOpened.SessionOpened", "CallStarted.CallStarted", "Happened.Happened"},
	} {
		topic, err := publish.ParseTopic(text)
		if err != nil || topic.String() != text {
			t.Fatalf("ParseTopic(%q) = %v, %v", text, topic, err)
		}
		to, d := &sink{}, l.relay()
		catchUp(t, d, job(t, "a", func(j *publish.Job) { j.Topic = topic }), to)
		if diff := cmp.Diff(want, to.mu.topics); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		if err := d.Forget(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
}

// ParseTopic returns an ErrBadTopic or a topic whose String is the text.
func FuzzParseTopic(f *testing.F) {
	for _, text := range []string{"", "a", "{kind}", "{", "}", "a{kind}b{tool}", "{nope}", "{kind}}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		topic, err := publish.ParseTopic(text)
		if errors.Is(err, publish.ErrBadTopic) != topic.IsZero() {
			t.Fatalf("ParseTopic(%q) = %q, %v", text, topic, err)
		}
		if err == nil && topic.String() != text {
			t.Fatalf("ParseTopic(%q).String() = %q", text, topic)
		}
		if want := text == "" || strings.Count(text, "{") != strings.Count(text, "}"); want && err == nil {
			t.Fatalf("ParseTopic(%q) is no error", text)
		}
	})
}

// environment is an environment with the variable PASSWORD.
func environment(name string) (string, bool) {
	value, ok := map[string]string{"PASSWORD": "s3cret"}[name]
	return value, ok
}

// config has a publication with most keys, and one with the required keys alone.
const config = `
[[publish]]
name = "bus"
to = "nats://ada:${PASSWORD}@host:4222?creds=/c"
topic = "agents.{agent}"
from = "now"
kinds = ["CallSettled"]
tools = ["bash"]
agents = ["build"]
tries = 3

[[publish]]
name = "file"
to = "file:records.jsonl"
`

// ParseConfig returns the jobs in order, with expanded targets and defaults for
// absent keys.
func TestParseConfigReturnsTheJobs(t *testing.T) {
	t.Parallel()
	orders, err := publish.ParseConfig([]byte(config), environment)
	if err != nil || len(orders) != 2 {
		t.Fatalf("ParseConfig = %v, %v, want two orders", orders, err)
	}
	bus := orders[0]
	if bus.To != "nats://ada:s3cret@host:4222?creds=/c" || bus.Target != "nats://host:4222" || bus.Name != "bus" ||
		bus.Topic.String() != "agents.{agent}" || bus.Start != publish.Now() || bus.Policy.Tries != 3 {
		t.Errorf("the first order is %+v", bus)
	}
	if diff := cmp.Diff(publish.Filter{Kinds: []string{"CallSettled"}, Tools: []string{"bash"}, Agents: []string{"build"}}, bus.Filter); diff != "" {
		t.Errorf("only (-want +got):\n%s", diff)
	}
	if file := orders[1]; file.Topic.String() != publish.DefaultTopic || file.Start != (publish.Start{}) || file.Target != "file:records.jsonl" {
		t.Errorf("the second order is %+v", file)
	}
}

// An invalid configuration is an ErrBadConfig that names the fault and no target.
func TestAnInvalidConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"[[publish]":                        "line 1",
		"[[publish]]\nnmae = \"a\"":         "publish.nmae is not known",
		"[[publish]]\nto = \"file:s3cret\"": "name of a consumer",
		"[[publish]]\nname = \"a\"":         "to is missing",
		"[[publish]]\nname = \"a\"\nto = \"nats://s3cret:${NO}@h\"":                    "NO, which the environment",
		"[[publish]]\nname = \"a\"\nto = \"file:s3cret\"\ntopic = \"{x}\"":             "{x}",
		"[[publish]]\nname = \"a\"\nto = \"file:s3cret\"\nfrom = \"x\"":                "not beginning, now or a position",
		"[[publish]]\nname = \"a\"\nto = \"file:s3cret\"\nkinds = [\"\"]":              "a kind is empty",
		"[[publish]]\nname = \"a\"\nto = \"file:s3cret\"\ntries = -1":                  "below zero",
		"[[publish]]\nname=\"a\"\nto=\"f:s3cret\"\n[[publish]]\nname=\"a\"\nto=\"f:\"": "comes twice",
	} {
		_, err := publish.ParseConfig([]byte(text), environment)
		if !errors.Is(err, publish.ErrBadConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseConfig(%q) = %v, want ErrBadConfig that says %q", text, err, says)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("ParseConfig(%q) tells a target: %v", text, err)
		}
	}
}

// Redacted drops credentials, the query and the fragment, also from invalid URLs.
func TestRedactedTargetsHaveNoCredentials(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"nats://ada:s3cret@host:4222/?creds=s3cret#s3cret": "nats://host:4222/",
		"nats://s3cret@host":        "nats://host",
		"nats://ada:s3cret%zz@host": "nats:?",
		"ada:s3cret%zz@host://x":    "ada:?",
		"file:records.jsonl":        "file:records.jsonl",
		"file:/a b.jsonl":           "file:/a%20b.jsonl",
		"s3cret@x\x7f":              "?",
	} {
		if got := publish.Redacted(target); got != want {
			t.Errorf("Shown(%q) = %q, want %q", target, got, want)
		}
	}
}
