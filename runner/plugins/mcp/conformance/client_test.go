package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner"
)

// scenarioVariable is the environment variable in which the conformance suite names the
// scenario to its client.
const scenarioVariable = "MCP_CONFORMANCE_SCENARIO"

// runClient is the client of the conformance suite: a session that calls each tool of the
// server at a URL once. It returns 0 if the server was started and each call succeeded.
func runClient(url string) int {
	base, err := os.MkdirTemp("", "ledger-client-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(base)
	if err := callEachTool(context.Background(), base, url); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// callEachTool runs the session of the client. It returns what did not succeed.
func callEachTool(ctx context.Context, base, url string) (err error) {
	w, err := openWorld(ctx, base, map[string]entry{"suite": {"url": url, "startup_timeout": "15s", "timeout": "15s"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close(ctx)) }()
	var calls []domain.Call
	end, err := w.session(ctx, replier(func(turn runner.Turn) []domain.Call {
		if calls != nil {
			return nil
		}
		for _, name := range offered(turn) {
			calls = append(calls, call(name, name, arguments[strings.TrimPrefix(name, "suite_")]))
		}
		return calls
	}))
	if err != nil {
		return err
	}
	var failed []error
	for _, c := range calls {
		if s := end.settlement(string(c.ID)); s == nil || s.Outcome != domain.Succeeded {
			failed = append(failed, fmt.Errorf("the call of %s ended as %+v", c.Name, s))
		}
	}
	refusals, err := w.refusals(ctx)
	for _, r := range refusals {
		failed = append(failed, errors.New("refused: "+r))
	}
	return errors.Join(append(failed, err)...)
}

// arguments are those of the tools of the scenarios.
var arguments = map[string]string{
	"add_numbers":                      `{"a":5,"b":3}`,
	"test_client_elicitation_defaults": `{}`,
	"test_reconnection":                `{}`,
	"test-tool":                        `{}`,
}
