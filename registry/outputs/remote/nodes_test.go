package remote

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// A history is a log of processes and their settled calls.
type history struct {
	t       *testing.T
	ledger  *events.Ledger
	mint    *domain.Mint
	session domain.SessionID
	length  events.Revision
	calls   int
}

func newHistory(t *testing.T, store events.Store) *history {
	now := func() time.Time { return time.UnixMilli(1_800_000_000_000) }
	mint := domain.NewMint(now, rand.NewChaCha8([32]byte{7}))
	return &history{t: t, ledger: events.NewLedger(store, mint, now), mint: mint, session: mint.Session()}
}

// process records the start of a process on a host, and returns its ID.
func (h *history) process(host, address string) domain.ProcessID {
	h.t.Helper()
	id := h.mint.Process()
	e := events.ProcessStarted{Process: id, Host: host, PID: 42, Program: "ledger", Version: "1", Address: address}
	if _, err := h.ledger.Append(h.t.Context(), events.ProcessStream(id), 0, h.ledger.Draft(e, domain.EventID{})); err != nil {
		h.t.Fatal(err)
	}
	return id
}

// ended records the end of a process.
func (h *history) ended(process domain.ProcessID) {
	h.t.Helper()
	if _, err := h.ledger.Append(h.t.Context(), events.ProcessStream(process), 1,
		h.ledger.Draft(events.ProcessStopped{Process: process, Reason: events.ProcessEnded}, domain.EventID{})); err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) append(e events.Draft) {
	h.t.Helper()
	if _, err := h.ledger.Append(h.t.Context(), events.SessionStream(h.session), h.length, e); err != nil {
		h.t.Fatal(err)
	}
	h.length++
}

// settled settles a call that a process began, with one output, which it stores with
// keep.
func (h *history) settled(by domain.ProcessID, keep BlobStore, content string) domain.Ref {
	h.t.Helper()
	h.calls++
	call, message := domain.CallID(fmt.Sprint("c", h.calls)), h.mint.Message()
	h.append(h.ledger.Draft(events.CallStarted{Turn: h.mint.Turn(), Message: message, Call: call, Tool: "t", Process: by}, domain.EventID{}))
	return h.end(events.CallSettled{Message: message, Call: call, Tool: "t", Began: true, Outcome: domain.Succeeded}, keep, content)
}

func (h *history) end(e events.CallSettled, keep BlobStore, content string) domain.Ref {
	h.t.Helper()
	d := h.ledger.Draft(nil, domain.EventID{})
	ref := domain.NewRef(d.ID, domain.TextChannel)
	e.Retained = []domain.Retained{retainedOf(ref, []byte(content))}
	if keep != nil {
		mustKeep(h.t, keep, ref, []byte(content))
	}
	d.Event = e
	h.append(d)
	return ref
}

// logs returns a store with indexed queries and one without.
func logs(t *testing.T) map[string]events.Store {
	t.Helper()
	s, err := embedded.Open(t.Context(), "log", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return map[string]events.Store{"embedded": s, "slice": eventstest.NewSlice()}
}

// Locate returns the metadata of a blob, the process that settled its call, and the
// addresses of nodes.
func TestOutputIsFoundByTheLog(t *testing.T) {
	t.Parallel()
	for name, log := range logs(t) {
		h := newHistory(t, log)
		a := h.process("alpha", "http://alpha:1")
		b := h.process("beta", "http://beta:1")
		silent := h.process("gamma", "")
		first, second, third := h.settled(a, nil, "1"), h.settled(b, nil, "2"), h.settled(silent, nil, "3")
		h.process("alpha", "http://alpha:2")
		h.process("alpha", "http://alpha:1")
		h.process("alpha", "")
		h.process("alpha", "http://alpha:3")
		h.process("beta", "http://beta:1")
		for _, want := range []struct {
			ref       domain.Ref
			process   domain.ProcessID
			said      string
			addresses string
		}{
			{first, a, "alpha pid 42", "[http://alpha:1 http://alpha:3 http://alpha:2]"},
			{second, b, "beta pid 42", "[http://beta:1]"},
			{third, silent, "gamma pid 42", "[]"},
		} {
			o, err := Locate(t.Context(), h.ledger, want.ref)
			if err != nil || o.Process.Process != want.process || o.String() != want.said || fmt.Sprint(o.Addresses) != want.addresses || o.Retained.Ref != want.ref {
				t.Errorf("%s: Locate = %+v, %v, want %s at %s", name, o, err, want.said, want.addresses)
			}
		}
		for _, absent := range []domain.Ref{refs(9)(), domain.NewRef(first.Settlement(), domain.StructuredChannel)} {
			_, err := Locate(t.Context(), h.ledger, absent)
			wantErr(t, name+": Locate of what nothing names", err, outputs.ErrNotFound)
		}
	}
}

// Addresses of running processes come before addresses of ended processes.
func TestTheLivingAreAskedFirst(t *testing.T) {
	t.Parallel()
	for name, log := range logs(t) {
		h := newHistory(t, log)
		a := h.process("alpha", "http://alpha:1")
		ref := h.settled(a, nil, "1")
		h.process("alpha", "http://alpha:2")
		gone := h.process("alpha", "http://alpha:3")
		h.ended(a)
		h.ended(gone)
		o, err := Locate(t.Context(), h.ledger, ref)
		if want := "[http://alpha:2 http://alpha:1 http://alpha:3]"; err != nil || fmt.Sprint(o.Addresses) != want {
			t.Errorf("%s: Locate = %v, %v, want %s", name, o.Addresses, err, want)
		}
	}
}

// A call that did not begin was settled by the process whose tool was offered.
func TestOutputOfACallThatDidNotBeginIsFound(t *testing.T) {
	t.Parallel()
	h := newHistory(t, eventstest.NewSlice())
	a, layer := h.process("alpha", "http://alpha:1"), h.mint.Layer()
	if _, err := h.ledger.Append(t.Context(), events.LayerStream(layer), 0,
		h.ledger.Draft(events.LayerOpened{Layer: layer, Placement: domain.Application, Process: a}, domain.EventID{})); err != nil {
		t.Fatal(err)
	}
	offered := domain.Offered{Name: "t", Layer: layer}
	for _, e := range []events.CallSettled{{Offered: offered}, {Effective: offered}} {
		e.Message, e.Call, e.Tool, e.Outcome = h.mint.Message(), "c", "t", domain.Succeeded
		o, err := Locate(t.Context(), h.ledger, h.end(e, nil, "x"))
		if err != nil || o.Process.Process != a || fmt.Sprint(o.Addresses) != "[http://alpha:1]" {
			t.Errorf("Locate = %+v, %v, want alpha", o, err)
		}
	}
	e := events.CallSettled{Message: h.mint.Message(), Call: "d", Tool: "t", Outcome: domain.Succeeded}
	if o, err := Locate(t.Context(), h.ledger, h.end(e, nil, "x")); err != nil || len(o.Addresses) != 0 {
		t.Errorf("Locate of a call of nobody = %+v, %v, want no address", o, err)
	}
}

// Nodes reads a blob from the local store, or from the node that has it.
func TestNodesReadWhereverItIs(t *testing.T) {
	t.Parallel()
	for name, log := range logs(t) {
		h := newHistory(t, log)
		here, there := Local(storeIn(t, vfs.NewMem())), storeIn(t, vfs.NewMem())
		mine := h.process("alpha", "")
		theirs := h.process("beta", serve(t, Serve(there, ServerConfig{Authorize: only("ada", "secret")})))
		own, far, pruned := h.settled(mine, here, "own"), h.settled(theirs, Local(there), "far\naway"), h.settled(theirs, Local(there), "pruned")
		lost := h.settled(theirs, nil, "lost")
		if _, err := there.Prune(t.Context(), pruned, "old", time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		n := OpenNodes(here, h.ledger, Config{User: "ada", Password: "secret"})
		defer n.Close()
		for ref, want := range map[domain.Ref]string{own: "own", far: "far\naway"} {
			if got := readAll(t, n, ref); string(got) != want {
				t.Errorf("%s: it reads %q, want %q", name, got, want)
			}
			if got, err := n.Stat(t.Context(), ref); err != nil || got != retainedOf(ref, []byte(want)) {
				t.Errorf("%s: Stat = %+v, %v, want %+v", name, got, err, retainedOf(ref, []byte(want)))
			}
			if err := n.Verify(t.Context(), ref); err != nil {
				t.Errorf("%s: Verify = %v, want nil", name, err)
			}
		}
		if got, err := n.Stat(t.Context(), pruned); !errors.Is(err, outputs.ErrPruned) || got != retainedOf(pruned, []byte("pruned")) {
			t.Errorf("%s: Stat of what was pruned = %+v, %v", name, got, err)
		}
		for _, absent := range []domain.Ref{lost, refs(9)()} {
			_, err := n.Open(t.Context(), absent)
			wantErr(t, name+": Open of what is nowhere", err, outputs.ErrNotFound)
			if errors.Is(err, ErrUnreachable) {
				t.Errorf("%s: Open = %v, want no talk of reaching", name, err)
			}
		}
		_, err := OpenNodes(nil, h.ledger, Config{}).Open(t.Context(), far)
		wantErr(t, name+": Open without a password", err, ErrDenied)
	}
}

// The error for a blob on an unreachable node names the process and a remedy.
func TestNodesSayWhoCannotBeReachedAndWhatToDo(t *testing.T) {
	t.Parallel()
	h := newHistory(t, eventstest.NewSlice())
	dead := closedPort(t)
	gone := h.settled(h.process("alpha", dead), nil, "x")
	never := h.settled(h.process("beta", ""), nil, "x")
	bad := h.settled(h.process("gamma", "nonsense"), nil, "x")
	h.process("beta", serve(t, Serve(storeIn(t, vfs.NewMem()), ServerConfig{}))) // which has another store
	n := OpenNodes(nil, h.ledger, Config{Retry: -1})
	defer n.Close()
	for _, want := range []struct {
		ref  domain.Ref
		is   error
		text string
	}{
		{gone, ErrUnreachable, "it was settled by alpha pid 42: node cannot be reached at " + dead + ": "},
		{never, ErrUnreachable, "it was settled by beta pid 42, which registered no address: node cannot be reached: "},
		{bad, ErrBadAddress, "it was settled by gamma pid 42: address of a node is not valid: "},
	} {
		_, openErr := n.Open(t.Context(), want.ref)
		_, statErr := n.Stat(t.Context(), want.ref)
		for what, err := range map[string]error{"Open": openErr, "Stat": statErr, "Verify": n.Verify(t.Context(), want.ref)} {
			if !errors.Is(err, want.is) || errors.Is(err, outputs.ErrNotFound) || !strings.Contains(err.Error(), want.text) ||
				!strings.HasSuffix(err.Error(), "start ledger serve there, or copy its outputs here") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s = %v, want %q and what to do", what, err, want.text)
			}
		}
	}
}

// If the local store belongs to the log, a missing blob is lost, and Nodes sends no
// request.
func TestNodesAtHomeKnowWhatIsGone(t *testing.T) {
	t.Parallel()
	h := newHistory(t, eventstest.NewSlice())
	n := OpenNodes(nil, h.ledger, Config{Retry: -1, Colocated: true})
	defer n.Close()
	ref := h.settled(h.process("alpha", ""), nil, "x")
	for range 2 {
		if _, err := n.Stat(t.Context(), ref); !errors.Is(err, outputs.ErrNotFound) || errors.Is(err, ErrUnreachable) {
			t.Errorf("Stat = %v, want %v", err, outputs.ErrNotFound)
		}
		h.process("alpha", closedPort(t)) // it was served since
	}
}

// After the process that settled the call has ended, Nodes reads from a later process
// of its host, which may have its store open.
func TestNodesAskWhoHasTheStoreNow(t *testing.T) {
	t.Parallel()
	h := newHistory(t, eventstest.NewSlice())
	there := storeIn(t, vfs.NewMem())
	empty := serve(t, Serve(storeIn(t, vfs.NewMem()), ServerConfig{}))
	ref := h.settled(h.process("alpha", closedPort(t)), Local(there), "kept")
	h.process("alpha", serve(t, Serve(there, ServerConfig{})))
	h.process("alpha", empty)
	n := OpenNodes(nil, h.ledger, Config{Retry: -1})
	defer n.Close()
	if got := readAll(t, n, ref); string(got) != "kept" {
		t.Errorf("it reads %q, want what was kept", got)
	}
}

// A blob of a node that differs from the settlement event is an ErrDamaged.
func TestNodesBelieveTheLogAndNotTheNode(t *testing.T) {
	t.Parallel()
	h := newHistory(t, eventstest.NewSlice())
	there := storeIn(t, vfs.NewMem())
	ref := h.settled(h.process("alpha", serve(t, Serve(there, ServerConfig{}))), nil, "named")
	mustKeep(t, Local(there), ref, []byte("other"))
	n := OpenNodes(nil, h.ledger, Config{})
	defer n.Close()
	_, err := n.Open(t.Context(), ref)
	wantErr(t, "Open", err, outputs.ErrDamaged)
	_, err = n.Stat(t.Context(), ref)
	wantErr(t, "Stat", err, outputs.ErrDamaged)
}

// Nodes continues with the next node after one with a different blob under the ref,
// since two machines can have one host name.
func TestNodesAskOnWhereAnotherOutputAnswers(t *testing.T) {
	t.Parallel()
	h := newHistory(t, eventstest.NewSlice())
	right, wrong := storeIn(t, vfs.NewMem()), storeIn(t, vfs.NewMem())
	first := h.process("alpha", serve(t, Serve(wrong, ServerConfig{})))
	ref, other := h.settled(first, Local(right), "named"), h.settled(first, Local(right), "pruned there")
	mustKeep(t, Local(wrong), ref, []byte("other"))
	mustKeep(t, Local(wrong), other, []byte("else"))
	if _, err := wrong.Prune(t.Context(), other, "old", time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	h.process("alpha", serve(t, Serve(right, ServerConfig{})))
	n := OpenNodes(nil, h.ledger, Config{Retry: -1})
	defer n.Close()
	for ref, want := range map[domain.Ref]string{ref: "named", other: "pruned there"} {
		if got := readAll(t, n, ref); string(got) != want {
			t.Errorf("it reads %q, want %q", got, want)
		}
		if got, err := n.Stat(t.Context(), ref); err != nil || got != retainedOf(ref, []byte(want)) {
			t.Errorf("Stat = %+v, %v, want what was named", got, err)
		}
	}
}

// The error for an unreachable loopback address says that only its own machine
// reaches it.
func TestNodesSayThatALoopbackIsOfOneMachine(t *testing.T) {
	t.Parallel()
	h := newHistory(t, eventstest.NewSlice())
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	away := h.settled(h.process("another machine", closedPort(t)), nil, "x")
	near := h.settled(h.process(here, closedPort(t)), nil, "x")
	n := OpenNodes(nil, h.ledger, Config{Retry: -1})
	defer n.Close()
	for ref, want := range map[domain.Ref]bool{away: true, near: false} {
		_, err := n.Stat(t.Context(), ref)
		wantErr(t, "Stat", err, ErrUnreachable)
		if got := strings.Contains(err.Error(), "(an address that only another machine itself reaches: "); got != want {
			t.Errorf("Stat = %v, want that it tells of the loopback: %v", err, want)
		}
	}
}

// Nodes sends no request to an unreachable node for a while.
func TestNodesDoNotAskADeadNodeForEachOutput(t *testing.T) {
	t.Parallel()
	h := newHistory(t, eventstest.NewSlice())
	var asked atomic.Int64
	process := h.process("alpha", serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		hangUp(w)
	})))
	n := OpenNodes(nil, h.ledger, Config{Retry: -1})
	defer n.Close()
	for range 20 {
		_, err := n.Stat(t.Context(), h.settled(process, nil, "x"))
		wantErr(t, "Stat", err, ErrUnreachable)
	}
	if asked.Load() > 5 { // the transport may ask twice
		t.Errorf("a node that hangs up was asked %d times for 20 outputs, want once or twice", asked.Load())
	}
}

// Reading a remote blob after Close returns ErrClosed.
func TestClosedNodesSaySo(t *testing.T) {
	t.Parallel()
	h := newHistory(t, eventstest.NewSlice())
	there := storeIn(t, vfs.NewMem())
	ref := h.settled(h.process("alpha", serve(t, Serve(there, ServerConfig{}))), Local(there), "x")
	n := OpenNodes(nil, h.ledger, Config{})
	for range 2 {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := n.Open(t.Context(), ref)
	wantErr(t, "Open", err, outputs.ErrClosed)
}

// Without a local store, Keep returns ErrNotKept.
func TestNowhereKeepsNothing(t *testing.T) {
	t.Parallel()
	n := OpenNodes(nil, newHistory(t, eventstest.NewSlice()).ledger, Config{})
	defer n.Close()
	_, err := n.Keep(t.Context(), refs(1)(), "", strings.NewReader("x"))
	wantErr(t, "Keep", err, outputs.ErrNotKept)
	if err := n.Confirm(t.Context(), refs(1)().Settlement()); err != nil {
		t.Errorf("Confirm = %v, want nil", err)
	}
	for r, err := range n.All(t.Context()) {
		t.Errorf("All yields %v, %v, want nothing", r, err)
	}
}
