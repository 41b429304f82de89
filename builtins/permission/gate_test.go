package permission_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// facts are a Recorder in memory, which fails once there are as many facts as
// it may hold.
type facts struct {
	mu       sync.Mutex
	limit    int
	requests []permission.Request
	decided  []permission.Decision
	saved    []permission.Approval
	asked    []permission.QuestionRequest
	answered []permission.QuestionResult
	mint     *domain.Mint // of the events that record approvals
}

var errFull = errors.New("disk full")

func (f *facts) add(keep func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limit > 0 && len(f.requests)+len(f.decided)+len(f.saved)+len(f.asked)+len(f.answered) >= f.limit {
		return errFull
	}
	keep()
	return nil
}

func (f *facts) Requested(_ context.Context, r permission.Request) error {
	return f.add(func() { f.requests = append(f.requests, r) })
}

func (f *facts) Decided(_ context.Context, d permission.Decision) error {
	return f.add(func() { f.decided = append(f.decided, d) })
}

func (f *facts) Saved(_ context.Context, a permission.Approval) (event domain.EventID, err error) {
	err = f.add(func() {
		f.saved = append(f.saved, a)
		event = f.mint.Event()
	})
	return event, err
}

func (f *facts) QuestionAsked(_ context.Context, r permission.QuestionRequest) error {
	return f.add(func() { f.asked = append(f.asked, r) })
}

func (f *facts) QuestionAnswered(_ context.Context, r permission.QuestionResult) error {
	return f.add(func() { f.answered = append(f.answered, r) })
}

// one returns the rules of each agent as a single set.
func one(agents map[domain.AgentID]domain.Rules) func(domain.Invocation) domain.RuleSets {
	return func(inv domain.Invocation) domain.RuleSets { return domain.RuleSets{agents[inv.Agent]} }
}

// entropy is randomness that is the same each time.
func entropy() io.Reader { return rand.NewChaCha8([32]byte{1}) }

// desk is a Gate with a Queue before it.
type desk struct {
	*permission.Gate
	queue     *permission.Queue
	facts     *facts
	approvals *permission.Approvals
	mint      *domain.Mint
}

func newDesk(t testing.TB, rules string, change ...func(*permission.Config)) desk {
	t.Helper()
	d := desk{queue: &permission.Queue{}, approvals: &permission.Approvals{}, mint: domain.NewMint(time.Now, entropy())}
	d.facts = &facts{mint: d.mint}
	agents := map[domain.AgentID]domain.Rules{"": parseName(t, rules), "build": parseName(t, rules), "reviewer": parseName(t, "deny * *")}
	c := permission.Config{Rules: one(agents), Approver: d.queue, Questioner: d.queue, Recorder: d.facts, Mint: d.mint, Now: time.Now, Approvals: d.approvals}
	for _, f := range change {
		f(&c)
	}
	gate, err := permission.NewGate(c)
	if err != nil {
		t.Fatalf("NewGate = %v", err)
	}
	d.Gate = gate
	return d
}

func (d desk) invocation() domain.Invocation {
	return domain.Invocation{Session: d.mint.Session(), Message: d.mint.Message(), Call: "call_1"}
}

func ask(action string, resources ...string) permission.Ask {
	return permission.Ask{Action: action, Resources: resources}
}

// assert asks on a goroutine of its own and returns where the answer is to be.
func (d desk) assert(ctx context.Context, inv domain.Invocation, a permission.Ask) <-chan error {
	done := make(chan error, 1)
	go func() { done <- d.Assert(ctx, inv, a) }()
	return done
}

// Scenario 73.
func TestRulesDecideWithoutAsking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "allow read *\ndeny bash *")
		inv := d.invocation()
		if err := d.Assert(t.Context(), inv, ask("read", "a")); err != nil {
			t.Errorf("Assert(read) = %v, want nil", err)
		}
		if n := len(d.facts.requests); n != 0 {
			t.Errorf("an allow by rule recorded %d requests, want 0", n)
		}
		err := d.Assert(t.Context(), inv, ask("bash", "pwd"))
		denied, ok := errors.AsType[*domain.Denied](err)
		if !ok || denied.Action != "bash" || denied.Resource != "pwd" || denied.Rule.Source != "rules:2" {
			t.Errorf("Assert(bash) = %#v, want a denial by rules:2", err)
		}
		if len(d.facts.requests) != 1 || len(d.facts.decided) != 1 || d.facts.decided[0].By != permission.ByRule || d.facts.decided[0].Rule.Source != "rules:2" {
			t.Errorf("a denial recorded %v and %v, want one request and one decision by rule", d.facts.requests, d.facts.decided)
		}
		if got := d.queue.Pending(); len(got) != 0 {
			t.Errorf("Pending = %v, want none", got)
		}

		done := d.assert(t.Context(), inv, ask("edit", "a"))
		synctest.Wait()
		pending := d.queue.Pending()
		if len(pending) != 1 || pending[0].ID != d.facts.requests[1].ID || pending[0].Action != "edit" {
			t.Fatalf("Pending = %v, want the request on record", pending)
		}
		<-time.After(time.Minute) // of the bubble's clock
		if err := d.queue.Reply(pending[0].ID, permission.Once, ""); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("Assert(edit) after once = %v, want nil", err)
		}
		want := permission.Decision{Permission: pending[0].ID, Effect: domain.Allow, By: permission.ByUser, Choice: permission.Once, Waited: time.Minute}
		got := d.facts.decided[1]
		got.Invocation = domain.Invocation{}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("decided %+v, want %+v", got, want)
		}
		if len(d.facts.saved) != 0 {
			t.Errorf("once saved %v", d.facts.saved)
		}
	})
}

// Scenario 74.
// Scenario 77.
func TestAgentOfTheCallChoosesTheRules(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "allow * *", func(c *permission.Config) { c.Approver = permission.Headless{} })
	for agent, want := range map[domain.AgentID]string{"": "", "build": "", "reviewer": "rules:1"} {
		err := d.Assert(t.Context(), domain.Invocation{Agent: agent}, ask("edit", "a"))
		denied, ok := errors.AsType[*domain.Denied](err)
		if want == "" && err != nil || want != "" && (!ok || denied.Rule.Source != want) {
			t.Errorf("Assert by %q = %v, want a denial by %q", agent, err, want)
		}
	}
	err := d.Assert(t.Context(), domain.Invocation{Agent: "free"}, ask("edit", "a"))
	if denied, ok := errors.AsType[*domain.Denied](err); !ok || denied.Reason != "no one to ask" {
		t.Errorf("Assert by an agent without rules = %v, want that it was asked", err)
	}
}

// Scenario 76.
func TestResourcesOfOneActionSayNothingOfAnother(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "deny * *\nallow read *")
	if err := d.Assert(t.Context(), d.invocation(), ask("read", "output://x/text")); err != nil {
		t.Errorf("Assert(read) = %v, want nil", err)
	}
	if err := d.Assert(t.Context(), d.invocation(), ask("external_directory", "/data/*")); !errors.Is(err, domain.ErrDenied) {
		t.Errorf("Assert(external_directory) = %v, want a denial", err)
	}
}

// Scenario 79.
func TestBashIsAnActionAsAnyOther(t *testing.T) {
	t.Parallel()
	headless := func(c *permission.Config) { c.Approver = permission.Headless{} }
	if d := newDesk(t, "allow * *", headless); d.Assert(t.Context(), d.invocation(), ask("bash", "rm -rf /")) != nil {
		t.Error("allow * * does not allow bash")
	}
	d := newDesk(t, "", headless)
	if err := d.Assert(t.Context(), d.invocation(), ask("bash", "pwd")); !errors.Is(err, domain.ErrDenied) {
		t.Errorf("Assert(bash) without rules = %v, want that nobody could be asked", err)
	}
	if got := d.facts.decided; len(got) != 1 || got[0].By != permission.ByHeadless || got[0].Choice != permission.Reject {
		t.Errorf("decided %v, want one decision by headless", got)
	}
}

// Scenario 80.
func TestApprovalNeverOverridesAConfiguredDeny(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	d.approvals.Add(permission.Approval{Action: "bash", Resource: "pwd"})
	if err := d.Assert(t.Context(), d.invocation(), ask("bash", "pwd")); err != nil {
		t.Errorf("Assert with an approval = %v, want nil", err)
	}
	if len(d.facts.decided) != 1 || d.facts.decided[0].By != permission.ByApproval {
		t.Errorf("decided %v, want one by approval", d.facts.decided)
	}
	d = newDesk(t, "deny bash *")
	d.approvals.Add(permission.Approval{Action: "bash", Resource: "*"})
	if err := d.Assert(t.Context(), d.invocation(), ask("bash", "pwd")); !errors.Is(err, domain.ErrDenied) {
		t.Errorf("Assert against a deny with an approval = %v, want a denial", err)
	}
}

// A decision names each approval that allowed a resource: of a request that approvals decide
// alone, beside the answer of a person, and after an answer to another request. The rules that
// allowed other resources of an allowed request are those of its call.
func TestADecisionNamesTheApprovalsAndRulesThatAllowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		allowances := new(permission.Allowances)
		d := newDesk(t, "allow edit free*", func(c *permission.Config) { c.Allowances = allowances })
		used := func(t *testing.T, i int, by permission.Authority, want ...permission.Approval) {
			t.Helper()
			if got := d.facts.decided[i]; got.By != by || !slices.Equal(got.Approvals, want) {
				t.Errorf("decision %d is by %s with the approvals %+v, want by %s with %+v", i, got.By, got.Approvals, by, want)
			}
		}
		first := ask("edit", "a")
		first.Save = []string{"a*"}
		invs := []domain.Invocation{d.invocation(), d.invocation(), d.invocation(), d.invocation(), d.invocation()}
		asked, waiting := d.assert(t.Context(), invs[0], first), (<-chan error)(nil)
		synctest.Wait()
		waiting = d.assert(t.Context(), invs[1], ask("edit", "a2", "free"))
		synctest.Wait()
		if err := d.queue.Reply(d.queue.Pending()[0].ID, permission.Always, ""); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(<-asked, <-waiting); err != nil {
			t.Fatal(err)
		}
		saved := d.approvals.List(time.Now())[0]
		if saved.Event.IsZero() {
			t.Error("the saved approval has no event")
		}
		used(t, 0, permission.ByUser)
		used(t, 1, permission.ByApproval, saved)
		if err := d.Assert(t.Context(), invs[2], ask("edit", "a", "free too", "a1")); err != nil {
			t.Fatal(err)
		}
		used(t, 2, permission.ByApproval, saved)
		asked = d.assert(t.Context(), invs[3], ask("edit", "b", "a", "free three"))
		synctest.Wait()
		if err := d.queue.Reply(d.queue.Pending()[0].ID, permission.Once, ""); err != nil {
			t.Fatal(err)
		}
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
		used(t, 3, permission.ByUser, saved)
		asked = d.assert(t.Context(), invs[4], ask("edit", "b", "a", "free"))
		synctest.Wait()
		if err := d.queue.Reply(d.queue.Pending()[0].ID, permission.Reject, ""); err != nil {
			t.Fatal(err)
		}
		if err := <-asked; err == nil {
			t.Fatal("a rejected request returned no error")
		}
		used(t, 4, permission.ByUser)
		for i, want := range []int{0, 1, 1, 1, 0} {
			rules := allowances.Of(invs[i])
			if len(rules) != want || want > 0 && rules[0].Source != "rules:1" {
				t.Errorf("call %d was allowed by the rules %+v, want %d of them", i, rules, want)
			}
		}
	})
}

// Scenario 82.
func TestRejectDeclines(t *testing.T) {
	t.Parallel()
	for _, feedback := range []string{"", "use the staging database"} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, "")
			done := d.assert(t.Context(), d.invocation(), ask("edit", "a"))
			synctest.Wait()
			if err := d.queue.Reply(d.queue.Pending()[0].ID, permission.Reject, feedback); err != nil {
				t.Fatal(err)
			}
			err := <-done
			if declined, ok := errors.AsType[*domain.Declined](err); !ok || declined.Feedback != feedback {
				t.Errorf("Assert = %v, want a *Declined with %q", err, feedback)
			}
			if len(d.queue.Pending()) != 0 || len(d.Pending()) != 0 {
				t.Error("a rejected request is pending")
			}
			if got := d.facts.decided[0]; got.Feedback != feedback || got.Effect != domain.Deny || got.By != permission.ByUser {
				t.Errorf("decided %+v", got)
			}
		})
	}
}

// Scenario 83.
func TestAlwaysIsSavedAndCanBeRevoked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "", func(c *permission.Config) { c.ApprovalLifetime = time.Hour })
		a := permission.Ask{Action: "edit", Resources: []string{"src/a.ts"}, Save: []string{"src/*"}}
		done := d.assert(t.Context(), d.invocation(), a)
		synctest.Wait()
		if err := d.queue.Reply(d.queue.Pending()[0].ID, permission.Always, ""); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		list := d.approvals.List(time.Now())
		if len(list) != 1 || list[0].Resource != "src/*" || list[0].Permission != d.facts.requests[0].ID || len(d.facts.saved) != 1 {
			t.Fatalf("List = %v, recorded %v, want src/* once", list, d.facts.saved)
		}
		if err := d.Assert(t.Context(), d.invocation(), ask("edit", "src/next.ts")); err != nil {
			t.Errorf("Assert(src/next.ts) = %v, want nil", err)
		}
		<-time.After(time.Hour) // of the bubble's clock
		if list := d.approvals.List(time.Now()); len(list) != 0 {
			t.Errorf("List after its life = %v, want none", list)
		}
		if !d.approvals.Revoke("", "edit", "src/*") || d.approvals.Revoke("", "edit", "src/*") {
			t.Error("Revoke does not report whether there was an approval")
		}
	})
}

func TestRevokedApprovalAllowsNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "", func(c *permission.Config) { c.Approver = permission.Headless{} })
	d.approvals.Add(permission.Approval{Action: "edit", Resource: "*"})
	d.approvals.Revoke("", "edit", "*")
	if err := d.Assert(t.Context(), d.invocation(), ask("edit", "a")); !errors.Is(err, domain.ErrDenied) {
		t.Errorf("Assert = %v, want a denial", err)
	}
}

// Scenario 85.
func TestRejectEndsEveryRequestOfTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "")
		one, other := d.invocation(), d.invocation()
		first := d.assert(t.Context(), one, ask("edit", "a"))
		synctest.Wait()
		id := d.queue.Pending()[0].ID
		sibling := d.assert(t.Context(), one, ask("edit", "b"))
		stranger := d.assert(t.Context(), other, ask("edit", "c"))
		synctest.Wait()
		if err := d.queue.Reply(id, permission.Reject, "no"); err != nil {
			t.Fatal(err)
		}
		if err := <-first; !errors.Is(err, domain.ErrDeclined) {
			t.Errorf("the rejected one = %v", err)
		}
		if err := <-sibling; !errors.Is(err, domain.ErrDeclined) {
			t.Errorf("another of the session = %v, want declined", err)
		}
		synctest.Wait()
		pending := d.queue.Pending()
		if len(pending) != 1 || pending[0].Invocation.Session != other.Session {
			t.Fatalf("Pending = %v, want the request of the other session", pending)
		}
		if err := d.queue.Reply(pending[0].ID, permission.Once, ""); err != nil || <-stranger != nil {
			t.Errorf("the other session's request was not to be answered: %v", err)
		}
		if len(d.facts.decided) != 3 {
			t.Errorf("recorded %d decisions, want one for each request", len(d.facts.decided))
		}
	})
}

// The model reads the feedback only if the run goes on, and a run stops at a
// call that was declined without feedback.
func TestFeedbackCountsForEveryRequestThatIsRejectedWithIt(t *testing.T) {
	t.Parallel()
	for _, feedback := range []string{"", "use the staging database"} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, "")
			session := d.invocation()
			one, two := d.assert(t.Context(), session, ask("edit", "a")), d.assert(t.Context(), session, ask("edit", "b"))
			synctest.Wait()
			if err := d.queue.Reply(d.queue.Pending()[0].ID, permission.Reject, feedback); err != nil {
				t.Fatal(err)
			}
			for name, done := range map[string]<-chan error{"one": one, "two": two} {
				err := <-done
				if declined, ok := errors.AsType[*domain.Declined](err); !ok || declined.Feedback != feedback {
					t.Errorf("%s = %v, want a *Declined with %q", name, err, feedback)
				}
			}
			for _, decided := range d.facts.decided {
				if decided.Feedback != feedback || decided.Choice != permission.Reject || decided.By != permission.ByUser {
					t.Errorf("decided %+v, want a rejection by the person with %q", decided, feedback)
				}
			}
		})
	}
}

// Scenario 86.
func TestAlwaysAnswersRequestsThatItAllows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "")
		first := d.assert(t.Context(), d.invocation(), permission.Ask{Action: "edit", Resources: []string{"src/a"}, Save: []string{"src/*"}})
		synctest.Wait()
		id := d.queue.Pending()[0].ID
		allowed := d.assert(t.Context(), d.invocation(), ask("edit", "src/b"))
		half := d.assert(t.Context(), d.invocation(), ask("edit", "src/b", "etc/c"))
		synctest.Wait()
		if err := d.queue.Reply(id, permission.Always, ""); err != nil {
			t.Fatal(err)
		}
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		if err := <-allowed; err != nil {
			t.Errorf("a request that the approval covers = %v, want nil", err)
		}
		synctest.Wait()
		pending := d.queue.Pending()
		if len(pending) != 1 || len(pending[0].Resources) != 2 {
			t.Fatalf("Pending = %v, want the request that is covered by half", pending)
		}
		if err := d.queue.Reply(pending[0].ID, permission.Reject, ""); err != nil || <-half == nil {
			t.Errorf("the request that is covered by half was allowed: %v", err)
		}
	})
}

// Scenario 88.
func TestUnknownRequestCannotBeAnswered(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	if err := d.queue.Reply(d.mint.Permission(), permission.Once, ""); !errors.Is(err, permission.ErrNotPending) {
		t.Errorf("Reply to an unknown request = %v, want ErrNotPending", err)
	}
	if err := d.queue.Reply(d.mint.Permission(), 0, ""); !errors.Is(err, permission.ErrInvalidValue) {
		t.Errorf("Reply with no scope = %v, want ErrBadWord", err)
	}
}

// Scenario 88.
func TestInterruptedAskerLeavesNothingPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "")
		ctx, interrupt := context.WithCancelCause(t.Context())
		done := d.assert(ctx, d.invocation(), ask("edit", "a"))
		synctest.Wait()
		interrupt(domain.ByUser)
		if err := <-done; !errors.Is(err, domain.ByUser) {
			t.Errorf("Assert = %v, want the cause of its context", err)
		}
		if len(d.queue.Pending()) != 0 || len(d.Pending()) != 0 {
			t.Error("an interrupted request is pending")
		}
		if len(d.facts.requests) != 1 || len(d.facts.decided) != 0 {
			t.Errorf("recorded %d requests and %d decisions, want 1 and 0", len(d.facts.requests), len(d.facts.decided))
		}
	})
}

// Scenario 148.
func TestShownTextIsMadeOnlyForAQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "allow edit a\ndeny edit b")
		d.approvals.Add(permission.Approval{Action: "edit", Resource: "c"})
		made := 0
		asking := func(resource string) permission.Ask {
			a := ask("edit", resource)
			a.Preview = func(context.Context) (domain.Preview, error) {
				made++
				return domain.NewPreview(domain.PreviewDiff, "-old\n+new\n"), nil
			}
			return a
		}
		for _, resource := range []string{"a", "b", "c"} {
			_ = d.Assert(t.Context(), d.invocation(), asking(resource))
			if made != 0 {
				t.Errorf("the diff of %s was made, and a rule or an approval decides about it", resource)
			}
		}
		done := d.assert(t.Context(), d.invocation(), asking("d"))
		synctest.Wait()
		pending := d.queue.Pending()
		if want := domain.NewPreview(domain.PreviewDiff, "-old\n+new\n"); made != 1 || pending[0].Shown != want || d.facts.requests[2].Shown != want {
			t.Errorf("the request shows %+v and %+v is on record, want %+v", pending[0].Shown, d.facts.requests[2].Shown, want)
		}
		if err := d.queue.Reply(pending[0].ID, permission.Once, ""); err != nil || <-done != nil {
			t.Errorf("the question was not answered: %v", err)
		}
	})
}

func TestQuestionThatCannotBeShownIsNotAsked(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	errGone := domain.Fail("file not found: a")
	a := ask("edit", "a")
	a.Preview = func(context.Context) (domain.Preview, error) { return domain.Preview{}, errGone }
	if err := d.Assert(t.Context(), d.invocation(), a); err != errGone {
		t.Errorf("Assert = %v, want the error of Preview unchanged", err)
	}
	if len(d.facts.requests) != 0 || len(d.Pending()) != 0 {
		t.Error("a question without its text was asked")
	}
}

// Scenario 164.
func TestNoResourceIsNoPermission(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "allow * *")
	if err := d.Assert(t.Context(), d.invocation(), ask("bash")); !errors.Is(err, permission.ErrNoResource) || errors.Is(err, domain.ErrDenied) {
		t.Errorf("Assert without a resource = %v, want ErrNoResource and no denial", err)
	}
	if err := d.Assert(t.Context(), d.invocation(), ask("", "a")); !errors.Is(err, permission.ErrNoResource) {
		t.Errorf("Assert without an action = %v, want ErrNoResource", err)
	}
}

func TestWhatCannotBeRecordedIsRefused(t *testing.T) {
	t.Parallel()
	for limit := 1; limit <= 3; limit++ {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, "")
			d.facts.limit = limit - 1
			if limit == 1 { // not even the request: nobody is asked
				d.facts.limit, d.facts.saved = 1, make([]permission.Approval, 1)
			}
			done := d.assert(t.Context(), d.invocation(), permission.Ask{Action: "edit", Resources: []string{"a"}, Save: []string{"*"}})
			synctest.Wait()
			for _, r := range d.queue.Pending() {
				if err := d.queue.Reply(r.ID, permission.Always, ""); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-done; !errors.Is(err, errFull) {
				t.Errorf("Assert with room for %d facts = %v, want %v", limit-1, err, errFull)
			}
			if got := d.approvals.List(time.Now()); len(got) != 0 {
				t.Errorf("an approval that is not on record counts: %v", got)
			}
		})
	}
	d := newDesk(t, "deny * *")
	d.facts.limit, d.facts.saved = 1, make([]permission.Approval, 1)
	if err := d.Assert(t.Context(), d.invocation(), ask("edit", "a")); !errors.Is(err, errFull) {
		t.Errorf("a denial that cannot be recorded = %v, want %v", err, errFull)
	}
}

func TestGateNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	if _, err := permission.NewGate(permission.Config{}); !errors.Is(err, permission.ErrBadGate) {
		t.Errorf("NewGate of nothing = %v, want ErrBadGate", err)
	}
}

func TestDenyBeatsAskBeatsAllow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		effects := rapid.SliceOfN(rapid.SampledFrom([]domain.Effect{domain.Allow, domain.Ask, domain.Deny}), 1, 6).Draw(rt, "effects")
		rules, a, worst := domain.Rules{}, permission.Ask{Action: "x"}, domain.Allow
		for i, e := range effects {
			resource := string(rune('a' + i))
			rules = append(rules, domain.Rule{Action: "x", Resource: resource, Effect: e})
			a.Resources, worst = append(a.Resources, resource), max(worst, e)
		}
		d := newDesk(t, "", func(c *permission.Config) {
			c.Rules = func(domain.Invocation) domain.RuleSets { return domain.RuleSets{rules} }
			c.Approver = permission.Headless{}
		})
		err := d.Assert(t.Context(), d.invocation(), a)
		denied, _ := errors.AsType[*domain.Denied](err)
		switch worst {
		case domain.Allow:
			if err != nil {
				rt.Errorf("%v: %v, want nil", effects, err)
			}
		case domain.Ask:
			if denied == nil || denied.Reason == "" {
				rt.Errorf("%v: %v, want that it was asked", effects, err)
			}
		case domain.Deny:
			if denied == nil || denied.Rule.Effect != domain.Deny {
				rt.Errorf("%v: %v, want a denial by rule", effects, err)
			}
		}
	})
}
