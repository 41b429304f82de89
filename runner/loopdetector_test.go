package runner

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// asks appends a reply of one call to a session.
func asks(s *conversation.State, id, input string) {
	call := domain.Call{ID: domain.CallID(id), Name: "write", Input: json.RawMessage(input)}
	s.Messages = append(s.Messages, conversation.Message{
		ID: domain.MessageID{}, Reply: &conversation.Reply{Calls: []conversation.ReplyCall{{Call: call}}},
	})
}

// The detector reads the inputs of new calls only. The test destroys earlier inputs,
// which the detector must not notice.
func TestALoopDetectorReadsEachInputOnce(t *testing.T) {
	t.Parallel()
	s, l := &conversation.State{}, newLoopDetector(DefaultRounds)
	for i := range 3 {
		asks(s, fmt.Sprint(i), `{"text": "again"}`)
		l.advance(s)
		clear(s.Messages[i].Reply.Calls[0].Input)
		s.Messages[i].Reply = nil
	}
	if found, ok := l.found[messageCall{call: "2"}]; !ok || len(l.found) != 1 || found.Period != 1 {
		t.Errorf("found %+v, want the third call alone", l.found)
	}
}

// Inputs that differ only in the order of their keys are equal calls.
func TestALoopIsOfCanonicalInputs(t *testing.T) {
	t.Parallel()
	s, l := &conversation.State{}, newLoopDetector(DefaultRounds)
	asks(s, "0", `{"a":1,"b":2}`)
	asks(s, "1", `{ "b":2, "a":1.0 }`)
	asks(s, "2", `{"b":2,"a":1}`)
	l.advance(s)
	if len(l.found) != 1 {
		t.Errorf("found %+v, want one", l.found)
	}
}

// A prompt of a parent agent does not reset the detector.
func TestAPromptOfAnAgentEndsNoCount(t *testing.T) {
	t.Parallel()
	for _, parent := range []domain.SessionID{{}, domain.NewMint(time.Now, rand.Reader).Session()} {
		s, l := &conversation.State{Parent: parent}, newLoopDetector(DefaultRounds)
		for i := range 3 {
			s.Messages = append(s.Messages, conversation.Message{Prompt: &conversation.Prompt{Text: "go on"}})
			asks(s, fmt.Sprint(i), `{}`)
		}
		l.advance(s)
		if loop := len(l.found) == 1; loop == parent.IsZero() {
			t.Errorf("with the parent %s, found %+v", parent, l.found)
		}
	}
}

// BenchmarkLoopDetection takes steps of one call of 30 KB each. The time of a step does
// not grow with the earlier steps.
func BenchmarkLoopDetection(b *testing.B) {
	text := make([]byte, 30<<10)
	for i := range text {
		text[i] = 'x'
	}
	for _, steps := range []int{40, 160, 640} {
		b.Run(fmt.Sprint(steps, " steps"), func(b *testing.B) {
			for b.Loop() {
				s, l := &conversation.State{}, newLoopDetector(DefaultRounds)
				for i := range steps {
					asks(s, fmt.Sprint(i), fmt.Sprintf(`{"n":%d,"text":"%s"}`, i, text))
					l.advance(s)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*steps), "us/step")
		})
	}
}
