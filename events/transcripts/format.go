package transcripts

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A fileRecord is one line of a session file with the fields that are imported. A
// field with a value of an unexpected type decodes as absent, and the other fields
// remain.
type fileRecord struct {
	// The members of every record. Type decides which of the others matter; UUID
	// names the record, Parent the record before it, and Session the session. Agent
	// and Sidechain mark the record of a sub-agent.
	Type      jsonText `json:"type"`
	UUID      jsonText `json:"uuid"`
	Parent    jsonText `json:"parentUuid"`
	Session   jsonText `json:"sessionId"`
	Timestamp jsonText `json:"timestamp"`
	Request   jsonText `json:"requestId"`
	Agent     jsonText `json:"agentId"`
	// CWD is a setting at the time of the record, as are Version, Branch and Mode.
	CWD       jsonText `json:"cwd"`
	Sidechain jsonFlag `json:"isSidechain"`
	// Meta and OnlyShown mark a user record whose text the program wrote, and Summary
	// a summary.
	Meta      jsonFlag `json:"isMeta"`
	Summary   jsonFlag `json:"isCompactSummary"`
	OnlyShown jsonFlag `json:"isVisibleInTranscriptOnly"`
	// Title is the member of a summary record.
	Title jsonText `json:"summary"`
	// Message is the message of a user or assistant record; ToolUseResult is the
	// structured value of the result in a user record.
	Message       json.RawMessage `json:"message"`
	ToolUseResult json.RawMessage `json:"toolUseResult"`
	// ToolUse and ParentToolUse name the calls to which a progress record belongs.
	ToolUse       jsonText `json:"toolUseID"`
	ParentToolUse jsonText `json:"parentToolUseID"`
	Version       jsonText `json:"version"`
	Branch        jsonText `json:"gitBranch"`
	Mode          jsonText `json:"permissionMode"`
	// The members of a system record, and of an assistant record that shows an error
	// of the provider.
	Subtype  jsonText        `json:"subtype"`
	Content  jsonText        `json:"content"`
	APIError jsonFlag        `json:"isApiErrorMessage"`
	Status   jsonCount       `json:"apiErrorStatus"`
	Error    json.RawMessage `json:"error"`
	Attempt  jsonCount       `json:"retryAttempt"`
	Hooks    hookList        `json:"hookInfos"`
	Compact  compactMetadata `json:"compactMetadata"`
	// Data and Attachment are the members of progress and attachment records.
	Data       progressData `json:"data"`
	Attachment attachment   `json:"attachment"`
	// Origin is the author of a user record, and Forked the original of a copied one.
	Origin recordOrigin `json:"origin"`
	Forked forkOrigin   `json:"forkedFrom"`
	// said is the decoded Message, or nil before messageParts has decoded it.
	said *saidMessage
}

// A saidMessage is a decoded message with its parts. It is read-only, because copies of a
// record share it.
type saidMessage struct {
	message chatMessage
	parts   []contentBlock
}

// A forkOrigin names the record of another session that a fork copied.
type forkOrigin struct {
	Session jsonText `json:"sessionId"`
	UUID    jsonText `json:"messageUuid"`
}

// A recordOrigin is the author of a user record: "human" or a part of the program.
type recordOrigin struct {
	Kind jsonText `json:"kind"`
}

// A compactMetadata is the reason of a compaction, in which the program replaces the
// conversation by a summary, and the numbers of tokens before and after.
type compactMetadata struct {
	Trigger jsonText  `json:"trigger"`
	Before  jsonCount `json:"preTokens"`
	After   jsonCount `json:"postTokens"`
}

// progressData is the data of a progress record: that a hook or a sub-agent runs, or
// a call continues.
type progressData struct {
	Type      jsonText `json:"type"`
	HookEvent jsonText `json:"hookEvent"`
	HookName  jsonText `json:"hookName"`
	Command   jsonText `json:"command"`
	Agent     jsonText `json:"agentId"`
	// Message is a record of the sub-agent, in agent_progress.
	Message json.RawMessage `json:"message"`
}

// An attachment is data that the program adds between messages: queued prompts, the
// results of hooks, and files. The Type decides which fields are set.
type attachment struct {
	Type jsonText `json:"type"`
	// Prompt and Mode are the members of a queued message.
	Prompt json.RawMessage `json:"prompt"`
	Mode   jsonText        `json:"commandMode"`
	// HookName and the following are the members of a hook: its name and event, the
	// call that it is about, its command and its outputs.
	HookName  jsonText        `json:"hookName"`
	HookEvent jsonText        `json:"hookEvent"`
	ToolUse   jsonText        `json:"toolUseID"`
	Command   jsonText        `json:"command"`
	Content   json.RawMessage `json:"content"`
	Stdout    jsonText        `json:"stdout"`
	Stderr    jsonText        `json:"stderr"`
	Blocking  blockingError   `json:"blockingError"`
}

// A blockingError is the error of a hook that blocked a call.
type blockingError struct {
	Error   jsonText `json:"blockingError"`
	Command jsonText `json:"command"`
}

// A hookList is the hooks that ran at the end of a turn. A hook is a configured
// command that the program runs at an event.
type hookList []struct {
	Command jsonText `json:"command"`
}

// A chatMessage is the message of a user or assistant record, in the form of the
// provider's API. Records of one reply have the same ID and repeat the Usage so far.
type chatMessage struct {
	ID         jsonText        `json:"id"`
	Model      jsonText        `json:"model"`
	StopReason jsonText        `json:"stop_reason"`
	Content    json.RawMessage `json:"content"`
	// Usage has the numbers of tokens that the provider counted.
	Usage struct {
		Input      jsonCount `json:"input_tokens"`
		Output     jsonCount `json:"output_tokens"`
		CacheRead  jsonCount `json:"cache_read_input_tokens"`
		CacheWrite jsonCount `json:"cache_creation_input_tokens"`
	} `json:"usage"`
}

// A contentBlock is one part of a message or result: text, thinking, a call, a result
// or media. The Type decides which fields are set.
type contentBlock struct {
	Type     jsonText `json:"type"`
	Text     jsonText `json:"text"`
	Thinking jsonText `json:"thinking"`
	// ID, Name and Input are the members of a call.
	ID    jsonText        `json:"id"`
	Name  jsonText        `json:"name"`
	Input json.RawMessage `json:"input"`
	// ToolUseID, Content and IsError are the members of a result.
	ToolUseID jsonText        `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   jsonFlag        `json:"is_error"`
	// Source is the data of an image or document, and URL a data URL with it.
	Source blockSource     `json:"source"`
	URL    json.RawMessage `json:"image_url"`
	// raw is the JSON of the block, for types that are not known.
	raw json.RawMessage
}

// A blockSource is the data of an image or document, in base64.
type blockSource struct {
	Type      jsonText `json:"type"`
	MediaType jsonText `json:"media_type"`
	Data      jsonText `json:"data"`
}

// fromURL returns the part with its type in the words of Claude Code: the formats of
// OpenAI have other types of texts, and images as data URLs.
func (b contentBlock) fromURL() contentBlock {
	switch b.Type {
	case "input_text", "output_text", "summary_text", "reasoning_text":
		b.Type = "text"
	case "input_image", "image_url":
		b.Type = "image"
	}
	var url jsonText
	var nested struct {
		URL jsonText `json:"url"`
	}
	switch firstByte(b.URL) {
	case '"':
		decodeLenient(b.URL, &url)
	case '{':
		decodeLenient(b.URL, &nested)
		url = nested.URL
	}
	head, data, isData := strings.Cut(string(url), ";base64,")
	if mime, ok := strings.CutPrefix(head, "data:"); ok && isData {
		b.Source = blockSource{Type: "base64", MediaType: jsonText(mime), Data: jsonText(data)}
	}
	return b
}

// decodeLenient decodes the fields that fit and leaves out the others. The caller has
// checked that document is JSON, so every error is a field of another type.
func decodeLenient(document json.RawMessage, into any) { _ = json.Unmarshal(document, into) }

// messageParts returns the message of a record with the parts of its content, and whether
// the record has a message. A string or an array is the content of such a message. It
// decodes the message at the first call.
func (r *fileRecord) messageParts() (chatMessage, []contentBlock, bool) {
	if r.said == nil {
		var m chatMessage
		switch firstByte(r.Message) {
		case '{':
			decodeLenient(r.Message, &m)
		case '"', '[':
			m.Content = r.Message
		default:
			return m, nil, false
		}
		r.said = &saidMessage{m, contentBlocks(m.Content)}
	}
	return r.said.message, r.said.parts, true
}

// contentBlocks returns the parts of a content: a string, an object, or an array of
// both. It ignores nested arrays and other values.
func contentBlocks(content json.RawMessage) []contentBlock {
	switch firstByte(content) {
	case '"':
		var t jsonText
		decodeLenient(content, &t)
		return []contentBlock{{Type: "text", Text: t}}
	case '{':
		var b contentBlock
		decodeLenient(content, &b)
		b.raw = content
		return []contentBlock{b}
	// A nested array has no meaning in the format. Ignoring it also bounds the depth
	// of the recursion.
	case '[':
		var elements []json.RawMessage
		decodeLenient(content, &elements)
		var all []contentBlock
		for _, e := range elements {
			if firstByte(e) != '[' {
				all = append(all, contentBlocks(e)...)
			}
		}
		return all
	}
	return nil
}

// firstByte returns the first byte of a document after white space, which determines
// its JSON type. It is 0 for an empty document.
func firstByte(document json.RawMessage) byte {
	if document = bytes.TrimLeft(document, " \t\r\n"); len(document) > 0 {
		return document[0]
	}
	return 0
}

// resultContents returns the contents of a result. A part that is neither text nor
// base64 media becomes a text of its JSON.
func resultContents(content json.RawMessage) domain.Contents {
	return blockContents(contentBlocks(content))
}

// blockContents returns the contents of the parts of a result.
func blockContents(parts []contentBlock) domain.Contents {
	var all domain.Contents
	for _, b := range parts {
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

// media returns the decoded media of a part, and whether the part has valid base64
// media.
func (b contentBlock) media() (domain.Media, bool) {
	if b.Source.Data == "" || b.Source.MediaType == "" {
		return domain.Media{}, false
	}
	data, err := base64.StdEncoding.DecodeString(string(b.Source.Data))
	return domain.Media{MIME: truncate(string(b.Source.MediaType), maxName), Data: data}, err == nil
}

// plainText joins the texts of blocks with line ends. An image or a document becomes
// its type and media type in brackets. Other blocks are left out.
func plainText(parts []contentBlock) string {
	var all []string
	for _, b := range parts {
		switch b.Type {
		case "text", "input_text", "output_text", "summary_text", "reasoning_text":
			all = append(all, string(b.Text))
		case "image", "document":
			all = append(all, "["+string(b.Type)+" "+string(b.Source.MediaType)+"]")
		}
	}
	return strings.Join(all, "\n")
}

// tokens returns the token counts of a message, zero if absent.
func (m chatMessage) tokens() events.Tokens {
	u := m.Usage
	return events.Tokens{
		Input: int64(u.Input), Output: int64(u.Output), CacheRead: int64(u.CacheRead), CacheWrite: int64(u.CacheWrite),
	}
}

// timestamp returns the time of a record in UTC and microseconds, and whether the
// record has a time from 1970 to 9999. It reads RFC 3339, also without a time zone,
// which is UTC, and milliseconds since 1970.
func (r fileRecord) timestamp() (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, string(r.Timestamp))
	if err != nil && strings.Contains(string(r.Timestamp), "T") {
		at, err = time.Parse("2006-01-02T15:04:05", string(r.Timestamp))
	}
	if err != nil {
		ms, err := strconv.ParseInt(string(r.Timestamp), 10, 64)
		if err != nil {
			return time.Time{}, false
		}
		at = time.UnixMilli(ms)
	}
	// Events have times in UTC to the microsecond.
	at = at.UTC().Truncate(time.Microsecond)
	return at, at.Year() >= 1970 && at.Year() < 10000
}

// A jsonText decodes a JSON string, or the literal of a JSON number. It never returns
// an error for a value of another type, nor do jsonFlag and jsonCount.
type jsonText string

// UnmarshalJSON decodes every other value as an empty text.
func (t *jsonText) UnmarshalJSON(data []byte) error {
	*t = ""
	switch c := data[0]; {
	case c == '"' && bytes.IndexByte(data, '\\') < 0 && utf8.Valid(data):
		*t = jsonText(data[1 : len(data)-1])
	case c == '"':
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		*t = jsonText(s)
	case c == '-' || '0' <= c && c <= '9':
		*t = jsonText(data)
	}
	return nil
}

// A jsonFlag is true, "true" or 1.
type jsonFlag bool

// UnmarshalJSON decodes every other value as false.
func (f *jsonFlag) UnmarshalJSON(data []byte) error {
	*f = jsonFlag(string(data) == "true" || string(data) == `"true"` || string(data) == "1")
	return nil
}

// A jsonCount is a number that is not negative.
type jsonCount int64

// UnmarshalJSON decodes every other value as zero.
func (c *jsonCount) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		n = 0
	}
	*c = jsonCount(max(n, 0))
	return nil
}
