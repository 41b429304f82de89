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

// Checkpoints keep answers, so that they need not be folded again. They are
// safe for concurrent use. A checkpoint may be lost at any time and is then
// folded again: it need not be durable, but it must be whole.
type Checkpoints interface {
	// SaveCheckpoint keeps data under a name, in place of what was there. It
	// keeps no reference to data.
	SaveCheckpoint(ctx context.Context, name string, data []byte) error
	// LoadCheckpoint returns what is kept under a name, and nil without an
	// error where nothing is. The bytes belong to the caller.
	LoadCheckpoint(ctx context.Context, name string) ([]byte, error)
}

// An eventRef names the last event that an answer holds. Beside its position it says
// which event it is, so that a checkpoint of another log is not taken for one
// of this.
type eventRef struct {
	Position events.Position `json:"position"`
	Stream   events.Stream   `json:"stream"`
	Revision events.Revision `json:"revision"`
	Event    domain.EventID  `json:"event"`
}

func refOf(e events.Envelope) eventRef { return eventRef{e.Position, e.Stream, e.Revision, e.ID} }

func refOfHeader(h events.Header) eventRef { return eventRef{h.Position, h.Stream, h.Revision, h.ID} }

// A checkpoint is the line of JSON that doc.go documents, before the answer.
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

// An saveTrigger is when a view asks whether a checkpoint is due.
type saveTrigger int

const (
	caughtUp saveTrigger = iota + 1
	onTheWay
)

// due reports whether so much was folded since the last checkpoint that saving
// one costs little beside folding it again each time.
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

// save saves a checkpoint if something was folded or passed over since the
// last.
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

// resolvePosition looks which event the view has come to, if it passed over it and it
// is the last. Where it is not, the checkpoint names an earlier one, and what
// follows that is passed over again.
func (v *View[S]) resolvePosition(ctx context.Context) {
	if !v.policy.moved {
		return
	}
	head, ok, err := v.ledger.Head(ctx)
	if err == nil && ok && head.Position == v.Position() {
		v.advanceTo(refOfHeader(head))
	}
}

// encode returns a checkpoint: its line, and the answer.
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

// Pack returns an answer as it is kept in a checkpoint: as its AppendBinary
// writes it, where it is an [encoding.BinaryAppender], and else as [Encode]
// does.
func Pack(answer any) ([]byte, error) {
	if b, ok := answer.(encoding.BinaryAppender); ok {
		return b.AppendBinary(nil)
	}
	return Encode(answer)
}

// Unpack is the inverse of [Pack]. The answer is a pointer to one that stands
// for no events.
func Unpack[S any](data []byte, answer *S) error {
	if b, ok := any(*answer).(encoding.BinaryUnmarshaler); ok {
		return b.UnmarshalBinary(data)
	}
	return json.Unmarshal(data, answer)
}

// Encode returns the JSON of an answer, or of a part of one, as encoding/json
// writes it but with <, > and & as they are: what a model wrote comes back
// from a checkpoint byte for byte. The MarshalJSON of an answer uses it.
func Encode(answer any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(answer); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// loadCheckpoint takes the checkpoint, the first time. One that cannot be read or does
// not belong to this log and projection is as good as none: the log is the
// truth.
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

// errMismatch is why a checkpoint is not taken.
var errMismatch = errors.New("checkpoint does not fit")

func (v *View[S]) decode(data []byte) (state S, kept checkpoint, err error) {
	line, answer, _ := bytes.Cut(data, []byte("\n"))
	if err := json.Unmarshal(line, &kept); err != nil {
		return state, kept, err
	}
	// A program that knows other kinds folded what this one passes over, or
	// passed over what this one folds.
	fits := kept.Projection == v.projection.Name && kept.Version == v.projection.Version && kept.Kinds == events.KindsSum() &&
		kept.Sum == crc32.Checksum(answer, castagnoli) && !bytes.Equal(answer, []byte("null"))
	if !fits {
		return state, kept, errMismatch
	}
	state = v.projection.Init()
	return state, kept, Unpack(answer, &state)
}

// verify returns nil if the log has the event of a place right there.
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
