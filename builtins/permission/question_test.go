package permission_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// port is a question with single choice, and places one with multiple choice.
var (
	port   = domain.Question{Question: "Which port?", Header: "Port", Options: []domain.QuestionOption{{Label: "80"}, {Label: "443", Description: "with TLS"}}}
	places = domain.Question{Question: "Where?", Multiple: true, Options: []domain.QuestionOption{{Label: "here"}, {Label: "there"}, {Label: "everywhere"}}}
	free   = domain.Question{Question: "Why?"}
)

// A questioned is the result of AskQuestions.
type questioned struct {
	answers [][]string
	err     error
}

// question asks on a goroutine of its own and returns where the result is to be.
func (d desk) question(ctx context.Context, inv domain.Invocation, questions ...domain.Question) <-chan questioned {
	done := make(chan questioned, 1)
	go func() {
		answers, err := d.AskQuestions(ctx, inv, questions)
		done <- questioned{answers, err}
	}()
	return done
}

func TestQuestionsAreRecordedBeforeTheyAreShownAndAnswersBeforeTheyCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "deny * *", func(c *permission.Config) { c.Person = "ada" }) // rules are the tool's affair
		inv := d.invocation()
		asked := []domain.Question{port, places, free}
		done := d.question(t.Context(), inv, asked...)
		synctest.Wait()
		pending := d.queue.PendingQuestions()
		if len(pending) != 1 || len(d.facts.asked) != 1 || !reflect.DeepEqual(pending[0], d.facts.asked[0]) {
			t.Fatalf("PendingQuestions = %+v, on record %+v, want the same one", pending, d.facts.asked)
		}
		if got := pending[0]; got.Invocation != inv || !reflect.DeepEqual(got.Questions, asked) || got.ID == (domain.PermissionID{}) {
			t.Errorf("asked %+v, want the questions of the call", got)
		}
		<-time.After(time.Minute) // of the bubble's clock
		answers := [][]string{{"443"}, {"there", "here"}, {}}
		if err := d.queue.Answer(pending[0].ID, answers); err != nil {
			t.Fatal(err)
		}
		got := <-done
		if got.err != nil || !reflect.DeepEqual(got.answers, answers) {
			t.Errorf("AskQuestions = %q, %v, want %q", got.answers, got.err, answers)
		}
		want := permission.QuestionResult{
			ID: pending[0].ID, Invocation: inv, Waited: time.Minute, Person: "ada",
			QuestionReply: permission.QuestionReply{Answers: answers, By: permission.ByUser},
		}
		if len(d.facts.answered) != 1 || !reflect.DeepEqual(d.facts.answered[0], want) {
			t.Errorf("answered %+v, want %+v", d.facts.answered, want)
		}
		if len(d.queue.PendingQuestions()) != 0 || len(d.facts.requests)+len(d.facts.decided) != 0 {
			t.Error("an answered question is pending, or was recorded as a permission request")
		}
	})
}

func TestDismissalDeclines(t *testing.T) {
	t.Parallel()
	for _, feedback := range []string{"", "decide yourself"} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, "", func(c *permission.Config) { c.Person = "ada" })
			done := d.question(t.Context(), d.invocation(), port)
			synctest.Wait()
			if err := d.queue.Dismiss(d.queue.PendingQuestions()[0].ID, feedback); err != nil {
				t.Fatal(err)
			}
			got := <-done
			if declined, ok := errors.AsType[*domain.Declined](got.err); !ok || declined.Feedback != feedback || got.answers != nil {
				t.Errorf("AskQuestions = %+v, want a *Declined with %q", got, feedback)
			}
			if a := d.facts.answered; len(a) != 1 || !a[0].Dismissed || a[0].Feedback != feedback || a[0].By != permission.ByUser || a[0].Person != "ada" {
				t.Errorf("answered %+v, want a dismissal by ada with %q", a, feedback)
			}
		})
	}
}

func TestQuestionWithoutAPersonIsDenied(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*permission.Config){
		"no questioner": func(c *permission.Config) { c.Questioner = nil },
		"headless":      func(c *permission.Config) { c.Questioner, c.Person = permission.Headless{}, "ada" },
	} {
		d := newDesk(t, "allow * *", change)
		answers, err := d.AskQuestions(t.Context(), d.invocation(), []domain.Question{port})
		denied, ok := errors.AsType[*domain.Denied](err)
		if !ok || *denied != (domain.Denied{Action: "question", Resource: "*", Reason: "no one to ask"}) || answers != nil {
			t.Errorf("%s: AskQuestions = %q, %v, want that there is no one to ask", name, answers, err)
		}
		if a := d.facts.answered; len(a) != 1 || a[0].By != permission.ByHeadless || a[0].Person != "" || !a[0].Dismissed {
			t.Errorf("%s: answered %+v, want a dismissal by headless", name, a)
		}
	}
}

// A refusal by a person stops the run, or changes its course, so no other prompt of the
// session may wait for an answer any more.
func TestRefusalEndsRequestsAndQuestionsOfItsSession(t *testing.T) {
	t.Parallel()
	for _, feedback := range []string{"", "not now"} {
		for _, dismiss := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, "")
				inv := d.invocation()
				request, question, second := d.assert(t.Context(), inv, ask("edit", "a")), d.question(t.Context(), inv, port), d.question(t.Context(), inv, free)
				stranger := d.question(t.Context(), d.invocation(), free)
				synctest.Wait()
				if dismiss {
					for _, r := range d.queue.PendingQuestions() {
						if r.Invocation == inv && len(r.Questions[0].Options) > 0 {
							if err := d.queue.Dismiss(r.ID, feedback); err != nil {
								t.Fatal(err)
							}
						}
					}
				} else if err := d.queue.Reply(d.queue.Pending()[0].ID, permission.Reject, feedback); err != nil {
					t.Fatal(err)
				}
				for name, err := range map[string]error{"request": <-request, "question": (<-question).err, "second": (<-second).err} {
					if declined, ok := errors.AsType[*domain.Declined](err); !ok || declined.Feedback != feedback {
						t.Errorf("%s = %v, want a *Declined with %q", name, err, feedback)
					}
				}
				synctest.Wait()
				if pending := d.queue.PendingQuestions(); len(pending) != 1 || d.queue.Answer(pending[0].ID, [][]string{{"so"}}) != nil || (<-stranger).err != nil {
					t.Errorf("PendingQuestions = %+v, want the question of another session", pending)
				}
				if len(d.facts.decided) != 1 || len(d.facts.answered) != 3 {
					t.Errorf("recorded %d decisions and %d answers, want 1 and 3", len(d.facts.decided), len(d.facts.answered))
				}
			})
		}
	}
}

func TestApprovalAnswersNoQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "")
		inv := d.invocation()
		request := d.assert(t.Context(), inv, permission.Ask{Action: "question", Resources: []string{"*"}, Save: []string{"*"}})
		question := d.question(t.Context(), inv, free)
		synctest.Wait()
		if len(d.Pending()) != 1 {
			t.Errorf("Pending = %+v, want the request alone", d.Pending())
		}
		if err := d.queue.Reply(d.queue.Pending()[0].ID, permission.Always, ""); err != nil || <-request != nil {
			t.Fatal("the request was not allowed")
		}
		synctest.Wait()
		if pending := d.queue.PendingQuestions(); len(pending) != 1 || d.queue.Answer(pending[0].ID, [][]string{{}}) != nil {
			t.Fatalf("PendingQuestions = %+v, want the question", pending)
		}
		<-question
	})
}

func TestInterruptedQuestionLeavesNothingPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "")
		ctx, interrupt := context.WithCancelCause(t.Context())
		done := d.question(ctx, d.invocation(), port)
		synctest.Wait()
		id := d.queue.PendingQuestions()[0].ID
		interrupt(domain.ByUser)
		if got := <-done; !errors.Is(got.err, domain.ByUser) || got.answers != nil {
			t.Errorf("AskQuestions = %+v, want the cause of its context", got)
		}
		if len(d.queue.PendingQuestions()) != 0 || !errors.Is(d.queue.Answer(id, [][]string{{"80"}}), permission.ErrNotPending) {
			t.Error("an interrupted question is pending")
		}
		if len(d.facts.asked) != 1 || len(d.facts.answered) != 0 {
			t.Errorf("recorded %d questions and %d answers, want 1 and 0", len(d.facts.asked), len(d.facts.answered))
		}
	})
}

// A person who answered has answered, also if the call is interrupted at that moment.
func TestAnswerToAQuestionBesideAnInterruptionIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancelCause(t.Context())
		d := newDesk(t, "", func(c *permission.Config) {
			c.Recorder = obedient{c.Recorder.(*facts)}
			c.Questioner = replying(func(context.Context, permission.QuestionRequest) (permission.QuestionReply, error) {
				interrupt(domain.ByUser)
				return permission.QuestionReply{Answers: [][]string{{"80"}}, By: permission.ByUser}, nil
			})
		})
		if answers, err := d.AskQuestions(ctx, d.invocation(), []domain.Question{port}); err != nil || len(answers) != 1 || len(d.facts.answered) != 1 {
			t.Errorf("AskQuestions = %q, %v, recorded %+v, want the answer", answers, err, d.facts.answered)
		}
	})
}

// replying is a Questioner that is a function.
type replying func(context.Context, permission.QuestionRequest) (permission.QuestionReply, error)

func (r replying) AskQuestions(ctx context.Context, q permission.QuestionRequest) (permission.QuestionReply, error) {
	return r(ctx, q)
}

func TestQuestionThatCannotBeRecordedIsRefused(t *testing.T) {
	t.Parallel()
	for limit := 1; limit <= 2; limit++ {
		shown := 0
		d := newDesk(t, "", func(c *permission.Config) {
			c.Questioner = replying(func(context.Context, permission.QuestionRequest) (permission.QuestionReply, error) {
				shown++
				return permission.QuestionReply{Answers: [][]string{{"80"}}, By: permission.ByUser}, nil
			})
		})
		d.facts.limit, d.facts.saved = limit, make([]permission.Approval, 1) // room for limit-1 facts
		answers, err := d.AskQuestions(t.Context(), d.invocation(), []domain.Question{port})
		if !errors.Is(err, errFull) || answers != nil || shown != limit-1 {
			t.Errorf("AskQuestions with room for %d facts = %q, %v, shown %d times, want %v", limit-1, answers, err, shown, errFull)
		}
	}
}

func TestQuestionsOutsideTheLimitsAreNotAsked(t *testing.T) {
	t.Parallel()
	options := func(n int) domain.Question {
		q := domain.Question{Question: "?"}
		for i := range n {
			q.Options = append(q.Options, domain.QuestionOption{Label: fmt.Sprint(i)})
		}
		return q
	}
	labels := func(labels ...string) []domain.Question {
		q := domain.Question{Question: "?"}
		for _, label := range labels {
			q.Options = append(q.Options, domain.QuestionOption{Label: label})
		}
		return []domain.Question{q}
	}
	long := strings.Repeat("x", 4<<10)
	times := func(n int, q domain.Question) []domain.Question {
		var all []domain.Question
		for range n {
			all = append(all, q)
		}
		return all
	}
	for name, row := range map[string]struct {
		questions []domain.Question
		valid     bool
	}{
		"nothing":                {nil, false},
		"ten":                    {times(10, port), true},
		"eleven":                 {times(11, port), false},
		"no text":                {[]domain.Question{{Header: "x"}}, false},
		"a blank text":           {[]domain.Question{{Question: " \n"}}, false},
		"the second has no text": {[]domain.Question{free, {}}, false},
		"twenty options":         {[]domain.Question{options(20)}, true},
		"21 options":             {[]domain.Question{options(21)}, false},
		"an empty label":         {labels("a", ""), false},
		"a blank label":          {labels("a", " "), false},
		"a label twice":          {labels("a", "b", "a"), false},
		"a label twice, spaced":  {labels("a", " a"), false},
		"a long text":            {[]domain.Question{{Question: long}}, true},
		"too long a text":        {[]domain.Question{{Question: long + "x"}}, false},
		"too long a header":      {[]domain.Question{{Question: "?", Header: long + "x"}}, false},
		"too long a label":       {labels(long + "x"), false},
		"too long a description": {[]domain.Question{{Question: "?", Options: []domain.QuestionOption{{Label: "a", Description: long + "x"}}}}, false},
		"32 KiB in all":          {times(8, domain.Question{Question: long}), true},
		"more than 32 KiB":       {times(9, domain.Question{Question: long}), false},
		"text that is no UTF-8":  {[]domain.Question{{Question: "\xff"}}, false},
	} {
		d := newDesk(t, "", func(c *permission.Config) { c.Questioner = permission.Headless{} })
		_, err := d.AskQuestions(t.Context(), d.invocation(), row.questions)
		if errors.Is(err, permission.ErrBadQuestion) == row.valid || len(d.facts.asked) > 0 != row.valid {
			t.Errorf("%s: AskQuestions = %v, recorded %d, valid %t", name, err, len(d.facts.asked), row.valid)
		}
	}
}

// A reply that does not fit its questions is refused, and they can still be answered.
func TestReplyMustFitItsQuestions(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string][][]string{
		"none": nil, "one too few": {{"80"}}, "one too many": {{"80"}, {}, {}}, "two to a single choice": {{"80", "443"}, {}},
		"a text beside a label": {{}, {"here", "nowhere"}}, "a label twice": {{}, {"here", "here"}}, "an empty text": {{""}, {}}, "a blank text": {{" "}, {}},
		"too long": {{strings.Repeat("x", 4<<10+1)}, {}}, "no UTF-8": {{"\xff"}, {}},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, "")
			done := d.question(t.Context(), d.invocation(), port, places)
			synctest.Wait()
			id := d.queue.PendingQuestions()[0].ID
			if err := d.queue.Answer(id, answers); !errors.Is(err, permission.ErrInvalidValue) {
				t.Errorf("%s: Answer = %v, want ErrInvalidValue", name, err)
			}
			if err := d.queue.Dismiss(id, strings.Repeat("x", 4<<10+1)); !errors.Is(err, permission.ErrInvalidValue) {
				t.Errorf("Dismiss with a long text = %v, want ErrInvalidValue", err)
			}
			if err := d.queue.Answer(id, [][]string{{"8080"}, {"everywhere", "here"}}); err != nil || (<-done).err != nil {
				t.Errorf("%s: the question cannot be answered any more: %v", name, err)
			}
		})
		d := newDesk(t, "", func(c *permission.Config) {
			c.Questioner = replying(func(context.Context, permission.QuestionRequest) (permission.QuestionReply, error) {
				return permission.QuestionReply{Answers: answers, By: permission.ByUser}, nil
			})
		})
		if got, err := d.AskQuestions(t.Context(), d.invocation(), []domain.Question{port, places}); !errors.Is(err, permission.ErrInvalidValue) || got != nil || len(d.facts.answered) != 0 {
			t.Errorf("%s: AskQuestions = %q, %v, want ErrInvalidValue", name, got, err)
		}
	}
	for _, by := range []permission.Authority{0, permission.ByRule, permission.ByApproval, permission.ByHeadless, permission.ByRecovery} {
		d := newDesk(t, "", func(c *permission.Config) {
			c.Questioner = replying(func(context.Context, permission.QuestionRequest) (permission.QuestionReply, error) {
				return permission.QuestionReply{Answers: [][]string{{}}, By: by}, nil
			})
		})
		if _, err := d.AskQuestions(t.Context(), d.invocation(), []domain.Question{free}); !errors.Is(err, permission.ErrInvalidValue) {
			t.Errorf("AskQuestions with answers by %v = %v, want ErrInvalidValue", by, err)
		}
	}
}

func TestUnknownQuestionCannotBeAnswered(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	if err := d.queue.Answer(d.mint.Permission(), nil); !errors.Is(err, permission.ErrNotPending) {
		t.Errorf("Answer to an unknown question = %v, want ErrNotPending", err)
	}
	if err := d.queue.Dismiss(d.mint.Permission(), ""); !errors.Is(err, permission.ErrNotPending) {
		t.Errorf("Dismiss of an unknown question = %v, want ErrNotPending", err)
	}
}
