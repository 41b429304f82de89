package projections

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

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

// A place is the last event that an answer holds. Beside its position it says
// which event it is, so that a checkpoint of another log is not taken for one
// of this.
type place struct {
	Position events.Position `json:"position"`
	Stream   events.Stream   `json:"stream"`
	Revision events.Revision `json:"revision"`
	Event    domain.EventID  `json:"event"`
}

func placeOf(e events.Envelope) place { return place{e.Position, e.Stream, e.Revision, e.ID} }

// A checkpoint is the JSON form that doc.go documents.
type checkpoint struct {
	Projection string          `json:"projection"`
	Version    int             `json:"version"`
	place                      // of the last event
	Folded     uint64          `json:"folded"` // events that State holds
	Sum        uint32          `json:"crc32c"` // of State
	State      json.RawMessage `json:"state"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// often is the least number of events between two checkpoints.
const often = 1000

// due reports whether so much was folded since the last checkpoint that saving
// one costs little beside folding it again each time.
func (v *View[S]) due() bool {
	return v.checkpoints != nil && v.unsaved >= often && v.unsaved >= v.mu.folded/8
}

// save saves a checkpoint if something was folded since the last.
func (v *View[S]) save(ctx context.Context) error {
	if v.checkpoints == nil || v.unsaved == 0 {
		return nil
	}
	v.unsaved = 0 // also after an error: the next one is due no sooner
	data, err := v.encode()
	if err == nil {
		err = v.checkpoints.SaveCheckpoint(ctx, v.projection.Name, data)
	}
	if err != nil {
		return fmt.Errorf("save checkpoint %s: %w: %w", v.projection.Name, ErrCheckpoint, err)
	}
	return nil
}

func (v *View[S]) encode() ([]byte, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	state, err := Encode(v.mu.state)
	if err != nil {
		return nil, err
	}
	return Encode(checkpoint{
		Projection: v.projection.Name, Version: v.projection.Version, place: v.mu.last, Folded: v.mu.folded,
		Sum: crc32.Checksum(state, castagnoli), State: state,
	})
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

// begin takes the checkpoint, the first time. One that cannot be read or does
// not belong to this log and projection is as good as none: the log is the
// truth.
func (v *View[S]) begin(ctx context.Context) {
	if v.begun || v.checkpoints == nil {
		return
	}
	data, err := v.checkpoints.LoadCheckpoint(ctx, v.projection.Name)
	if err != nil || data == nil {
		v.begun = ctx.Err() == nil
		return
	}
	state, kept, err := v.decode(data)
	if err == nil {
		err = v.verify(ctx, kept.place)
	}
	v.begun = ctx.Err() == nil
	if err != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.state, v.mu.last, v.mu.folded = state, kept.place, kept.Folded
	for w := range v.mu.waiting {
		v.releaseLocked(w)
	}
}

// errUnfit is why a checkpoint is not taken.
var errUnfit = errors.New("checkpoint does not fit")

func (v *View[S]) decode(data []byte) (state S, kept checkpoint, err error) {
	if err := json.Unmarshal(data, &kept); err != nil {
		return state, kept, err
	}
	fits := kept.Projection == v.projection.Name && kept.Version == v.projection.Version &&
		kept.Sum == crc32.Checksum(kept.State, castagnoli) && !bytes.Equal(kept.State, []byte("null"))
	if !fits {
		return state, kept, errUnfit
	}
	state = v.projection.Init()
	return state, kept, json.Unmarshal(kept.State, &state)
}

// verify returns nil if the log has the event of a place right there.
func (v *View[S]) verify(ctx context.Context, p place) error {
	if p.Revision == 0 {
		return errUnfit
	}
	for e, err := range v.ledger.Read(ctx, p.Stream, p.Revision-1) {
		if err != nil {
			return err
		}
		if placeOf(e) == p {
			return nil
		}
		break
	}
	return errUnfit
}
