package permission_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// answering is an Approver that is a function.
type answering func(context.Context, permission.Request) (permission.Answer, error)

func (a answering) Decide(ctx context.Context, r permission.Request) (permission.Answer, error) {
	return a(ctx, r)
}

// meanwhile is a Recorder that calls do while it records a request.
type meanwhile struct {
	*facts
	do func()
}

func (m meanwhile) Requested(ctx context.Context, r permission.Request) error {
	m.do()
	return m.facts.Requested(ctx, r)
}

// An approval can be saved after the rules were evaluated for a request, and
// before that request waits.
func TestApprovalSavedWhileARequestIsRecordedCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d desk
		d = newDesk(t, "", func(c *permission.Config) {
			c.Recorder = meanwhile{c.Recorder.(*facts), func() { d.approvals.Add(permission.Approval{Action: "edit", Resource: "a"}) }}
		})
		done := d.assert(t.Context(), d.invocation(), ask("edit", "a"))
		synctest.Wait()
		select {
		case err := <-done:
			if err != nil || d.facts.decided[0].By != permission.ByApproval {
				t.Errorf("Assert = %v, decided %+v, want that the approval decides", err, d.facts.decided)
			}
		default:
			t.Error("the request waits, and an approval allows it")
			if err := d.queue.Reply(d.queue.Pending()[0].ID, permission.Reject, ""); err != nil {
				t.Fatal(err)
			}
			<-done
		}
	})
}

// repliedWhenDone is a context that has ended, and calls reply as it is asked
// whether it has.
type repliedWhenDone struct {
	context.Context
	reply func()
}

func (c repliedWhenDone) Done() <-chan struct{} {
	c.reply()
	return c.Context.Done()
}

// A reply that Queue.Reply accepted counts, also if the asker is interrupted at
// the same moment.
func TestReplyThatWasTakenCountsDespiteAnInterruption(t *testing.T) {
	t.Parallel()
	for range 64 { // select takes either way at random
		q := &permission.Queue{}
		ended, end := context.WithCancelCause(t.Context())
		end(domain.ByUser)
		r := permission.Request{ID: newDesk(t, "").mint.Permission()}
		ctx := repliedWhenDone{ended, func() {
			if err := q.Reply(r.ID, permission.Once, ""); err != nil {
				t.Error(err)
			}
		}}
		if answer, err := q.Decide(ctx, r); err != nil || answer.Choice != permission.Once {
			t.Fatalf("Decide = %+v, %v, want the reply", answer, err)
		}
	}
}

// obedient is a Recorder that returns an error if its context has ended.
type obedient struct{ *facts }

func (o obedient) Decided(ctx context.Context, d permission.Decision) error {
	return errors.Join(ctx.Err(), o.facts.Decided(ctx, d))
}

func (o obedient) Saved(ctx context.Context, a permission.Approval) (domain.EventID, error) {
	event, err := o.facts.Saved(ctx, a)
	return event, errors.Join(ctx.Err(), err)
}

func TestAnswerBesideAnInterruptionIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancelCause(t.Context())
		d := newDesk(t, "", func(c *permission.Config) {
			c.Recorder = obedient{c.Recorder.(*facts)}
			c.Approver = answering(func(context.Context, permission.Request) (permission.Answer, error) {
				interrupt(domain.ByUser)
				return permission.Answer{Choice: permission.Always, By: permission.ByUser}, nil
			})
		})
		err := d.Assert(ctx, d.invocation(), permission.Ask{Action: "edit", Resources: []string{"a"}, Save: []string{"a"}})
		if err != nil || len(d.facts.decided) != 1 || len(d.facts.saved) != 1 {
			t.Errorf("Assert = %v, recorded %+v and %+v, want the decision and the approval", err, d.facts.decided, d.facts.saved)
		}
	})
}

// A Recorder that hangs holds an interrupted call for a grace period at most.
func TestHangingRecorderEndsWithItsGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancelCause(t.Context())
		d := newDesk(t, "", func(c *permission.Config) { c.Recorder = hanging{c.Recorder.(*facts)} })
		done := d.assert(ctx, d.invocation(), ask("edit", "a"))
		synctest.Wait()
		if err := d.queue.Reply(d.queue.Pending()[0].ID, permission.Once, ""); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour) // of the bubble's clock
		select {
		case err := <-done:
			t.Fatalf("Assert = %v before the decision was on record", err)
		default:
		}
		interrupt(domain.ByShutdown)
		if err := <-done; !errors.Is(err, domain.ByShutdown) {
			t.Errorf("Assert = %v, want the cause of its context", err)
		}
	})
}

type hanging struct{ *facts }

func (hanging) Decided(ctx context.Context, _ permission.Decision) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// Nobody said no: other requests may reach a person yet.
func TestHeadlessRejectionRejectsNothingElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queue := &permission.Queue{}
		d := newDesk(t, "", func(c *permission.Config) {
			c.Approver = answering(func(ctx context.Context, r permission.Request) (permission.Answer, error) {
				if r.Action == "bash" {
					return permission.Headless{}.Decide(ctx, r)
				}
				return queue.Decide(ctx, r)
			})
		})
		inv := d.invocation()
		waiting := d.assert(t.Context(), inv, ask("edit", "a"))
		synctest.Wait()
		if err := d.Assert(t.Context(), inv, ask("bash", "ls")); !errors.Is(err, domain.ErrDenied) {
			t.Errorf("Assert(bash) = %v, want a denial", err)
		}
		synctest.Wait()
		if pending := queue.Pending(); len(pending) != 1 {
			t.Fatal("a headless rejection ended another request of the session")
		}
		if err := queue.Reply(queue.Pending()[0].ID, permission.Once, ""); err != nil || <-waiting != nil {
			t.Errorf("the request that waits cannot be allowed: %v", err)
		}
	})
}

func TestExpiredApprovalIsSavedAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "", func(c *permission.Config) {
			c.ApprovalLifetime, c.Person = time.Hour, "ada"
			c.Approver = answering(func(context.Context, permission.Request) (permission.Answer, error) {
				return permission.Answer{Choice: permission.Always, By: permission.ByUser}, nil
			})
		})
		a := permission.Ask{Action: "edit", Resources: []string{"a"}, Save: []string{"a"}}
		for round := range 3 {
			if err := d.Assert(t.Context(), d.invocation(), a); err != nil {
				t.Fatal(err)
			}
			if len(d.facts.saved) != round+1 || len(d.approvals.List(time.Now())) != 1 || d.facts.saved[round].Person != "ada" {
				t.Fatalf("round %d saved %+v, and %+v count", round, d.facts.saved, d.approvals.List(time.Now()))
			}
			if err := d.Assert(t.Context(), d.invocation(), a); err != nil || len(d.facts.saved) != round+1 {
				t.Fatalf("round %d: while it counts: %v, %d saved", round, err, len(d.facts.saved))
			}
			<-time.After(time.Hour) // of the bubble's clock
		}
	})
}

func TestApprovalCountsForItsActionOnly(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "", func(c *permission.Config) { c.Approver = permission.Headless{} })
	d.approvals.Add(permission.Approval{Action: "read", Resource: "*"})
	if err := d.Assert(t.Context(), d.invocation(), ask("read", "a")); err != nil {
		t.Errorf("Assert(read) = %v, want nil", err)
	}
	for _, action := range []string{"edit", "reads", "bash", "read "} {
		if err := d.Assert(t.Context(), d.invocation(), ask(action, "a")); !errors.Is(err, domain.ErrDenied) {
			t.Errorf("Assert(%s) with an approval of read = %v, want a denial", action, err)
		}
	}
	if d.approvals.Revoke("", "edit", "*") || len(d.approvals.List(time.Now())) != 1 {
		t.Error("the approval of another action was revoked")
	}
}

// An allow by rule has no event of its own.
func TestRulesThatAllowAreKeptForTheEndOfTheCall(t *testing.T) {
	t.Parallel()
	kept := new(permission.Allowances)
	d := newDesk(t, "allow read *\nallow bash git *\nallow bash ls *\nask bash git push *", func(c *permission.Config) {
		c.Allowances, c.Approver = kept, permission.Headless{}
	})
	inv, other := d.invocation(), d.invocation()
	for _, a := range []permission.Ask{
		ask("read", "a"), ask("read", "b"), ask("bash", "git status", "ls", "git log"), ask("bash", "git push"), ask("bash", "rm x"),
	} {
		_ = d.Assert(t.Context(), inv, a)
	}
	_ = d.Assert(t.Context(), other, ask("read", "a"))
	var sources []string
	for _, rule := range kept.Of(inv) {
		sources = append(sources, rule.Source)
	}
	if len(sources) != 3 || sources[0] != "rules:1" || sources[1] != "rules:2" || sources[2] != "rules:3" {
		t.Errorf("the call was allowed by %q, want rules:1, rules:2 and rules:3", sources)
	}
	inv.Agent = "build" // it is the same call
	kept.Forget(inv)
	if len(kept.Of(inv)) != 0 || len(kept.Of(other)) != 1 {
		t.Errorf("after Forget: %v and %v, want none, and one of the other call", kept.Of(inv), kept.Of(other))
	}
}
