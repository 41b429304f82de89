package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
)

// The longest call IDs that the two formats accept, in characters.
const (
	maxChatCallID      = 40
	maxResponsesCallID = 64
)

// maxToolName is the longest name of a tool in characters.
const maxToolName = 64

// The formats of names and IDs in requests, apart from the length of an ID.
var (
	toolNamePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	callIDPattern   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	notInName       = regexp.MustCompile(`[^a-zA-Z0-9_-]+`)
)

// digest returns the first 24 hexadecimal digits of a SHA-256 over the parts.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:12])
}

// callIDs maps the calls of a conversation to IDs that a request may contain. A call keeps
// its ID if the API accepts it and no earlier message of the request uses it; otherwise
// the ID is a digest of the message and the ID. The same conversation has the same IDs.
type callIDs struct {
	limit  int
	used   map[string]bool
	mapped map[callKey]string
}

// A callKey identifies a call of a session.
type callKey struct {
	message domain.MessageID
	call    domain.CallID
}

func newCallIDs(limit int) *callIDs {
	return &callIDs{limit: limit, used: map[string]bool{}, mapped: map[callKey]string{}}
}

// of returns the ID of a call in the request.
func (m *callIDs) of(message domain.MessageID, call domain.CallID) string {
	key := callKey{message, call}
	id, ok := m.mapped[key]
	if ok {
		return id
	}
	id = string(call)
	if m.used[id] || len(id) > m.limit || !callIDPattern.MatchString(id) {
		id = "call_" + digest(message.String(), string(call))
	}
	m.used[id], m.mapped[key] = true, id
	return id
}

// madeCallID returns an ID for call number n, counted from 0, of a reply whose server left
// the ID out.
func madeCallID(message domain.MessageID, n int) string {
	return "call_" + digest(message.String(), strconv.Itoa(n))
}

// historyName returns a name of a tool that a request may contain. A name that the API
// accepts is returned unchanged. Any other name has its other characters replaced and a
// digest appended, so that it is not the name of an offered tool.
func historyName(name string) string {
	if toolNamePattern.MatchString(name) {
		return name
	}
	kept := notInName.ReplaceAllString(name, "_")
	suffix := "_" + digest(name)[:8]
	return kept[:min(len(kept), maxToolName-len(suffix))] + suffix
}
