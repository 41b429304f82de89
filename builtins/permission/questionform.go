package permission

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
)

// AskQuestions asks the person the questions of r one after the other, each with a prompt of
// its own. The answer to a question is the number of an option, several numbers with commas
// between them if the question has multiple choice, or a text. An empty line leaves a
// question unanswered. The word /dismiss, alone or before a text for the model, dismisses all
// questions of r, and so does an end of file typed at a terminal device. After an invalid
// line AskQuestions prompts again. It returns the cause of ctx if ctx ends first.
func (t *Terminal) AskQuestions(ctx context.Context, r QuestionRequest) (QuestionReply, error) {
	reply := QuestionReply{By: ByUser}
	err := t.occupy(ctx, func() error {
		for i, q := range r.Questions {
			parse := func(line string) (formAnswer, bool) { return parseFormAnswer(q, line) }
			answer, answered, err := askLine(ctx, t, renderForm(r, i), formPrompt(q), parse)
			switch {
			case err != nil:
				return err
			case !answered:
				reply = QuestionReply{Dismissed: true, By: ByHeadless}
				return nil
			case answer.dismissed:
				reply = QuestionReply{Dismissed: true, Feedback: answer.feedback, By: ByUser}
				return nil
			}
			reply.Answers = append(reply.Answers, answer.choices)
		}
		return nil
	})
	switch {
	case err != nil:
		return QuestionReply{}, err
	case !reply.Dismissed && len(reply.Answers) == 0: // the input had ended before
		return QuestionReply{Dismissed: true, By: ByHeadless}, nil
	}
	return reply, nil
}

// A formAnswer is the answer to one question at a terminal.
type formAnswer struct {
	choices   []string // labels, or one text; empty: unanswered
	dismissed bool     // all questions of the request are dismissed
	feedback  string   // with dismissed: text for the model
}

// dismissWord is the word that dismisses questions.
const dismissWord = "/dismiss"

// parseFormAnswer parses a line as the answer to q, and returns false for an invalid line.
// If q has options, a line of numbers is a choice and never a text, because a wrong number
// is a typing mistake.
func parseFormAnswer(q domain.Question, line string) (formAnswer, bool) {
	if line == endOfFile {
		return formAnswer{dismissed: true}, true
	}
	text := strings.TrimSpace(line)
	if !isTypedText(text) {
		return formAnswer{}, false
	}
	if word, feedback := cutWord(text); strings.EqualFold(word, dismissWord) {
		return formAnswer{dismissed: true, feedback: feedback}, true
	}
	if text == "" {
		return formAnswer{}, true
	}
	if numbers, ok := parseNumbers(text); ok && len(q.Options) > 0 {
		choices, ok := chooseOptions(q, numbers)
		return formAnswer{choices: choices}, ok
	}
	return formAnswer{choices: []string{text}}, true
}

// isTypedText reports whether a text is a valid answer: UTF-8, at most maxText bytes, and
// without control characters except tabs. The codes of arrow keys contain control
// characters.
func isTypedText(text string) bool {
	return len(text) <= maxText && utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return r != '\t' && unicode.IsControl(r) })
}

// parseNumbers parses numbers with commas between them. It returns false for any other text.
// A number that is too large for an int becomes 0, which numbers no option.
func parseNumbers(text string) ([]int, bool) {
	var numbers []int
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" || strings.Trim(part, "0123456789") != "" {
			return nil, false
		}
		n, err := strconv.Atoi(part)
		if err != nil {
			n = 0
		}
		numbers = append(numbers, n)
	}
	return numbers, true
}

// chooseOptions returns the labels of the options with these numbers, each once, in the order
// of the numbers. It returns false if an option does not exist, or for several numbers if q
// has no multiple choice.
func chooseOptions(q domain.Question, numbers []int) ([]string, bool) {
	var labels []string
	for _, n := range numbers {
		if n < 1 || n > len(q.Options) {
			return nil, false
		}
		if label := q.Options[n-1].Label; !slices.Contains(labels, label) {
			labels = append(labels, label)
		}
	}
	return labels, q.Multiple || len(numbers) == 1
}

// formPrompt returns the prompt of a question.
func formPrompt(q domain.Question) string {
	const rest = "text, empty for no answer, or " + dismissWord + " and why: "
	switch {
	case len(q.Options) == 0:
		return rest
	case q.Multiple:
		return fmt.Sprintf("numbers 1-%d with commas, %s", len(q.Options), rest)
	}
	return fmt.Sprintf("number 1-%d, %s", len(q.Options), rest)
}

// renderForm renders question i of r. It puts a bar before each line of the question and
// of a description, so that the text of a model cannot imitate a line of the form or move
// the cursor.
func renderForm(r QuestionRequest, i int) string {
	q := r.Questions[i]
	var b strings.Builder
	fmt.Fprintf(&b, "%s asks", escape(string(r.Invocation.Agent)))
	if len(r.Questions) > 1 {
		fmt.Fprintf(&b, " (%d of %d)", i+1, len(r.Questions))
	}
	b.WriteString(":")
	if q.Header != "" {
		fmt.Fprintf(&b, " %s", escape(q.Header))
	}
	b.WriteString("\n")
	writeBarred(&b, "  | ", q.Question)
	for n, option := range q.Options {
		fmt.Fprintf(&b, "  %d) %s\n", n+1, escape(option.Label))
		if option.Description != "" {
			writeBarred(&b, "     | ", option.Description)
		}
	}
	return b.String()
}

// writeBarred writes each line of a text after a bar.
func writeBarred(b *strings.Builder, bar, text string) {
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		fmt.Fprintf(b, "%s%s\n", bar, escape(line))
	}
}
