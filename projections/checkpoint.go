package projections

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// Checkpoints stores encoded states, so that views need not fold them again.
// It is safe for concurrent use. A checkpoint may be lost at any time, and
// need not be durable, but it must not be partial.
type Checkpoints interface {
	// SaveCheckpoint stores data under a name and replaces earlier data. It
	// keeps no reference to data.
	SaveCheckpoint(ctx context.Context, name string, data []byte) error
	// LoadCheckpoint returns the data under a name, or nil without an error if
	// there is no such name. The caller owns the bytes.
	LoadCheckpoint(ctx context.Context, name string) ([]byte, error)
}

// An eventRef identifies an event and its place in the log, so that a
// checkpoint of another log is recognized.
type eventRef struct {
	Position events.Position `json:"position"`
	Stream   events.Stream   `json:"stream"`
	Revision events.Revision `json:"revision"`
	Event    domain.EventID  `json:"event"`
}

func refOf(e events.Envelope) eventRef { return eventRef{e.Position, e.Stream, e.Revision, e.ID} }

func refOfHeader(h events.Header) eventRef { return eventRef{h.Position, h.Stream, h.Revision, h.ID} }

// A checkpoint is the line of JSON before the state, which doc.go documents.
type checkpoint struct {
	Projection string `json:"projection"`
	Version    int    `json:"version"`
	eventRef          // of the last event that was folded or passed over
	Folded     uint64 `json:"folded"` // events that the answer holds
	Kinds      uint32 `json:"kinds"`  // events.KindsSum of the program that folded
	Sum        uint32 `json:"crc32c"` // of the answer
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The pace of checkpoints.
const (
	minSaveEvents   = 1000        // events between two, at least
	saveCostRatio   = 20          // times what saving costs
	maxSaveInterval = time.Minute // between two, while there is something to save
)

// A saveTrigger says at which point of folding a view checks whether a
// checkpoint is due.
type saveTrigger int

const (
	caughtUp saveTrigger = iota + 1
	onTheWay
)

// due reports whether a checkpoint should be saved: saving costs little
// compared to folding the events since the last one again.
func (v *View[S]) due(at saveTrigger) bool {
	if v.checkpoints == nil || v.policy.unsaved == 0 && !v.policy.moved {
		return false
	}
	since := time.Since(v.policy.last)
	costly := v.policy.unsaved >= minSaveEvents && v.policy.cost > 0 && since >= saveCostRatio*v.policy.cost
	if at == onTheWay {
		return costly && since >= maxSaveInterval/6 || since >= maxSaveInterval
	}
	return v.policy.unsaved >= minSaveEvents && v.policy.unsaved >= v.mu.folded/8 || costly || since >= maxSaveInterval
}

// save saves a checkpoint if events were folded or skipped since the last one.
func (v *View[S]) save(ctx context.Context) error {
	if v.checkpoints == nil || v.policy.unsaved == 0 && !v.policy.moved {
		return nil
	}
	began := time.Now()
	v.resolvePosition(ctx)
	data, err := v.encode()
	if err == nil {
		err = v.checkpoints.SaveCheckpoint(ctx, v.projection.Name, data)
	}
	v.policy.saved(time.Since(began)) // also after an error: the next one is due no sooner
	if err != nil {
		return fmt.Errorf("save checkpoint %s: %w: %w", v.projection.Name, ErrCheckpoint, err)
	}
	return nil
}

// resolvePosition looks up the event at the view's position, if the view
// skipped it and it is the last of the log. Otherwise the checkpoint names an
// earlier event, and a later view skips the events after it again.
func (v *View[S]) resolvePosition(ctx context.Context) {
	if !v.policy.moved {
		return
	}
	head, ok, err := v.ledger.Head(ctx)
	if err == nil && ok && head.Position == v.Position() {
		v.advanceTo(refOfHeader(head))
	}
}

// encode returns a checkpoint: the line and the state.
func (v *View[S]) encode() ([]byte, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	state, err := Pack(v.mu.state)
	if err != nil {
		return nil, err
	}
	line, err := Encode(checkpoint{
		Projection: v.projection.Name, Version: v.projection.Version, eventRef: v.mu.lastRef, Folded: v.mu.folded,
		Kinds: events.KindsSum(), Sum: crc32.Checksum(state, castagnoli),
	})
	if err != nil {
		return nil, err
	}
	// The line is put before the answer in its own memory, as that may be large.
	n := len(line) + 1
	whole := slices.Grow(state, n)[:len(state)+n]
	copy(whole[n:], state)
	copy(whole, line)
	whole[n-1] = '\n'
	return whole, nil
}

// Pack encodes a state for a checkpoint: with AppendBinary, if it is an
// [encoding.BinaryAppender], and otherwise with [Encode].
func Pack(answer any) ([]byte, error) {
	if b, ok := answer.(encoding.BinaryAppender); ok {
		return b.AppendBinary(nil)
	}
	return Encode(answer)
}

// Unpack is the inverse of [Pack]. It decodes into the state that Init
// returned.
func Unpack[S any](data []byte, answer *S) error {
	if b, ok := any(*answer).(encoding.BinaryUnmarshaler); ok {
		return b.UnmarshalBinary(data)
	}
	return json.Unmarshal(data, answer)
}

// Encode returns the JSON of a state, or of a part, as encoding/json writes it
// but without escaping <, > and &, so that a model's text survives a
// checkpoint byte for byte. MarshalJSON methods of states use it.
func Encode(answer any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(answer); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// loadCheckpoint loads the checkpoint on first use. It ignores one that is
// unreadable, or of another log or projection: the view then folds from the
// beginning.
func (v *View[S]) loadCheckpoint(ctx context.Context) {
	if v.loaded || v.checkpoints == nil {
		return
	}
	began := time.Now()
	v.policy.saved(0)
	data, err := v.checkpoints.LoadCheckpoint(ctx, v.projection.Name)
	if err != nil || data == nil {
		v.loaded = ctx.Err() == nil
		return
	}
	state, kept, err := v.decode(data)
	if err == nil {
		err = v.verify(ctx, kept.eventRef)
	}
	v.loaded = ctx.Err() == nil
	if err != nil {
		return
	}
	v.reset(state, kept.eventRef, kept.Folded)
	v.policy.saved(time.Since(began))
}

// errMismatch reports a checkpoint that this view must ignore.
var errMismatch = errors.New("checkpoint does not fit")

// decode returns the state and the line of a checkpoint, or why it must be
// ignored.
func (v *View[S]) decode(data []byte) (state S, kept checkpoint, err error) {
	line, answer, _ := bytes.Cut(data, []byte("\n"))
	if err := json.Unmarshal(line, &kept); err != nil {
		return state, kept, err
	}
	// A program that knows other kinds folded events that this one skips, or
	// skipped events that this one folds.
	fits := kept.Projection == v.projection.Name && kept.Version == v.projection.Version && kept.Kinds == events.KindsSum() &&
		kept.Sum == crc32.Checksum(answer, castagnoli) && !bytes.Equal(answer, []byte("null"))
	if !fits {
		return state, kept, errMismatch
	}
	state = v.projection.Init()
	return state, kept, Unpack(answer, &state)
}

// verify returns nil if the log has the event p at its place.
func (v *View[S]) verify(ctx context.Context, p eventRef) error {
	if p.Revision == 0 {
		return errMismatch
	}
	for e, err := range v.ledger.Read(ctx, p.Stream, p.Revision-1) {
		if err != nil {
			return err
		}
		if refOf(e) == p {
			return nil
		}
		break
	}
	return errMismatch
}
