package permission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
)

// ErrBadQuestion says that questions are outside the limits of a QuestionRequest.
var ErrBadQuestion = errors.New("invalid question")

// The limits of the questions that a call asks at once, and of their answers.
const (
	maxQuestions = 10
	maxOptions   = 20
	maxText      = 4 << 10  // bytes of a question, header, label, description, feedback or answer
	maxTexts     = 32 << 10 // bytes of all texts of a request
)

// A QuestionRequest has the questions that a call asks a person, with an ID. It has 1 to 10
// questions, each with a text and at most 20 options, whose labels are distinct and not
// empty. No text has more than 4 KiB, and all texts together have at most 32 KiB.
type QuestionRequest struct {
	ID         domain.PermissionID
	Invocation domain.Invocation
	Questions  []domain.Question
}

// A QuestionReply is the reply of a Questioner to a QuestionRequest.
type QuestionReply struct {
	// Answers has the answer to each question, in order: the labels of the chosen options,
	// or one text of the person. An empty list means that the person left the question
	// unanswered. It is nil if Dismissed is set.
	Answers   [][]string
	Dismissed bool      // the person answers none of the questions, or there is no person
	Feedback  string    // with Dismissed: text for the model; may be empty
	By        Authority // ByUser, or ByHeadless with Dismissed
}

// A Questioner answers questions. AskQuestions blocks until all are answered or dismissed. If
// its context ends first, AskQuestions returns the cause. A Questioner is safe for concurrent
// use and does not retain a request after AskQuestions returned.
type Questioner interface {
	AskQuestions(context.Context, QuestionRequest) (QuestionReply, error)
}

// A QuestionResult is the recorded result of a QuestionRequest.
type QuestionResult struct {
	ID         domain.PermissionID
	Invocation domain.Invocation
	QuestionReply
	Waited time.Duration // from the question to its answer
	Person string        // with ByUser: the person who answered; empty: not known
}

// checkQuestions returns an ErrBadQuestion that names the first fault of questions.
func checkQuestions(questions []domain.Question) error {
	if len(questions) < 1 || len(questions) > maxQuestions {
		return fmt.Errorf("%w: %d questions: ask 1 to %d", ErrBadQuestion, len(questions), maxQuestions)
	}
	total := 0
	for i, q := range questions {
		size, err := checkQuestion(q)
		if err != nil {
			return fmt.Errorf("%w %d: %w", ErrBadQuestion, i+1, err)
		}
		if total += size; total > maxTexts {
			return fmt.Errorf("%w: more than %d bytes of text: shorten the questions or ask fewer", ErrBadQuestion, maxTexts)
		}
	}
	return nil
}

// checkQuestion returns the number of bytes of the texts of a question, or its first fault.
func checkQuestion(q domain.Question) (size int, err error) {
	if strings.TrimSpace(q.Question) == "" {
		return 0, errors.New("there is no text: say what the person is asked")
	}
	if len(q.Options) > maxOptions {
		return 0, fmt.Errorf("%d options: offer at most %d", len(q.Options), maxOptions)
	}
	texts := []string{q.Question, q.Header}
	labels := map[string]bool{}
	for i, option := range q.Options {
		switch label := strings.TrimSpace(option.Label); {
		case label == "":
			return 0, fmt.Errorf("option %d has no label", i+1)
		case labels[label]:
			return 0, fmt.Errorf("option %d repeats the label %q", i+1, label)
		default:
			labels[label] = true
		}
		texts = append(texts, option.Label, option.Description)
	}
	for _, text := range texts {
		if err := checkText(text); err != nil {
			return 0, err
		}
		size += len(text)
	}
	return size, nil
}

// checkText returns an error for a text that is too long or is not UTF-8.
func checkText(text string) error {
	if len(text) > maxText {
		return fmt.Errorf("a text of %d bytes: use at most %d", len(text), maxText)
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("a text is not UTF-8: %.40q", text)
	}
	return nil
}

// check returns an ErrInvalidValue that names the first fault if the reply does not fit r.
func (q QuestionReply) check(r QuestionRequest) error {
	if q.By != ByUser && (q.By != ByHeadless || !q.Dismissed) {
		return fmt.Errorf("%w: reply by %s: only a user answers a question", ErrInvalidValue, q.By)
	}
	if err := checkText(q.Feedback); err != nil {
		return fmt.Errorf("%w: feedback: %w", ErrInvalidValue, err)
	}
	if q.Dismissed {
		return nil
	}
	if len(q.Answers) != len(r.Questions) {
		return fmt.Errorf("%w: %d answers to %d questions", ErrInvalidValue, len(q.Answers), len(r.Questions))
	}
	for i, answer := range q.Answers {
		if err := checkAnswer(r.Questions[i], answer); err != nil {
			return fmt.Errorf("%w: answer %d: %w", ErrInvalidValue, i+1, err)
		}
	}
	return nil
}

// checkAnswer returns an error for an answer that does not fit a question. No choice may
// be empty, repeated or too long. Several choices must be labels of a question with
// multiple choice.
func checkAnswer(q domain.Question, answer []string) error {
	for i, choice := range answer {
		isLabel := slices.ContainsFunc(q.Options, func(o domain.QuestionOption) bool { return o.Label == choice })
		switch {
		case strings.TrimSpace(choice) == "":
			return errors.New("it has an empty text: give an empty list to leave a question unanswered")
		case len(answer) > 1 && (!q.Multiple || !isLabel):
			return fmt.Errorf("%d choices: give one, or several labels to a question with multiple choice", len(answer))
		case slices.Contains(answer[:i], choice):
			return fmt.Errorf("it repeats %q", choice)
		}
		if err := checkText(choice); err != nil {
			return err
		}
	}
	return nil
}
