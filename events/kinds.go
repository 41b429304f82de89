package events

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"sync"
)

//go:generate go run ../.ci/codecgen

// kinds maps the name of every kind that this program writes or reads. Each line
// names the struct of a kind. A line may gain upcasts and is never removed, because
// records of the kind stay in logs. The package documentation lists the steps that
// add a kind.
var kinds = map[string]kind{
	"ProcessStarted":      of[ProcessStarted](unchanged),
	"LeaseRenewed":        of[LeaseRenewed](),
	"ProcessStopped":      of[ProcessStopped](),
	"LayerOpened":         of[LayerOpened](),
	"ToolsRegistered":     of[ToolsRegistered](),
	"RegistrationClosed":  of[RegistrationClosed](),
	"LayerClosed":         of[LayerClosed](),
	"SessionOpened":       of[SessionOpened](),
	"PromptAdmitted":      of[PromptAdmitted](),
	"TurnMaterialized":    of[TurnMaterialized](),
	"ReplyReceived":       of[ReplyReceived](),
	"ReplyRefused":        of[ReplyRefused](),
	"CallStarted":         packed[CallStarted, packedCallStarted](unchanged),
	"CallSettled":         packed[CallSettled, packedCallSettled](unchanged),
	"LateResultObserved":  of[LateResultObserved](),
	"PermissionRequested": of[PermissionRequested](),
	"PermissionDecided":   of[PermissionDecided](),
	"ApprovalSaved":       of[ApprovalSaved](),
	"ApprovalRevoked":     of[ApprovalRevoked](),
	"LoopDetected":        of[LoopDetected](),
	"OutputPruned":        of[OutputPruned](),
	"SessionInterrupted":  of[SessionInterrupted](),
	"SessionClosed":       of[SessionClosed](),
	"SettingChanged":      of[SettingChanged](),
	"SessionSpawned":      of[SessionSpawned](),
	"ContextAdded":        of[ContextAdded](),
	"ContextCompacted":    of[ContextCompacted](),
	"CommandRan":          of[CommandRan](),
	"ProviderFailed":      of[ProviderFailed](),
	"CallsAdded":          of[CallsAdded](),
	"QuestionAsked":       of[QuestionAsked](),
	"QuestionAnswered":    of[QuestionAnswered](),
	"TextRecorded":        of[TextRecorded](),
	"AgentSwitched":       of[AgentSwitched](),
	"TodosReplaced":       of[TodosReplaced](),
	"SessionForked":       of[SessionForked](),
}

// A kind holds the current version of one kind of event, its decoder and the
// upcasts from older versions.
type kind struct {
	version int
	// readable is the oldest version whose data are data of the current one too.
	readable int
	// upcasts[i] converts data of version i+1 to version i+2.
	upcasts []upcast
	decode  func(json.RawMessage) (Event, error)
}

// An upcast converts data of one version of a kind to the next.
type upcast func(json.RawMessage) (json.RawMessage, error)

// unchanged is the upcast from a version whose data the next version reads as the same
// event.
var unchanged upcast

// of returns the kind of the event type E with its upcasts, oldest first. The
// version is one more than the number of upcasts.
func of[E Event](upcasts ...upcast) kind {
	return kindOf(upcasts, func(data json.RawMessage) (Event, error) {
		var e E
		err := json.Unmarshal(data, &e)
		return e, err
	})
}

// packed returns the kind of the event type E, whose encoded form is P, as of does.
func packed[E Event, P packedEvent](upcasts ...upcast) kind {
	return kindOf(upcasts, func(data json.RawMessage) (Event, error) {
		var p P
		err := json.Unmarshal(data, &p)
		return p.unpacked(), err
	})
}

// kindOf returns the kind with these upcasts and this decoder of the last version.
func kindOf(upcasts []upcast, decode func(json.RawMessage) (Event, error)) kind {
	k := kind{version: len(upcasts) + 1, upcasts: upcasts, decode: decode}
	for k.readable = k.version; k.readable > 1 && upcasts[k.readable-2] == nil; {
		k.readable--
	}
	return k
}

// read decodes data of a version from 1 to k.version. It converts older data with the
// upcasts first.
func (k kind) read(version int, data json.RawMessage) (Event, error) {
	for i, upcast := range k.upcasts[version-1:] {
		if upcast == nil {
			continue
		}
		var err error
		if data, err = upcast(data); err != nil {
			return nil, fmt.Errorf("upcast version %d: %w", version+i, err)
		}
	}
	return k.decode(data)
}

// Knows reports whether this program knows a kind of event in any version.
func Knows(kind string) bool {
	_, ok := kinds[kind]
	return ok
}

// KnowsVersion reports whether this program decodes a kind of event in a version.
func KnowsVersion(kind string, version int) bool {
	k, ok := kinds[kind]
	return ok && version >= 1 && version <= k.version
}

// Kinds returns the kinds of events that this program knows, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// KindsSum returns a checksum of the known kinds and their latest versions. A
// reader that skips unknown kinds stores it with its checkpoint: another
// program may reuse the checkpoint only if its own sum is equal.
var KindsSum = sync.OnceValue(func() uint32 {
	sum := uint32(0)
	for _, kind := range Kinds() {
		sum = crc32.Update(sum, kindsPolynomial, fmt.Appendf(nil, "%s %d\n", kind, kinds[kind].version))
	}
	return sum
})

// kindsPolynomial is the polynomial of KindsSum.
var kindsPolynomial = crc32.MakeTable(crc32.Castagnoli)
