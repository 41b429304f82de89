package sessiontools

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
)

// batchResult is the output of the tool batch.
type batchResult struct {
	Results []batchedResult `json:"results"` // in the order of the calls
}

// A batchedResult is the end of one call of a batch, as the model reads it.
type batchedResult struct {
	Call    string         `json:"call"` // the ID that the session gave the call
	Tool    string         `json:"tool"`
	Outcome string         `json:"outcome"`
	Text    string         `json:"text"`
	Media   []batchedMedia `json:"media,omitempty"`
}

// A batchedMedia is a domain.Media of a result.
type batchedMedia struct {
	MIME string `json:"mime"`
	Name string `json:"name,omitempty"`
	Data []byte `json:"data"`
}

// maxBatchMedia is the maximum size of all media of a batch in base64: the default limit of
// one call.
const maxBatchMedia = 5 << 20

// newBatchResult returns the output for the settlements of calls. The text of each result is
// bounded by its own settlement. Media over maxBatchMedia are replaced by a note.
func newBatchResult(calls []domain.Call, ends []domain.Settlement) batchResult {
	out := batchResult{Results: make([]batchedResult, len(calls))}
	room := maxBatchMedia
	for i, end := range ends {
		result := end.ToolResult()
		r := batchedResult{Call: string(calls[i].ID), Tool: calls[i].Name, Outcome: end.Outcome.String(), Text: resultText(result)}
		for _, m := range result.Content.Media() {
			size := base64.StdEncoding.EncodedLen(len(m.Data))
			if size > room {
				r.Text += fmt.Sprintf("\n(%s of %d bytes left out: the media of a batch have at most %d bytes in base64; call the tool alone)", m.MIME, len(m.Data), maxBatchMedia)
				continue
			}
			room -= size
			r.Media = append(r.Media, batchedMedia(m))
		}
		out.Results[i] = r
	}
	return out
}

// resultText returns the text of a tool result without its media.
func resultText(r domain.ToolResult) string {
	switch {
	case r.Error != "":
		return r.Error
	case r.Structured != nil:
		return indent(r.Structured)
	case r.Content != nil:
		return r.Content.Text()
	}
	return r.Text
}

// presentBatch renders the results for the model: how each call ended, then the numbered
// texts, then the media. The list of outcomes comes first, so that it stays in the preview
// of an output over the limits.
func presentBatch(_ batchArgs, out domain.Encoded[batchResult]) []domain.Content {
	batch, err := out.Value()
	if err != nil {
		return nil
	}
	var ends, texts strings.Builder
	var media []domain.Content
	succeeded := 0
	for i, r := range batch.Results {
		if r.Outcome == domain.Succeeded.String() {
			succeeded++
		}
		fmt.Fprintf(&ends, "%d. %s: %s\n", i+1, r.Tool, r.Outcome)
		fmt.Fprintf(&texts, "\n[%d] %s\n%s\n", i+1, r.Tool, orNoText(strings.TrimRight(r.Text, "\n")))
		for _, m := range r.Media {
			media = append(media, domain.Media(m))
			fmt.Fprintf(&texts, "(%s is attachment %d)\n", m.MIME, len(media))
		}
	}
	text := fmt.Sprintf("%d of %s succeeded.\n%s%s", succeeded, count(len(batch.Results), "call"), ends.String(), texts.String())
	return append([]domain.Content{domain.Text(text)}, media...)
}

// orNoText returns a text, or a note in place of a blank one.
func orNoText(text string) string {
	if strings.TrimSpace(text) == "" {
		return "(no text)"
	}
	return text
}
