package domain

// A Question is a question of a tool to a person, with the answers to choose from.
type Question struct {
	// Question is the full text.
	Question string `json:"question"`
	// Header is a short title. It may be empty.
	Header string `json:"header,omitempty"`
	// Options are the proposed answers. The person may give another one. Empty: the
	// answer is free text.
	Options []QuestionOption `json:"options,omitempty"`
	// Multiple allows more than one option.
	Multiple bool `json:"multiple,omitempty"`
}

// A QuestionOption is a proposed answer to a Question.
type QuestionOption struct {
	// Label is the answer. Labels of one question differ.
	Label string `json:"label"`
	// Description explains the answer. It may be empty.
	Description string `json:"description,omitempty"`
}

// A Todo is one entry of the list of tasks that an agent keeps in a session.
type Todo struct {
	Content string `json:"content"`
	// Status is pending, in_progress, completed or cancelled.
	Status string `json:"status" codec:"intern"`
	// Priority is high, medium or low.
	Priority string `json:"priority" codec:"intern"`
}
