package transcripts

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A record is one line of a session file, as far as it is read. What has
// another type than it should is taken as absent.
type record struct {
	Type          text            `json:"type"`
	UUID          text            `json:"uuid"`
	Parent        text            `json:"parentUuid"`
	Session       text            `json:"sessionId"`
	Timestamp     text            `json:"timestamp"`
	Request       text            `json:"requestId"`
	Agent         text            `json:"agentId"`
	CWD           text            `json:"cwd"`
	Sidechain     flag            `json:"isSidechain"`
	Meta          flag            `json:"isMeta"`
	Summary       flag            `json:"isCompactSummary"`
	OnlyShown     flag            `json:"isVisibleInTranscriptOnly"`
	Title         text            `json:"summary"`
	Message       json.RawMessage `json:"message"`
	ToolUseResult json.RawMessage `json:"toolUseResult"`
	ToolUse       text            `json:"toolUseID"`
	ParentToolUse text            `json:"parentToolUseID"`
	Version       text            `json:"version"`
	Branch        text            `json:"gitBranch"`
	Mode          text            `json:"permissionMode"`
	Subtype       text            `json:"subtype"`
	Content       text            `json:"content"`
	APIError      flag            `json:"isApiErrorMessage"`
	Status        count           `json:"apiErrorStatus"`
	Error         json.RawMessage `json:"error"`
	Attempt       count           `json:"retryAttempt"`
	Hooks         hookList        `json:"hookInfos"`
	Compact       compaction      `json:"compactMetadata"`
	Data          progressData    `json:"data"`
	Attachment    attachment      `json:"attachment"`
	Origin        origin          `json:"origin"`
	Forked        forked          `json:"forkedFrom"`
}

// A forked says of which record of which session a record is a copy.
type forked struct {
	Session text `json:"sessionId"`
	UUID    text `json:"messageUuid"`
}

// An origin says who wrote a record of the person's side.
type origin struct {
	Kind text `json:"kind"`
}

type compaction struct {
	Trigger text  `json:"trigger"`
	Before  count `json:"preTokens"`
	After   count `json:"postTokens"`
}

// progressData is what a record of progress has to say.
type progressData struct {
	Type      text            `json:"type"`
	HookEvent text            `json:"hookEvent"`
	HookName  text            `json:"hookName"`
	Command   text            `json:"command"`
	Agent     text            `json:"agentId"`
	Message   json.RawMessage `json:"message"` // of agent_progress: a record
}

// An attachment is what the program puts beside the messages.
type attachment struct {
	Type      text            `json:"type"`
	Prompt    json.RawMessage `json:"prompt"`
	Mode      text            `json:"commandMode"`
	HookName  text            `json:"hookName"`
	HookEvent text            `json:"hookEvent"`
	ToolUse   text            `json:"toolUseID"`
	Command   text            `json:"command"`
	Content   json.RawMessage `json:"content"`
	Stdout    text            `json:"stdout"`
	Stderr    text            `json:"stderr"`
	Blocking  blocking        `json:"blockingError"`
}

type blocking struct {
	Error   text `json:"blockingError"`
	Command text `json:"command"`
}

// hookList are the hooks that ran where a turn ended.
type hookList []struct {
	Command text `json:"command"`
}

// A message is what a model or a person said.
type message struct {
	ID         text            `json:"id"`
	Model      text            `json:"model"`
	StopReason text            `json:"stop_reason"`
	Content    json.RawMessage `json:"content"`
	Usage      struct {
		Input      count `json:"input_tokens"`
		Output     count `json:"output_tokens"`
		CacheRead  count `json:"cache_read_input_tokens"`
		CacheWrite count `json:"cache_creation_input_tokens"`
	} `json:"usage"`
}

// A block is one part of a message or of a result.
type block struct {
	Type      text            `json:"type"`
	Text      text            `json:"text"`
	Thinking  text            `json:"thinking"`
	ID        text            `json:"id"`
	Name      text            `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID text            `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   flag            `json:"is_error"`
	Source    struct {
		Type      text `json:"type"`
		MediaType text `json:"media_type"`
		Data      text `json:"data"`
	} `json:"source"`
	raw json.RawMessage
}

// lenient decodes what fits and leaves out what does not. Whether the document
// is JSON at all is known before.
func lenient(document json.RawMessage, into any) { _ = json.Unmarshal(document, into) }

// spoken returns the message of a record. A text alone is a message with that
// content.
func (r record) spoken() (message, bool) {
	switch first(r.Message) {
	case '{':
		var m message
		lenient(r.Message, &m)
		return m, true
	case '"', '[':
		return message{Content: r.Message}, true
	}
	return message{}, false
}

// blocks returns the parts of a content, which may be a text, a part or an
// array of both.
func blocks(content json.RawMessage) []block {
	switch first(content) {
	case '"':
		var t text
		lenient(content, &t)
		return []block{{Type: "text", Text: t}}
	case '{':
		var b block
		lenient(content, &b)
		b.raw = content
		return []block{b}
	case '[':
		var elements []json.RawMessage
		lenient(content, &elements)
		var all []block
		for _, e := range elements {
			if first(e) != '[' {
				all = append(all, blocks(e)...)
			}
		}
		return all
	}
	return nil
}

func first(document json.RawMessage) byte {
	if document = bytes.TrimLeft(document, " \t\r\n"); len(document) > 0 {
		return document[0]
	}
	return 0
}

// contents returns what a model read of a result. What is neither text nor
// media in base64 is given as its JSON.
func contents(content json.RawMessage) domain.Contents {
	var all domain.Contents
	for _, b := range blocks(content) {
		switch {
		case b.Type == "text":
			all = append(all, domain.Text(b.Text))
		default:
			media, ok := b.media()
			if !ok {
				all = append(all, domain.Text(b.raw))
				continue
			}
			all = append(all, media)
		}
	}
	return all
}

// media returns the media in base64 that a part is.
func (b block) media() (domain.Media, bool) {
	if b.Source.Data == "" || b.Source.MediaType == "" {
		return domain.Media{}, false
	}
	data, err := base64.StdEncoding.DecodeString(string(b.Source.Data))
	return domain.Media{MIME: beginning(string(b.Source.MediaType), mostName), Data: data}, err == nil
}

// prose returns the text of the parts that a person wrote. Of media it says
// only the type.
func prose(parts []block) string {
	var all []string
	for _, b := range parts {
		switch b.Type {
		case "text":
			all = append(all, string(b.Text))
		case "image", "document":
			all = append(all, "["+string(b.Type)+" "+string(b.Source.MediaType)+"]")
		}
	}
	return strings.Join(all, "\n")
}

// tokens returns what the message counts.
func (m message) tokens() events.Tokens {
	u := m.Usage
	return events.Tokens{
		Input: int64(u.Input), Output: int64(u.Output), CacheRead: int64(u.CacheRead), CacheWrite: int64(u.CacheWrite),
	}
}

// time returns the time of a record, and whether it has one that can be kept.
func (r record) time() (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, string(r.Timestamp))
	if err != nil {
		ms, err := strconv.ParseInt(string(r.Timestamp), 10, 64)
		if err != nil {
			return time.Time{}, false
		}
		at = time.UnixMilli(ms)
	}
	at = at.UTC().Truncate(time.Microsecond)
	return at, at.Year() >= 1970 && at.Year() < 10000
}

// A text is a JSON string, or the literal of a number.
type text string

// UnmarshalJSON takes what is neither as absent.
func (t *text) UnmarshalJSON(data []byte) error {
	*t = ""
	switch c := data[0]; {
	case c == '"':
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		*t = text(s)
	case c == '-' || '0' <= c && c <= '9':
		*t = text(data)
	}
	return nil
}

// A flag is true, "true" or 1.
type flag bool

// UnmarshalJSON takes everything else as false.
func (f *flag) UnmarshalJSON(data []byte) error {
	*f = flag(string(data) == "true" || string(data) == `"true"` || string(data) == "1")
	return nil
}

// A count is a number that is not negative.
type count int64

// UnmarshalJSON takes everything else as zero.
func (c *count) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		n = 0
	}
	*c = count(max(n, 0))
	return nil
}
