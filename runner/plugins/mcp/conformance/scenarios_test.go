package conformance_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// noAuthorization is why the client does not pass the scenarios of OAuth.
const noAuthorization = "the client has no OAuth flow: an answer 401 is a recorded refusal, which asks for a header in the configuration"

// failing has the client scenarios that do not pass, with the reason.
var failing = map[string]string{
	"auth/metadata-default":                     noAuthorization,
	"auth/metadata-var1":                        noAuthorization,
	"auth/metadata-var2":                        noAuthorization,
	"auth/metadata-var3":                        noAuthorization,
	"auth/basic-cimd":                           noAuthorization,
	"auth/scope-from-www-authenticate":          noAuthorization,
	"auth/scope-from-scopes-supported":          noAuthorization,
	"auth/scope-omitted-when-undefined":         noAuthorization,
	"auth/scope-step-up":                        noAuthorization,
	"auth/scope-retry-limit":                    noAuthorization,
	"auth/token-endpoint-auth-basic":            noAuthorization,
	"auth/token-endpoint-auth-post":             noAuthorization,
	"auth/token-endpoint-auth-none":             noAuthorization,
	"auth/pre-registration":                     noAuthorization,
	"auth/2025-03-26-oauth-metadata-backcompat": noAuthorization,
	"auth/2025-03-26-oauth-endpoint-fallback":   noAuthorization,
	"auth/offline-access-scope":                 noAuthorization,
	"auth/offline-access-not-supported":         noAuthorization,
	"auth/client-credentials-jwt":               noAuthorization,
	"auth/client-credentials-basic":             noAuthorization,
	"auth/cross-app-access-complete-flow":       noAuthorization,
}

// passing has the client scenarios that pass.
var passing = []string{
	"initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry",
	// It passes without a flow: the scenario wants that the client does not ask for a token.
	"auth/resource-mismatch",
}

// Exactly the scenarios outside the list of the failing ones pass, and these are in the
// table in docs/mcp.md. A scenario of neither list fails the test.
func TestConformanceScenarios(t *testing.T) {
	t.Parallel()
	names := scenarios(t)
	slices.Sort(names)
	known := slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(passing), maps.Keys(failing))))
	if !slices.Equal(names, known) {
		t.Errorf("the suite has the scenarios %q, want those of the lists of this test: %q", names, known)
	}
	manual, err := os.ReadFile("../../../../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(manual), "| what the scenario wants |")
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reason := failing[name]
			passed, output := runScenario(t, name)
			switch {
			case passed && reason != "":
				t.Errorf("%s passes: remove it from the list here and in docs/mcp.md", name)
			case !passed && reason == "":
				t.Errorf("%s does not pass:\n%s", name, output)
			}
			if listed := strings.Contains(table, "`"+name+"`"); listed != (reason != "") {
				t.Errorf("docs/mcp.md lists %s: %t, want %t: the scenarios that do not pass", name, listed, reason != "")
			}
		})
	}
}

// suite returns a command of the conformance suite.
func suite(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	dir := packages(t)
	script := filepath.Join(dir, "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
	return exec.CommandContext(t.Context(), "node", append([]string{"--import", filepath.Join(dir, "preload.mjs"), script}, args...)...)
}

// scenarios returns the names of the client scenarios of the suite.
func scenarios(t *testing.T) []string {
	t.Helper()
	out, err := suite(t, "list", "--client").Output()
	if err != nil {
		t.Fatalf("list the scenarios: %v\n%s", err, out)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(line, "  - "); ok {
			name, _, _ := strings.Cut(rest, " ")
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// runScenario runs a scenario with this test binary as the client. It reports whether the
// scenario passed, and returns the output of the suite. A scenario without recorded checks
// fails the test, as it did not run.
func runScenario(t *testing.T, name string) (passed bool, output string) {
	t.Helper()
	dir := t.TempDir()
	out, failed := suite(t, "client", "--scenario", name, "--command", os.Args[0], "--timeout", "120000", "-o", dir).CombinedOutput()
	files, err := filepath.Glob(filepath.Join(dir, filepath.Dir(name), "*", "checks.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s recorded the checks %v: %v\n%s", name, files, failed, out)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var checks []struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	if err := json.Unmarshal(data, &checks); err != nil || len(checks) == 0 {
		t.Fatalf("%s recorded the checks %s: %v", name, data, err)
	}
	for _, c := range checks {
		if c.Status == "FAILURE" && failed == nil {
			t.Errorf("%s passes although its check %s does not", name, c.ID)
		}
	}
	return failed == nil, string(out)
}
