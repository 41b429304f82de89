package modelapi

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// maxToolName is the longest name of a tool in characters.
const maxToolName = 64

// ToolNameRule is the restriction that [ValidToolName] checks.
const ToolNameRule = "the name of a tool has 1 to 64 of the characters a-z, A-Z, 0-9, _ and -"

// ValidToolName reports whether model servers accept a name of a tool.
func ValidToolName(name string) bool { return toolNamePattern.MatchString(name) }

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

// CallIDs maps the calls of a conversation to IDs that a request may contain. A call keeps
// its ID if the API accepts it and no earlier message of the request uses it; otherwise
// the ID is a digest of the message and the ID. The same conversation has the same IDs. It
// is not safe for concurrent use.
type CallIDs struct {
	limit  int
	used   map[string]bool
	mapped map[callKey]string
}

// A callKey identifies a call of a session.
type callKey struct {
	message domain.MessageID
	call    domain.CallID
}

// NewCallIDs returns a CallIDs for one request, with IDs of at most limit characters.
func NewCallIDs(limit int) *CallIDs {
	return &CallIDs{limit: limit, used: map[string]bool{}, mapped: map[callKey]string{}}
}

// Of returns the ID of a call in the request.
func (m *CallIDs) Of(message domain.MessageID, call domain.CallID) string {
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

// MadeCallID returns an ID for call number n, counted from 0, of a reply whose server left
// the ID out.
func MadeCallID(message domain.MessageID, n int) string {
	return "call_" + digest(message.String(), strconv.Itoa(n))
}

// HistoryName returns a name of a tool that a request may contain. A name that the API
// accepts is returned unchanged. Any other name has its other characters replaced and a
// digest appended, so that it is not the name of an offered tool.
func HistoryName(name string) string {
	if toolNamePattern.MatchString(name) {
		return name
	}
	kept := notInName.ReplaceAllString(name, "_")
	suffix := "_" + digest(name)[:8]
	return kept[:min(len(kept), maxToolName-len(suffix))] + suffix
}

// HistoryTools returns the names of the tools that the calls of a conversation name, as
// HistoryName spells them, in the order of their first call.
func HistoryTools(s *conversation.State) []string {
	var names []string
	for _, m := range s.ModelMessages() {
		for _, c := range m.Calls {
			if name := HistoryName(c.Name); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
