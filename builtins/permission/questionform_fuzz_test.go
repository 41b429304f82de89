package permission

import (
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// FuzzFormAnswer checks that each line that the terminal accepts as an answer is one that the
// gate accepts too, and that no accepted text has control characters.
func FuzzFormAnswer(f *testing.F) {
	for _, line := range []string{"", " ", "1", "2,1", "1,1", "3", "99999999999999999999", ",", "/dismiss", "/dismiss why", "/DISMISS\tx", "why\r", "\x04", "\x18", "\x1b[A", "\xff", "é\u200c", strings.Repeat("x", maxText+1)} {
		f.Add(line, uint8(2), true)
		f.Add(line, uint8(0), false)
	}
	f.Fuzz(func(t *testing.T, line string, options uint8, multiple bool) {
		q := domain.Question{Question: "?", Multiple: multiple}
		for i := range options % (maxOptions + 1) {
			q.Options = append(q.Options, domain.QuestionOption{Label: strings.Repeat("a", int(i)+1)})
		}
		answer, ok := parseFormAnswer(q, line)
		if !ok {
			return
		}
		reply := QuestionReply{Answers: [][]string{answer.choices}, By: ByUser}
		if answer.dismissed {
			reply = QuestionReply{Dismissed: true, Feedback: answer.feedback, By: ByUser}
		}
		if err := reply.check(QuestionRequest{Questions: []domain.Question{q}}); err != nil {
			t.Errorf("the line %q is accepted as %+v, which the gate refuses: %v", line, answer, err)
		}
		for _, text := range append(answer.choices, answer.feedback) {
			if strings.ContainsAny(text, "\x00\x04\x18\x1b\r\n\x7f") {
				t.Errorf("the line %q is accepted as %q, with control characters", line, text)
			}
		}
	})
}
