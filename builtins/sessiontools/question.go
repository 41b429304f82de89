package sessiontools

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed question.md
var questionDescription string

// questionArgs is the input of the tool question.
type questionArgs struct {
	Questions []domain.Question `json:"questions" jsonschema:"the questions, which the person answers together"`
}

// questionSchema is the patch of the input schema of question.
const questionSchema = `{"properties":{"questions":{"type":"array","minItems":1,"maxItems":10,"items":{"properties":{
	"question":{"pattern":"\\S","description":"the full question"},
	"header":{"description":"a title of a few words"},
	"multiple":{"description":"true: several options may be chosen"},
	"options":{"type":"array","maxItems":20,"description":"the proposed answers; the person may write another one","items":{"properties":{
		"label":{"pattern":"\\S","description":"the answer in 1 to 5 words"},
		"description":{"description":"what the choice means"}}}}}}}}}`

// questionResult is the output of the tool question.
type questionResult struct {
	// Answers has a list for each question, in order: labels of options, or one text of the
	// person. An empty list is an unanswered question.
	Answers [][]string `json:"answers"`
}

// A questionTool is the tool question.
type questionTool struct{ Config }

// tool returns the domain.Tool of question.
func (q questionTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[questionArgs, questionResult]{
		Description: questionDescription,
		Input:       domain.Constrained[questionArgs](questionSchema),
		Output:      domain.Constrained[questionResult](`{"properties":{"answers":{"type":"array","items":{"type":"array"}}}}`),
		Execute:     q.ask,
		Present:     presentAnswers,
		AsksFirst:   true,
		Available:   q.whereAsked(),
		Title:       titleQuestions,
	})
}

// titleQuestions returns the header or the text of the first question, and the number of
// the others.
func titleQuestions(in questionArgs) string {
	if len(in.Questions) == 0 {
		return ""
	}
	title := in.Questions[0].Header
	if strings.TrimSpace(title) == "" {
		title = in.Questions[0].Question
	}
	if others := len(in.Questions) - 1; others > 0 {
		title = fmt.Sprintf("%.150s and %s", title, count(others, "other question"))
	}
	return title
}

// ask executes one call. Questions over those limits of permission.QuestionRequest that
// the schema cannot express are a failure for the model.
func (q questionTool) ask(ctx context.Context, in questionArgs, inv domain.Invocation) (questionResult, error) {
	if err := q.Permission.Assert(ctx, inv, permission.Ask{Action: nameQuestion, Resources: everyResource}); err != nil {
		return questionResult{}, err
	}
	answers, err := q.Session.AskQuestions(ctx, inv, in.Questions)
	if errors.Is(err, permission.ErrBadQuestion) {
		return questionResult{}, domain.Fail("No question was asked: %v", err)
	}
	if err != nil {
		return questionResult{}, err
	}
	out := questionResult{Answers: [][]string{}}
	for _, answer := range answers {
		out.Answers = append(out.Answers, append([]string{}, answer...))
	}
	return out, nil
}

// presentAnswers renders each question with its answer for the model.
func presentAnswers(in questionArgs, out domain.Encoded[questionResult]) []domain.Content {
	r, err := out.Value()
	if err != nil {
		return nil
	}
	pairs := make([]string, len(in.Questions))
	for i, question := range in.Questions {
		answer := "Unanswered"
		if i < len(r.Answers) && len(r.Answers[i]) > 0 {
			answer = strings.Join(r.Answers[i], ", ")
		}
		pairs[i] = fmt.Sprintf(`"%s"="%s"`, question.Question, answer)
	}
	return []domain.Content{domain.Text(fmt.Sprintf(
		"User has answered your questions: %s. You can now continue with the user's answers in mind.", strings.Join(pairs, ", ")))}
}
