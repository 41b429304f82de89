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

// An eventRef identifies an event and its place in the log. A checkpoint has the
// eventRef of its last event. A view compares it with the log, and ignores the
// checkpoint if the log has another event or none at that place.
type eventRef struct {
	Position events.Position `json:"position"`
	Stream   events.Stream   `json:"stream"`
	Revision events.Revision `json:"revision"`
	Event    domain.EventID  `json:"event"`
}

// refOf returns the eventRef of an envelope.
func refOf(e events.Envelope) eventRef { return eventRef{e.Position, e.Stream, e.Revision, e.ID} }

// refOfHeader returns the eventRef of an event from its header alone.
func refOfHeader(h events.Header) eventRef { return eventRef{h.Position, h.Stream, h.Revision, h.ID} }

// A checkpoint is the line of JSON that precedes the encoded state. doc.go documents
// the format.
type checkpoint struct {
	Projection string `json:"projection"`
	Version    int    `json:"version"`
	// eventRef is the last event that the view folded or skipped when it saved the
	// checkpoint.
	eventRef
	// Folded is the number of events in the state, skipped events excluded.
	Folded uint64 `json:"folded"`
	// Kinds is the events.KindsSum of the program that folded the events.
	Kinds uint32 `json:"kinds"`
	// Sum is the CRC-32C of the encoded state. It does not cover this line.
	Sum uint32 `json:"crc32c"`
}

// castagnoli is the table of CRC-32C, the checksum of encoded states.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The checkpoint policy. With a checkpoint, a later process need not fold the events
// before it. Encoding a large state takes long, and the view applies no event
// meanwhile. The policy compares the cost of folding again with the cost of saving:
//
//   - Folding again is costly if at least minSaveEvents are unsaved and the time since
//     the last checkpoint is at least saveCostRatio times the time that saving or
//     loading that one took. Saving then takes about 1/20 of the time of folding.
//   - A view that has caught up saves if folding again is costly, if an eighth of the
//     whole state is unsaved, or if the last checkpoint is a minute old.
//   - A view that is still catching up saves if a minute has passed, or if a sixth of a
//     minute has passed and folding again is costly.
//
// While the cost of saving is unknown, the rule of an eighth makes each checkpoint of
// a growing log an eighth larger than the one before. The number of checkpoints then
// grows with the logarithm of the log.
const (
	// minSaveEvents is the least number of unsaved events that a save for cost or for
	// size requires. A save for age requires one.
	minSaveEvents = 1000
	// saveCostRatio is the least ratio of the time since the last checkpoint to the
	// time that saving or loading that checkpoint took.
	saveCostRatio = 20
	// maxSaveInterval is the longest time between two checkpoints while the view has
	// unsaved events.
	maxSaveInterval = time.Minute
)

// A saveTrigger is the point of folding at which a view checks whether a checkpoint
// is due.
type saveTrigger int

const (
	// caughtUp: the view has folded all events of the log.
	caughtUp saveTrigger = iota + 1
	// onTheWay: the view has folded another checkEvery events and has more before it.
	onTheWay
)

// due reports whether the checkpoint policy requires a save at this saveTrigger. It
// returns false for a view without a Checkpoints, and for a view that has no unsaved
// change. The caller holds folding.
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

// save saves a checkpoint if the view has folded or skipped events since the last
// one, even if the policy does not require it. Its errors are an ErrCheckpoint. The
// caller holds folding. Readers of the state continue while save encodes and stores
// the state.
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
	v.policy.saved(time.Since(began)) // after an error too, so that the next attempt is no sooner due
	if err != nil {
		return fmt.Errorf("save checkpoint %s: %w: %w", v.projection.Name, ErrCheckpoint, err)
	}
	return nil
}

// resolvePosition sets lastRef to the last event of the log if the view's position is
// at that event and the view skipped it. Otherwise, or if the log cannot be read,
// lastRef stays at an earlier event. A view that loads the checkpoint then skips the
// events after lastRef again.
func (v *View[S]) resolvePosition(ctx context.Context) {
	if !v.policy.moved {
		return
	}
	head, ok, err := v.ledger.Head(ctx)
	if err == nil && ok && head.Position == v.Position() {
		v.advanceTo(refOfHeader(head))
	}
}

// encode returns a checkpoint: the line of JSON and the encoded state. It holds mu
// for reading, so that no event is applied meanwhile. The caller owns the bytes.
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
	// Shift the state and put the line before it in the same memory, as a second copy
	// of a large state may not fit.
	n := len(line) + 1
	whole := slices.Grow(state, n)[:len(state)+n]
	copy(whole[n:], state)
	copy(whole, line)
	whole[n-1] = '\n'
	return whole, nil
}

// Pack encodes a state for a checkpoint. It uses AppendBinary if the state is an
// [encoding.BinaryAppender], and otherwise [Encode]. The caller owns the bytes.
func Pack(answer any) ([]byte, error) {
	if b, ok := answer.(encoding.BinaryAppender); ok {
		return b.AppendBinary(nil)
	}
	return Encode(answer)
}

// Unpack is the inverse of [Pack]. The caller passes the state that Init returned,
// and Unpack decodes into it. After an error the state is undefined.
func Unpack[S any](data []byte, answer *S) error {
	if b, ok := any(*answer).(encoding.BinaryUnmarshaler); ok {
		return b.UnmarshalBinary(data)
	}
	return json.Unmarshal(data, answer)
}

// Encode returns the JSON of a state or of a part of it, as encoding/json writes it,
// but without escaping <, > and &, and without a final line end. A model's text
// therefore survives a checkpoint byte for byte. MarshalJSON methods of states call
// it.
func Encode(answer any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(answer); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// loadCheckpoint replaces the state of a new view by the state of its checkpoint.
// Only the first call of loadCheckpoint has an effect, unless its context ended: then
// the next call tries again. loadCheckpoint ignores a checkpoint that is absent,
// unreadable, or of another log, projection or program; the view then folds the log
// from the beginning. The caller holds folding.
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

// errMismatch: the checkpoint does not belong to this projection, program or log, or
// its checksum is wrong. A View never returns it to a caller.
var errMismatch = errors.New("checkpoint does not fit")

// decode returns the state and the JSON line of a checkpoint. After an error,
// errMismatch or an error of a JSON or binary decoder, the view must ignore the
// checkpoint.
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

// verify returns nil if the log has the event of p at the stream, revision and
// position of p. Otherwise it returns errMismatch or the error of the log. It reads
// at most one event.
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
