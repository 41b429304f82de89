package mcp

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/settlement-ledger/ledger/domain"
)

// A callRefusal is why a question of a server was not answered.
type callRefusal struct {
	mu    sync.Mutex
	state refusalState
}

// A refusalState has the first refusal of a call.
type refusalState struct {
	// err is the *domain.Declined or *domain.Denied of a person or a rule. It ends the call
	// unless the call succeeds.
	err error
	// note is a sentence for the model.
	note string
}

// set keeps the first refusal.
func (r *callRefusal) set(err error, note string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.err == nil {
		r.state.err = err
	}
	if r.state.note == "" && note != "" {
		r.state.note = "\n[" + note + "]"
	}
}

// get returns the first refusal.
func (r *callRefusal) get() refusalState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// elicitRequest answers a request elicitation/create. The protocol does not say for which
// call the server asks, so exactly one call must be open.
func (c *connection) elicitRequest(ctx context.Context, params stdjson.RawMessage) (any, error) {
	c.mu.Lock()
	open := slices.Collect(maps.Values(c.mu.calls))
	c.mu.Unlock()
	if len(open) != 1 {
		note := fmt.Sprintf("The server asked a question while %d calls were open, so the question belongs to no call and was not asked. "+
			`Set "concurrency": 1 for a server that asks questions.`, len(open))
		for _, o := range open {
			o.refusal.set(nil, note)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: note}
	}
	return open[0].elicit(ctx, jsontext.Value(params))
}

// answerInputs answers the requests for input in a result, in the order of their names.
func (o *remoteCall) answerInputs(raw jsontext.Value) (sdk.InputResponseMap, error) {
	var requests map[string]struct {
		Method string         `json:"method"`
		Params jsontext.Value `json:"params"`
	}
	if raw != nil {
		if err := json.Unmarshal(raw, &requests, jsontext.AllowInvalidUTF8(true)); err != nil {
			return nil, errors.New("its inputRequests are broken")
		}
	}
	if len(requests) > maxInputs {
		return nil, fmt.Errorf("it asks for more than %d inputs at once", maxInputs)
	}
	responses := sdk.InputResponseMap{}
	for _, key := range slices.Sorted(maps.Keys(requests)) {
		r := requests[key]
		switch r.Method {
		case "elicitation/create":
			answer, err := o.elicit(o.ctx, r.Params)
			if err != nil {
				return nil, err
			}
			responses[key] = answer
		case "roots/list":
			responses[key] = o.connection.rootList()
		default:
			return nil, fmt.Errorf("it asks for %.100q, which this client does not do", r.Method)
		}
	}
	return responses, nil
}

// An elicitation is the parameters of elicitation/create.
type elicitation struct {
	Mode    string         `json:"mode"`
	Message string         `json:"message"`
	Schema  jsontext.Value `json:"requestedSchema"`
	URL     string         `json:"url"`
}

// The limits of questions.
const (
	// maxInputs is the number of requests for input in one result.
	maxInputs = 10
	// maxFields is the number of fields of one form.
	maxFields = 30
	// maxQuestions is the number of questions that a person is asked at once.
	maxQuestions = 10
)

// elicit asks a person the questions of a form. A person who dismisses them declines, and
// the call then ends as refused unless the server returns an output in spite of it. It
// returns an error for the server if the form cannot be asked.
func (o *remoteCall) elicit(ctx context.Context, params jsontext.Value) (*sdk.ElicitResult, error) {
	refuse := func(format string, args ...any) (*sdk.ElicitResult, error) {
		reason := fmt.Sprintf(format, args...)
		o.refusal.set(nil, fmt.Sprintf("A question of the MCP server %s was not asked: %s.", o.tool.server.config.Name, o.tool.server.clean.line(reason, 1000)))
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: reason}
	}
	var e elicitation
	if err := json.Unmarshal(params, &e, jsontext.AllowInvalidUTF8(true)); err != nil {
		return refuse("its parameters are broken")
	}
	if e.Mode != "" && e.Mode != "form" || e.URL != "" {
		return refuse("this client asks forms only and opens no web address (%s)", e.URL)
	}
	fields, err := formFields(e.Schema)
	if err != nil {
		return refuse("%v", err)
	}
	ask := o.connection.at.Questions
	if ask == nil {
		return refuse("no person can be asked here")
	}
	o.clock.pause()
	defer o.clock.resume()
	asking, cancel := context.WithCancelCause(o.ctx)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	defer cancel(nil)
	var answers [][]string
	for questions := range slices.Chunk(o.questions(e.Message, fields), maxQuestions) {
		var some [][]string
		if some, err = ask.AskQuestions(asking, o.inv, questions); err != nil {
			break
		}
		answers = append(answers, some...)
	}
	_, declined := errors.AsType[*domain.Declined](err)
	_, denied := errors.AsType[*domain.Denied](err)
	switch {
	case declined:
		o.refusal.set(err, "")
		return &sdk.ElicitResult{Action: "decline"}, nil
	case denied:
		o.refusal.set(err, "")
		return &sdk.ElicitResult{Action: "cancel"}, nil
	case asking.Err() != nil:
		return nil, context.Cause(asking)
	case err != nil:
		return refuse("%v", err)
	}
	return o.formAnswer(fields, answers)
}

// A formField is one property of a form.
type formField struct {
	Name        string         `json:"-"`
	Type        string         `json:"type"`
	Title       string         `json:"title"`
	Description string         `json:"description"`
	Enum        []string       `json:"enum"`
	EnumNames   []string       `json:"enumNames"`
	OneOf       []titledChoice `json:"oneOf"`
	Items       *struct {
		Enum  []string       `json:"enum"`
		AnyOf []titledChoice `json:"anyOf"`
	} `json:"items"`
	// Default is the value that stands for no answer. Nil: there is none.
	Default  jsontext.Value `json:"default"`
	required bool
}

// A titledChoice is one value of a list with titles.
type titledChoice struct {
	Const string `json:"const"`
	Title string `json:"title"`
}

// choices returns the values to choose from with their titles.
func (f formField) choices() []titledChoice {
	enum, titled := f.Enum, f.OneOf
	if f.Type == "array" && f.Items != nil {
		enum, titled = f.Items.Enum, f.Items.AnyOf
	}
	if f.Type == "boolean" {
		return []titledChoice{{"true", "yes"}, {"false", "no"}}
	}
	for i, value := range enum {
		c := titledChoice{Const: value, Title: value}
		if i < len(f.EnumNames) {
			c.Title = f.EnumNames[i]
		}
		titled = append(titled, c)
	}
	return titled
}

// formFields returns the fields of a form in the order of their names. A form without
// fields has one field, whose name is empty, for the agreement.
func formFields(schema jsontext.Value) ([]formField, error) {
	var form struct {
		Type       string               `json:"type"`
		Properties map[string]formField `json:"properties"`
		Required   []string             `json:"required"`
	}
	if schema != nil {
		if err := json.Unmarshal(schema, &form, jsontext.AllowInvalidUTF8(true)); err != nil {
			return nil, errors.New("its requestedSchema is no form")
		}
	}
	if len(form.Properties) > maxFields {
		return nil, fmt.Errorf("its form has more than %d fields", maxFields)
	}
	var fields []formField
	for _, name := range slices.Sorted(maps.Keys(form.Properties)) {
		f := form.Properties[name]
		f.Name, f.required = name, slices.Contains(form.Required, name)
		switch f.Type {
		case "string", "number", "integer", "boolean":
		case "array":
			if len(f.choices()) == 0 {
				return nil, fmt.Errorf("the field %.100q is a list without choices", name)
			}
		default:
			return nil, fmt.Errorf("the field %.100q has the type %.50q, which a form cannot ask", name, f.Type)
		}
		fields = append(fields, f)
	}
	if len(fields) == 0 {
		fields = []formField{{Type: "boolean", Title: "Agree?", required: true}}
	}
	return fields, nil
}

// questions returns the questions of a form, with the message of the server before the
// first one.
func (o *remoteCall) questions(message string, fields []formField) []domain.Question {
	clean, server := o.tool.server.clean, o.tool.server.config.Name
	var all []domain.Question
	for i, f := range fields {
		var b strings.Builder
		if i == 0 {
			fmt.Fprintf(&b, "The MCP server %s asks: %s\n", server, message)
		}
		name := f.Title
		if name == "" {
			name = f.Name
		}
		b.WriteString(name)
		if f.Description != "" {
			b.WriteString(": " + f.Description)
		}
		if _, ok := f.fallback(); ok {
			fmt.Fprintf(&b, " (if left empty: %s)", f.Default)
		} else if !f.required {
			b.WriteString(" (may be left empty)")
		}
		q := domain.Question{Question: clean.line(b.String(), 3000), Header: clean.line("MCP "+server, 100), Multiple: f.Type == "array"}
		for _, choice := range f.choices() {
			option := domain.QuestionOption{Label: clean.line(choice.Const, 200)}
			if choice.Title != choice.Const {
				option.Description = clean.line(choice.Title, 500)
			}
			q.Options = append(q.Options, option)
		}
		all = append(all, q)
	}
	return all
}

// formAnswer returns the answers of a person as the content of a form.
func (o *remoteCall) formAnswer(fields []formField, answers [][]string) (*sdk.ElicitResult, error) {
	content := map[string]any{}
	for i, f := range fields {
		var answer []string
		if i < len(answers) {
			answer = answers[i]
		}
		if len(answer) == 0 {
			if value, ok := f.fallback(); ok {
				content[f.Name] = value
				continue
			}
			if f.required {
				o.refusal.set(nil, fmt.Sprintf("The person left the question %q of the MCP server unanswered.", f.Name))
				return &sdk.ElicitResult{Action: "cancel"}, nil
			}
			continue
		}
		value, err := f.value(answer)
		if err != nil {
			o.refusal.set(nil, fmt.Sprintf("The answer of the person to %q %v.", f.Name, err))
			return &sdk.ElicitResult{Action: "cancel"}, nil
		}
		if f.Name == "" {
			if value == false {
				o.refusal.set(&domain.Declined{Feedback: "The person did not agree to the question of the MCP server."}, "")
				return &sdk.ElicitResult{Action: "decline"}, nil
			}
			continue
		}
		content[f.Name] = value
	}
	return &sdk.ElicitResult{Action: "accept", Content: content}, nil
}

// fallback returns the default of the field, which stands for no answer. It returns false
// if the field has no default of its type.
func (f formField) fallback() (any, bool) {
	var answer []string
	switch kind := f.Default.Kind(); {
	case f.Type == "array" && kind == '[':
		if json.Unmarshal(f.Default, &answer) != nil {
			return nil, false
		}
	case f.Type == "string" && kind == '"':
		answer = make([]string, 1)
		if json.Unmarshal(f.Default, &answer[0]) != nil {
			return nil, false
		}
	case f.Type == "boolean" && (kind == 't' || kind == 'f'), (f.Type == "integer" || f.Type == "number") && kind == '0':
		answer = []string{string(f.Default)}
	default:
		return nil, false
	}
	value, err := f.value(answer)
	return value, err == nil
}

// value returns an answer in the type of the field.
func (f formField) value(answer []string) (any, error) {
	text := strings.Join(answer, ", ")
	choices := f.choices()
	switch f.Type {
	case "array":
		var all []string
		for _, a := range answer {
			value, ok := choose(choices, a)
			if !ok {
				return nil, errors.New("is none of the choices")
			}
			all = append(all, value)
		}
		return all, nil
	case "boolean":
		switch strings.ToLower(text) {
		case "true", "yes", "y":
			return true, nil
		case "false", "no", "n":
			return false, nil
		}
		return nil, errors.New("is neither yes nor no")
	case "integer":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, errors.New("is no integer")
		}
		return n, nil
	case "number":
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return nil, errors.New("is no number")
		}
		return n, nil
	}
	if len(choices) == 0 {
		return text, nil
	}
	value, ok := choose(choices, text)
	if !ok {
		return nil, errors.New("is none of the choices")
	}
	return value, nil
}

// choose returns the value that an answer names by itself or by its title.
func choose(choices []titledChoice, answer string) (string, bool) {
	for _, c := range choices {
		if c.Const == answer {
			return c.Const, true
		}
	}
	for _, c := range choices {
		if c.Title == answer {
			return c.Const, true
		}
	}
	return "", false
}
