package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A labeler gives each event of a session a label that does not depend on IDs and times,
// such as "end of call_1 of turn 3". The same event of a recording and of its replay has
// the same label. It also gives labels to the IDs that the events define, so that texts
// and events of both sides can be compared. It reads the events of one session and of its
// layers in order, and belongs to one goroutine at a time.
type labeler struct {
	session domain.SessionID
	// counts has the number of events with each label, and of things that are counted.
	counts map[string]int
	// ids has the label of each ID that an event defines.
	ids map[string]string
	// turns has the number of each turn, and messages the turn of each reply.
	turns    map[domain.TurnID]int
	messages map[domain.MessageID]int
	// asked has the place of the call of each permission request and question.
	asked map[domain.PermissionID]place
}

// A place is a turn and, if there is one, a call of its reply.
type place struct {
	turn int
	call domain.CallID
}

func newLabeler(session domain.SessionID) *labeler {
	return &labeler{
		session: session, counts: map[string]int{}, ids: map[string]string{session.String(): "this session"},
		turns: map[domain.TurnID]int{}, messages: map[domain.MessageID]int{}, asked: map[domain.PermissionID]place{},
	}
}

// next counts a thing and returns its number.
func (l *labeler) next(what string) int {
	l.counts[what]++
	return l.counts[what]
}

// A labeled is an event with its label and its place.
type labeled struct {
	events.Envelope
	place
	label string
}

// add labels the next event.
func (l *labeler) add(v events.Envelope) labeled {
	p, label := l.describe(v)
	if n := l.next("label " + label); n > 1 {
		label = fmt.Sprintf("%s (%d)", label, n)
	}
	l.ids[v.ID.String()] = label
	return labeled{Envelope: v, place: p, label: label}
}

// describe returns the place and the label of an event, and defines the IDs that it names
// first.
func (l *labeler) describe(v events.Envelope) (p place, label string) {
	switch e := v.Event.(type) {
	case events.SessionOpened:
		return p, "opening"
	case events.PromptAdmitted:
		label := fmt.Sprintf("prompt %d", l.next("prompt"))
		l.ids[e.Message.String()] = label
		return p, label
	case events.TurnMaterialized:
		n, known := l.turns[e.Turn]
		if !known {
			n = l.next("turn")
			l.turns[e.Turn], l.messages[e.Message] = n, n
			l.ids[e.Turn.String()], l.ids[e.Message.String()] = fmt.Sprintf("turn %d", n), fmt.Sprintf("reply %d", n)
		}
		return place{turn: n}, fmt.Sprintf("turn %d", n)
	case events.TextRecorded:
		return p, "text " + e.Digest
	case events.ReplyReceived:
		p.turn = l.messages[e.Message]
		return p, fmt.Sprintf("reply %d", p.turn)
	case events.ReplyRefused:
		p.turn = l.messages[e.Message]
		return p, fmt.Sprintf("refused reply %d", p.turn)
	case events.ProviderFailed:
		p.turn = l.turns[e.Turn]
		return p, fmt.Sprintf("failed attempt of turn %d", p.turn)
	case events.CallStarted:
		return l.ofCall("start", e.Message, e.Call)
	case events.CallSettled:
		return l.ofCall("end", e.Message, e.Call)
	case events.CallsAdded:
		return l.ofCall("added calls", e.Message, e.Parent)
	case events.LateResultObserved:
		return l.ofCall("late result", e.Message, e.Call)
	case events.LoopDetected:
		return l.ofCall("loop", e.Message, e.Call)
	case events.TodosReplaced:
		return l.ofCall("list of tasks", e.Message, e.Call)
	case events.AgentSwitched:
		return l.ofCall("switch of the agent", e.Message, e.Call)
	case events.PermissionRequested:
		return l.asks("permission request", e.Permission, e.Message, e.Call)
	case events.QuestionAsked:
		return l.asks("question", e.Question, e.Message, e.Call)
	case events.PermissionDecided:
		return l.asked[e.Permission], "decision on " + l.ids[e.Permission.String()]
	case events.QuestionAnswered:
		return l.asked[e.Question], "answer to " + l.ids[e.Question.String()]
	case events.ApprovalSaved:
		return l.asked[e.Permission], "approval saved by " + l.ids[e.Permission.String()]
	case events.LayerOpened:
		label := fmt.Sprintf("layer %d", l.next("layer"))
		l.ids[e.Layer.String()] = label
		return p, label
	case events.ToolsRegistered:
		label := fmt.Sprintf("registration %d", l.next("registration"))
		l.ids[domain.RegistrationOf(v.ID).String()] = label
		return p, label
	case events.RegistrationClosed:
		return p, "end of " + l.ids[e.Registration.String()]
	case events.LayerClosed:
		return p, "end of " + l.ids[e.Layer.String()]
	}
	return p, v.Event.Kind()
}

// ofCall returns the place and the label of an event of a call.
func (l *labeler) ofCall(what string, message domain.MessageID, call domain.CallID) (place, string) {
	p := place{l.messages[message], call}
	return p, fmt.Sprintf("%s of %s of turn %d", what, call, p.turn)
}

// asks labels a permission request or a question of a call.
func (l *labeler) asks(what string, id domain.PermissionID, message domain.MessageID, call domain.CallID) (place, string) {
	p, label := l.ofCall(what, message, call)
	label = fmt.Sprintf("%s %d", label, l.next(label))
	l.ids[id.String()], l.asked[id] = label, p
	return p, label
}

// anID matches the text of an ID of a ledger.
var anID = regexp.MustCompile(`\b(?:ses|msg|trn|evt|reg|scp|lay|prc|per)_[0-9A-HJKMNP-TV-Z]{26}\b`)

// plain returns a text with each ID that an event defined replaced by its label.
func (l *labeler) plain(text string) string {
	if !strings.Contains(text, "_") {
		return text
	}
	return anID.ReplaceAllStringFunc(text, func(id string) string {
		if label, ok := l.ids[id]; ok {
			return "<" + label + ">"
		}
		return id
	})
}

// digestOf returns the SHA-256 of a text in hexadecimal.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
