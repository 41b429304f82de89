package mcpconfig_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/runner/plugins/mcp/mcpconfig"
)

var origin = mcpconfig.FileOrigin{File: "/f/mcp.json", Environment: []string{"KEY=old", "KEY=secret-1234", "EMPTY=", "HOME=/home/ada"}}

// An entry has its keys, with the variables expanded and the defaults set, and its
// secrets.
func TestEntriesAreExpanded(t *testing.T) {
	t.Parallel()
	servers, faults := mcpconfig.Parse([]byte(`{"mcpServers":{
		"b":{"command":"run","args":["${HOME}/x","${EMPTY:-none}","${NO:-other}"],"env":{"TOKEN":"literal-99","PATH":"/bin"},"cwd":"sub","timeout":"5s","startup_timeout":"1m","concurrency":2,"tools":{"allow":["a*"],"deny":["b"]}},
		"a":{"type":"streamable-http","url":"https://u:pass-word@h/mcp?key=query-key","headers":{"authorization":"Bearer ${KEY}"}},
		"off":{"command":"x","disabled":true}}}`), origin)
	if len(faults) != 0 || len(servers) != 2 {
		t.Fatalf("Parse = %v, %v, want two servers", servers, faults)
	}
	a, b := servers[0], servers[1]
	if a.Headers["Authorization"] != "Bearer secret-1234" || a.Timeout != mcpconfig.DefaultTimeout || a.Concurrency != mcpconfig.DefaultConcurrency {
		t.Errorf("a = %+v, want the header and the defaults", a)
	}
	for _, secret := range []string{"secret-1234", "Bearer secret-1234", "pass-word", "query-key"} {
		if !slices.Contains(a.Secrets, secret) {
			t.Errorf("secrets of a = %q, want %q", a.Secrets, secret)
		}
	}
	if strings.Contains(a.Shown, "secret-1234") || !strings.Contains(a.Shown, "${KEY}") {
		t.Errorf("shown = %q, want the variable by its name", a.Shown)
	}
	if !slices.Equal(b.Args, []string{"/home/ada/x", "none", "other"}) || !slices.Equal(b.Env, []string{"PATH=/bin", "TOKEN=literal-99"}) ||
		b.Timeout != 5*time.Second || b.StartupTimeout != time.Minute || b.Concurrency != 2 || b.Dir != "sub" || !slices.Equal(b.Secrets, []string{"literal-99"}) {
		t.Errorf("b = %+v, want the keys of the file, and the secret literal-99 only", b)
	}
}

// An invalid entry is refused with the file, the server and the key, and costs no other.
func TestInvalidEntriesAreRefusedByName(t *testing.T) {
	t.Parallel()
	for key, row := range map[string]struct{ entry, reason string }{
		"comand":          {`{"comand":"x"}`, "unknown key"},
		"type":            {`{"type":"sse","url":"http://h"}`, "sse is not supported"},
		"command":         {`{}`, "needs it"},
		"args":            {`{"command":"x","args":["${UNSET}"]}`, "variable UNSET is not set"},
		"env":             {`{"command":"x","env":{"A-B":"x"}}`, "not a valid name"},
		"url":             {`{"command":"x","url":"http://h"}`, "no such key|write"},
		"headers":         {`{"command":"x","headers":{}}`, "no such key"},
		"timeout":         {`{"command":"x","timeout":30}`, "duration"},
		"startup_timeout": {`{"command":"x","startup_timeout":"2h"}`, "duration"},
		"concurrency":     {`{"command":"x","concurrency":0}`, "from 1 to"},
		"disabled":        {`{"command":"x","disabled":"yes"}`, "true or false"},
		"tools":           {`{"command":"x","tools":{"only":[]}}`, "allow or deny"},
		"cwd":             {`{"command":"x","cwd":7}`, "string"},
	} {
		servers, faults := mcpconfig.Parse(fmt.Appendf(nil, `{"mcpServers":{"bad":%s,"good":{"command":"y"}}}`, row.entry), origin)
		if len(servers) != 1 || servers[0].Name != "good" || len(faults) != 1 {
			t.Errorf("%s: Parse = %v, %v, want good and one fault", key, servers, faults)
			continue
		}
		f := faults[0]
		if f.File != "/f/mcp.json" || f.Server != "bad" || key != "url" && (f.Key != key || !strings.Contains(f.Error(), row.reason)) {
			t.Errorf("%s: fault %v, want the file, bad, the key and %q", key, f, row.reason)
		}
	}
	for text, reason := range map[string]string{
		`{`: "broken", `[]`: "another type", `{"mcpServers":{"a":{},"a":{}}}`: "occurs twice", `{"servers":{}}`: "unknown key",
		`{"mcpServers":{"a b":{"command":"x"}}}`: "the name must have", `{"mcpServers":{"a":null}}`: "write an object",
	} {
		if servers, faults := mcpconfig.Parse([]byte(text), origin); len(servers) != 0 || len(faults) == 0 || !strings.Contains(faults[0].Error(), reason) {
			t.Errorf("Parse(%q) = %v, %v, want a fault with %q", text, servers, faults, reason)
		}
	}
}

// A broken file never makes Parse panic, and each fault names the file.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"mcpServers":{"a":{"command":"x","args":["${A:-b}"],"env":{"B":"c"}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, faults := mcpconfig.Parse(data, origin)
		for _, fault := range faults {
			if fault.File != origin.File || fault.Reason == "" {
				t.Errorf("Parse(%q): fault %+v without a place or a reason", data, fault)
			}
		}
	})
}
