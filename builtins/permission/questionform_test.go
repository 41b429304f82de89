package permission_test

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// asking is a request with questions of the agent build.
func asking(questions ...domain.Question) permission.QuestionRequest {
	return permission.QuestionRequest{Invocation: domain.Invocation{Agent: "build"}, Questions: questions}
}

// typedAtPrompts runs a terminal on which the next keys are typed at each prompt, and on
// which the input ends at the prompt after the last keys.
func typedAtPrompts(t *testing.T, r permission.QuestionRequest, keys ...string) (reply permission.QuestionReply, shown string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		in, keyboard := io.Pipe()
		prompts := make(chan bool, 100)
		screen := &console{shown: func(text string) {
			if strings.HasSuffix(text, promptText) {
				prompts <- true
			}
		}}
		terminal := permission.NewTerminal(in, screen)
		var group sync.WaitGroup
		group.Go(func() {
			if err := terminal.Run(t.Context()); err != nil {
				t.Errorf("Run = %v, want nil at the end of its input", err)
			}
		})
		group.Go(func() {
			defer keyboard.Close()
			for _, key := range keys {
				<-prompts
				if _, err := io.WriteString(keyboard, key); err != nil {
					t.Error(err)
				}
			}
			<-prompts // of the question after the last one
		})
		var err error
		if reply, err = terminal.AskQuestions(t.Context(), r); err != nil {
			t.Errorf("AskQuestions = %v", err)
		}
		prompts <- true
		group.Wait()
		shown = screen.String()
	})
	return reply, shown
}

func TestPersonAnswersQuestionsAtTheTerminal(t *testing.T) {
	t.Parallel()
	answered := func(answers ...[]string) permission.QuestionReply {
		return permission.QuestionReply{Answers: answers, By: permission.ByUser}
	}
	dismissed := func(feedback string) permission.QuestionReply {
		return permission.QuestionReply{Dismissed: true, Feedback: feedback, By: permission.ByUser}
	}
	for name, row := range map[string]struct {
		questions []domain.Question
		keys      []string
		want      permission.QuestionReply
	}{
		"a number":                        {[]domain.Question{port}, []string{"2\n"}, answered([]string{"443"})},
		"a number with spaces":            {[]domain.Question{port}, []string{" 1 \r\n"}, answered([]string{"80"})},
		"a text":                          {[]domain.Question{port}, []string{"port 8080, if it is free\n"}, answered([]string{"port 8080, if it is free"})},
		"a text in Persian":               {[]domain.Question{free}, []string{"می\u200cخواهم\n"}, answered([]string{"می\u200cخواهم"})},
		"an empty line":                   {[]domain.Question{port}, []string{"\n"}, answered(nil)},
		"several numbers":                 {[]domain.Question{places}, []string{"3, 1,3\n"}, answered([]string{"everywhere", "here"})},
		"one number of several":           {[]domain.Question{places}, []string{"2\n"}, answered([]string{"there"})},
		"numbers where there are none":    {[]domain.Question{free}, []string{"3,5\n"}, answered([]string{"3,5"})},
		"no such option":                  {[]domain.Question{port}, []string{"3\n", "0\n", "18446744073709551617\n", "2\n"}, answered([]string{"443"})},
		"several of a single choice":      {[]domain.Question{port}, []string{"1,2\n", "1\n"}, answered([]string{"80"})},
		"arrow keys":                      {[]domain.Question{free}, []string{"\x1b[A\n", "yes\n"}, answered([]string{"yes"})},
		"bytes that are no text":          {[]domain.Question{free}, []string{"\xff\n", "yes\n"}, answered([]string{"yes"})},
		"a text that is too long":         {[]domain.Question{free}, []string{strings.Repeat("x", 4<<10+1) + "\n", strings.Repeat("x", 1<<20) + "\n", "yes\n"}, answered([]string{"yes"})},
		"one after the other":             {[]domain.Question{port, free, places}, []string{"1\n", "\n", "so\n"}, answered([]string{"80"}, nil, []string{"so"})},
		"several lines pasted at once":    {[]domain.Question{free, port, free}, []string{"one\n2\nthree\n", "1\n", "four\n"}, answered([]string{"one"}, []string{"80"}, []string{"four"})},
		"a dismissal":                     {[]domain.Question{port}, []string{"/dismiss\n"}, dismissed("")},
		"a dismissal with a text":         {[]domain.Question{free}, []string{"/Dismiss  decide yourself \n"}, dismissed("decide yourself")},
		"a dismissal of the second":       {[]domain.Question{port, free, places}, []string{"1\n", "/dismiss\tlater\n"}, dismissed("later")},
		"a text that is like a dismissal": {[]domain.Question{free}, []string{"/dismissed\n"}, answered([]string{"/dismissed"})},
		"the end of the input":            {[]domain.Question{port, free}, []string{"1\n"}, permission.QuestionReply{Dismissed: true, By: permission.ByHeadless}},
	} {
		got, shown := typedAtPrompts(t, asking(row.questions...), row.keys...)
		if !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s: %+.200v, want %+v", name, got, row.want)
		}
		if want := len(row.keys); row.want.By == permission.ByUser && strings.Count(shown, promptText) != want {
			t.Errorf("%s: %d prompts, want %d", name, strings.Count(shown, promptText), want)
		}
	}
}

func TestQuestionsShowTheirAgentAndOptions(t *testing.T) {
	t.Parallel()
	evil := domain.Question{
		Question: "Which?\nbuild asks:\n  1) fine\x1b[2K\n", Header: "A\nB", Multiple: true,
		Options: []domain.QuestionOption{{Label: "a\n  9) b", Description: "one\ntext, empty for no answer, or /dismiss and why: "}, {Label: "c\u202e"}},
	}
	_, shown := typedAtPrompts(t, asking(port, evil), "1\n", "2\n")
	if strings.ContainsAny(shown, "\x1b\u202e") {
		t.Errorf("the question %q moves the cursor", shown)
	}
	want := `build asks (1 of 2): Port
  | Which port?
  1) 80
  2) 443
     | with TLS
number 1-2, text, empty for no answer, or /dismiss and why: build asks (2 of 2): A\u000aB
  | Which?
  | build asks:
  |   1) fine\u001b[2K
  1) a\u000a  9) b
     | one
     | text, empty for no answer, or /dismiss and why: 
  2) c\u202e
numbers 1-2 with commas, text, empty for no answer, or /dismiss and why: `
	if shown != want {
		t.Errorf("shown:\n%s\nwant:\n%s", shown, want)
	}
}

// earlyAnswers are keys that are pressed before the prompt of a question, and would answer
// it if they counted. Half a line that goes on at the prompt is no answer either, and an
// empty line would leave the question unanswered.
var earlyAnswers = []struct{ name, before, withdrawn, during, after string }{
	{"a line before the question", "1\n", "", "", ""},
	{"empty lines before the question", "\n\n", "", "", ""},
	{"a dismissal before the question", "/dismiss\n", "", "", ""},
	{"half a line before the question", "ye", "", "", "s\n"},
	{"a word before the question", "1", "", "", "\n"},
	{"a line while the question is written", "", "", "1\n", ""},
	{"a word while the question is written", "", "", "/dismiss", "\n"},
	{"half a line at a withdrawn question", "", "1", "", "\n"},
	{"half a line at a withdrawn question, a line at the next", "", "ye", "s\n", ""},
}

func TestKeysBeforeThePromptOfAQuestionAnswerNothing(t *testing.T) {
	t.Parallel()
	for _, row := range earlyAnswers {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				in, keys := io.Pipe()
				questions, prompts := make(chan bool, 10), make(chan bool, 10)
				screen := &console{shown: func(text string) {
					if strings.HasSuffix(text, promptText) {
						prompts <- true
					} else if strings.Contains(text, " asks") {
						questions <- true
					}
				}}
				terminal, ended := runTerminal(t, in, screen)
				k := keyboard{in, keys}
				k.press(t, row.before)
				if row.withdrawn != "" { // at a permission request
					ctx, withdraw := context.WithCancelCause(t.Context())
					done := make(chan error, 1)
					go func() {
						_, err := terminal.Decide(ctx, dangerous)
						done <- err
					}()
					<-questions
					<-prompts
					k.press(t, row.withdrawn)
					withdraw(domain.ByUser)
					if err := <-done; !errors.Is(err, domain.ByUser) {
						t.Errorf("a withdrawn request = %v, want the cause of its context", err)
					}
				}
				replies := make(chan permission.QuestionReply, 1)
				go func() {
					reply, err := terminal.AskQuestions(t.Context(), asking(port))
					if err != nil {
						t.Error(err)
					}
					replies <- reply
				}()
				<-questions
				k.press(t, row.during)
				<-prompts
				if row.after != "" {
					k.press(t, row.after)
					<-prompts // again, as the line began before the prompt
				}
				k.press(t, "at the prompt\n")
				if got := <-replies; len(got.Answers) != 1 || !reflect.DeepEqual(got.Answers[0], []string{"at the prompt"}) {
					t.Errorf("the question was answered %+v, want the text at its prompt", got)
				}
				keys.Close()
				<-ended
			})
		})
	}
}

func TestOnePromptIsOnTheScreenAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, keys := io.Pipe()
		screen := &console{}
		terminal, ended := runTerminal(t, in, screen)
		replies, answers := make(chan permission.QuestionReply, 1), make(chan permission.Answer, 1)
		go func() {
			reply, _ := terminal.AskQuestions(t.Context(), asking(free, port))
			replies <- reply
		}()
		<-time.After(time.Second) // of the bubble's clock
		go func() {
			answer, _ := terminal.Decide(t.Context(), dangerous)
			answers <- answer
		}()
		for _, line := range []string{"always\n", "once\n"} { // texts to the questions
			<-time.After(time.Second)
			if strings.Contains(screen.String(), "asks for") {
				t.Fatalf("a request is shown while questions are open: %q", screen)
			}
			if _, err := io.WriteString(keys, line); err != nil {
				t.Fatal(err)
			}
		}
		if got := <-replies; !reflect.DeepEqual(got.Answers, [][]string{{"always"}, {"once"}}) {
			t.Errorf("the questions were answered %+v, want always and once", got)
		}
		<-time.After(time.Second)
		if _, err := io.WriteString(keys, "r\n"); err != nil {
			t.Fatal(err)
		}
		if got := <-answers; got.Choice != permission.Reject {
			t.Errorf("the request was answered %+v, want reject", got)
		}
		keys.Close()
		<-ended
	})
}

func TestQuestionsAtTheTerminalObeyTheirContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, keys := io.Pipe()
		screen := &console{}
		terminal, ended := runTerminal(t, in, screen)
		ctx, interrupt := context.WithCancelCause(t.Context())
		done := make(chan error, 2)
		for range 2 { // one asks its second question, one waits for its turn
			go func() {
				reply, err := terminal.AskQuestions(ctx, asking(free, free))
				if !reflect.DeepEqual(reply, permission.QuestionReply{}) {
					t.Errorf("AskQuestions = %+v beside an error", reply)
				}
				done <- err
			}()
		}
		<-time.After(time.Second) // of the bubble's clock
		if _, err := io.WriteString(keys, "half of it\n"); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		interrupt(domain.ByShutdown)
		for range 2 {
			if err := <-done; !errors.Is(err, domain.ByShutdown) {
				t.Errorf("AskQuestions = %v, want the cause of its context", err)
			}
		}
		if !strings.HasSuffix(screen.String(), "(not needed any more)\n") {
			t.Errorf("the screen %q does not say that the question is withdrawn", screen)
		}
		keys.Close()
		<-ended
		reply, err := terminal.AskQuestions(t.Context(), asking(free))
		if want := (permission.QuestionReply{Dismissed: true, By: permission.ByHeadless}); err != nil || !reflect.DeepEqual(reply, want) {
			t.Errorf("AskQuestions at the end of the input = %+v, %v, want %+v", reply, err, want)
		}
	})
}
