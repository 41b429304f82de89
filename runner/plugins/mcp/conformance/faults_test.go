package conformance_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner"
)

// A server that is killed in the middle of calls ends them as defects that name it. A call
// of another server in the same message, and that server, are unharmed. The next calls of
// the killed server succeed, or say that it is not running.
func TestServerKilledInACall(t *testing.T) {
	t.Parallel()
	marks := t.TempDir()
	mark := func(name string) string { return filepath.Join(marks, name) }
	w := newWorld(t, map[string]entry{
		"every": reference(t, "server-everything", map[string]string{"PID_FILE": mark("every"), "PROGRESS_FILE": mark("progress")}, "stdio"),
		"files": reference(t, "server-filesystem", map[string]string{"PID_FILE": mark("files")}),
	})
	w.await(t, has("every_trigger-long-running-operation", "files_list_allowed_directories"))
	killed, other := awaitNumber(t, mark("every")), awaitNumber(t, mark("files"))
	go func() {
		if _, err := wait(t.Context(), mark("progress")); err == nil {
			_ = syscall.Kill(killed, syscall.SIGKILL)
		}
	}()
	end, err := w.session(t.Context(), once(
		call("one", "every_trigger-long-running-operation", `{"duration":600,"steps":6000}`),
		call("two", "every_trigger-long-running-operation", `{"duration":600,"steps":6000}`),
		call("other", "files_list_allowed_directories", `{}`),
	))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"one", "two"} {
		want(t, id, end.settlement(id), domain.Defective, "MCP server every ended during a call of trigger-long-running-operation", "signal killed", "outcome of the call is unknown")
	}
	want(t, "other", end.settlement("other"), domain.Succeeded, w.project)

	for succeeded := false; !succeeded; {
		end, err := w.session(t.Context(), once(call("again", "every_echo", `{"message":"back"}`), call("other", "files_list_allowed_directories", `{}`)))
		if err != nil {
			t.Fatal(err)
		}
		want(t, "other", end.settlement("other"), domain.Succeeded, w.project)
		s := end.settlement("again")
		if succeeded = s != nil && s.Outcome == domain.Succeeded; succeeded {
			want(t, "again", s, domain.Succeeded, "Echo: back")
		} else {
			want(t, "again", s, domain.Failed, "The MCP server every is not running", "The call was not sent")
		}
		if t.Failed() {
			return
		}
	}
	if again := awaitNumber(t, mark("every")); again == killed {
		t.Errorf("the server every still has the process %d, want a new one", again)
	}
	if same := awaitNumber(t, mark("files")); same != other {
		t.Errorf("the server files has the process %d, want %d: it was not killed", same, other)
	}
	if refusals, err := w.refusals(t.Context()); err != nil || !slices.ContainsFunc(refusals, contains("mcp server every: it ended and is started again", "signal killed")) {
		t.Errorf("refused %q with the error %v, want the end of the server", refusals, err)
	}
}

// A server that changes its tools has the new ones in the next turn. Calls of a turn that
// was offered the old ones are stale and not sent, except those of a tool that did not
// change, which keeps its registration. A call that was running goes on.
func TestServerThatChangesItsTools(t *testing.T) {
	t.Parallel()
	marks := t.TempDir()
	mark := func(name string) string { return filepath.Join(marks, name) }
	w := newWorld(t, map[string]entry{"a": node(t, "changing.mjs", map[string]string{"MARKS": marks})})
	w.await(t, has("a_kept", "a_old", "a_count", "a_change", "a_hold"))

	holding, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	held := make(chan *sessionEnd, 1)
	go func() {
		end, _ := w.session(holding, once(call("hold", "a_hold", `{}`))) // the error is that of the interruption
		held <- end
	}()
	awaitFile(t, mark("held"))

	changed := make(chan error)
	turns := 0
	end, err := w.session(t.Context(), replier(func(turn runner.Turn) []domain.Call {
		switch turns++; turns {
		case 1:
			go func() { changed <- w.change(t) }()
			if err := <-changed; err != nil {
				t.Error(err)
			}
			return []domain.Call{call("kept", "a_kept", `{}`), call("old", "a_old", `{}`), call("first", "a_count", `{"text":"abc"}`)}
		case 2:
			names := offered(turn)
			if !slices.Contains(names, "a_extra") || slices.Contains(names, "a_old") {
				t.Errorf("the next turn offers %q, want the changed tools", names)
			}
			return []domain.Call{call("second", "a_count", `{"text":"abc"}`), call("extra", "a_extra", `{}`), call("gone", "a_old", `{}`)}
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "kept", end.settlement("kept"), domain.Succeeded, "kept")
	want(t, "old", end.settlement("old"), domain.Stale)
	want(t, "first", end.settlement("first"), domain.Stale)
	want(t, "second", end.settlement("second"), domain.Succeeded, "second 3")
	want(t, "extra", end.settlement("extra"), domain.Succeeded, "extra")
	want(t, "gone", end.settlement("gone"), domain.UnknownTool)
	for _, name := range []string{"old", "counted-abc"} {
		if _, err := os.Stat(mark(name)); err == nil {
			t.Errorf("the server has the mark %s, want no call of a stale registration", name)
		}
	}

	select {
	case end := <-held:
		t.Errorf("the running call ended as %+v, want it to go on after the change", end.settlement("hold"))
	default:
		interrupt()
		want(t, "hold", (<-held).settlement("hold"), domain.Interrupted)
		awaitFile(t, mark("cancelled"))
	}
	w.checkRegistrations(t, map[string]int{"a_kept": 1, "a_hold": 1, "a_change": 1, "a_old": 1, "a_count": 2, "a_extra": 1})
}

// change makes the server change its tools, and waits until a turn of another session
// offers them.
func (w *world) change(t *testing.T) error {
	if _, err := w.session(t.Context(), once(call("change", "a_change", `{}`))); err != nil {
		return err
	}
	for names := []string(nil); !has("a_extra")(names) || has("a_old")(names); {
		if _, err := w.session(t.Context(), replier(func(turn runner.Turn) []domain.Call { names = offered(turn); return nil })); err != nil {
			return err
		}
	}
	return nil
}

// checkRegistrations fails the test unless each tool was registered so many times.
func (w *world) checkRegistrations(t *testing.T, want map[string]int) {
	t.Helper()
	got := map[string]int{}
	for v, err := range w.Ledger.Read(t.Context(), events.LayerStream(w.Layer.ID()), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := v.Event.(events.ToolsRegistered); ok {
			for _, tool := range e.Tools {
				got[string(tool.Name)]++
			}
		}
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s was registered %d times, want %d", name, got[name], n)
		}
	}
}
