package toolfiles

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// An answerLine is one line that a program writes. Exactly one field is set.
type answerLine struct {
	Progress jsontext.Value `json:"progress"`
	Ask      *askLine       `json:"ask"`
	Output   jsontext.Value `json:"output"`
	Failure  *string        `json:"failure"`
}

// An askLine is a permission question of a program.
type askLine struct {
	Action    string   `json:"action"`
	Resources []string `json:"resources"`
	Save      []string `json:"save"`
	Preview   string   `json:"preview"`
}

// maxResources bounds the resources, and the save patterns, of one question.
const maxResources = 100

// parseAnswer decodes one line of a program. It returns an error for a line that is not
// exactly one of progress, ask, output and failure.
func parseAnswer(line []byte) (a answerLine, err error) {
	if err := json.Unmarshal(line, &a, json.RejectUnknownMembers(true)); err != nil {
		return answerLine{}, err
	}
	set := 0
	for _, is := range []bool{len(a.Progress) > 0, a.Ask != nil, len(a.Output) > 0, a.Failure != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		return answerLine{}, fmt.Errorf("it has %d of the keys progress, ask, output and failure, and must have one", set)
	}
	if a.Ask != nil {
		return a, a.Ask.check()
	}
	return a, nil
}

// check returns an error for a question that names no action or resource, or too many.
func (a *askLine) check() error {
	switch {
	case strings.TrimSpace(a.Action) == "":
		return errors.New("ask.action is missing or blank")
	case len(a.Resources) == 0:
		return errors.New("ask.resources is missing or empty")
	case len(a.Resources) > maxResources || len(a.Save) > maxResources:
		return fmt.Errorf("ask has more than %d resources or save patterns", maxResources)
	}
	for _, text := range append(append([]string{}, a.Resources...), a.Save...) {
		if text == "" {
			return errors.New("ask has an empty resource or save pattern")
		}
	}
	return nil
}

// isResult reports whether the line ends the answer of a program.
func (a answerLine) isResult() bool { return len(a.Output) > 0 || a.Failure != nil }
