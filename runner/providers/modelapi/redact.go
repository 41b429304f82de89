package modelapi

import (
	"encoding/json"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/secrets"
)

// A partRedactor removes the secrets of a Caller from the parts of one attempt.
type partRedactor struct {
	secrets        *secrets.Set
	text, thinking *secrets.Stream
	emit           func(runner.Part) bool
}

// newPartRedactor returns a redactor that passes the parts on to emit.
func newPartRedactor(set *secrets.Set, emit func(runner.Part) bool) *partRedactor {
	return &partRedactor{set, set.Stream(), set.Stream(), emit}
}

// add passes on a part without secrets. Text and thinking may stay in the redactor until
// the next part. An item with a secret is left out, because its server would refuse a
// changed one; and so is each item behind a text with a secret, because the item has its
// place in the text as the server sent it. add returns false if the reader of the parts
// stopped.
func (r *partRedactor) add(part runner.Part) bool {
	switch part := part.(type) {
	case runner.TextPart:
		return r.addThinking(r.thinking.Flush()) && r.addText(r.text.Write(string(part)))
	case runner.ThinkingPart:
		return r.addText(r.text.Flush()) && r.addThinking(r.thinking.Write(string(part)))
	}
	if !r.flush() {
		return false
	}
	switch part := part.(type) {
	case runner.CallPart:
		part.ID, part.Name = domain.CallID(r.secrets.Redact(string(part.ID))), r.secrets.Redact(part.Name)
		part.Input = r.document(part.Input)
		return r.emit(part)
	case runner.ProviderPart:
		if r.text.Found() || !slices.Equal(r.document(part.Data), part.Data) {
			return true
		}
	case runner.FinishPart:
		part.Reason, part.Model = r.secrets.Redact(part.Reason), r.secrets.Redact(part.Model)
		return r.emit(part)
	}
	return r.emit(part)
}

// flush passes on the text and the thinking that the redactor keeps.
func (r *partRedactor) flush() bool {
	return r.addThinking(r.thinking.Flush()) && r.addText(r.text.Flush())
}

func (r *partRedactor) addText(text string) bool {
	return text == "" || r.emit(runner.TextPart(text))
}

func (r *partRedactor) addThinking(text string) bool {
	return text == "" || r.emit(runner.ThinkingPart(text))
}

// document returns JSON without secrets in its strings and keys, however they are escaped,
// and elsewhere, which may make it invalid. A document without a secret stays as it is.
func (r *partRedactor) document(data json.RawMessage) json.RawMessage {
	if clean, found, err := r.secrets.RedactJSON(data); found && err == nil {
		data = clean
	}
	if clean := r.secrets.Redact(string(data)); clean != string(data) {
		return json.RawMessage(clean)
	}
	return data
}
