package maintenance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/integrity"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// A damageRow is one finding of ledger store check.
type damageRow struct {
	Part     string           `json:"part"`     // log or outputs
	File     *string          `json:"file"`     // relative to the folder of the store
	Offset   *int64           `json:"offset"`   // of the first damaged byte of the file, from 0
	Position *events.Position `json:"position"` // of the damaged record, or of the first of several
	Through  *events.Position `json:"through"`  // of the last of consecutive records with the same damage
	Stream   *events.Stream   `json:"stream"`
	Revision *events.Revision `json:"revision"`
	Output   *string          `json:"output"` // the reference of the damaged or missing output
	Detail   string           `json:"detail"`
}

// zeroBased converts an offset that counts from 1 to one that counts from 0. It returns
// nil for 0, which means that a finding has no offset.
func zeroBased(from1 int64) *int64 {
	if from1 <= 0 {
		return nil
	}
	from1--
	return &from1
}

// A checkReport is the JSON result of ledger store check: the amount of data that was
// read, and the findings.
type checkReport struct {
	Store       string           `json:"store"`
	Records     uint64           `json:"records"`
	Streams     int              `json:"streams"`
	Checkpoints int              `json:"checkpoints"`
	Outputs     int              `json:"outputs"`
	Files       int              `json:"files"`
	Bytes       int64            `json:"bytes"`
	End         *events.Position `json:"end"`    // of the last record
	Digest      *string          `json:"digest"` // of all records; null if a record could not be read
	Opened      bool             `json:"opened"` // the records could be read; false: only the files were checked
	Closed      bool             `json:"closed"` // the last process closed the store in order
	Locked      bool             `json:"locked"` // the check held the lock, so that no process wrote meanwhile
	Damages     []damageRow      `json:"damages"`
}

// Check checks the folder that o names and prints the result to p. It opens nothing
// for writing. Any damage is a fault.Error with exit code 3.
func Check(ctx context.Context, p *render.Printer, o *stores.Opener) error {
	dir, err := existingFolder(o)
	if err != nil {
		return err
	}
	c, err := checkFolder(ctx, p, dir)
	if err != nil {
		return err
	}
	if err := p.Object(c, func() { printCheck(p, c) }); err != nil || len(c.Damages) == 0 {
		return err
	}
	return &fault.Error{
		Exit: fault.ExitUnverified, Code: "damaged", Err: fmt.Errorf("check %s: %s", dir, render.Count(len(c.Damages), "damage")),
		Hint: "keep a copy of the folder as it is, and restore the last backup beside it: ledger store restore BACKUP --store NEW",
	}
}

// existingFolder returns the folder that o names, or a not-found error if the folder does
// not exist.
func existingFolder(o *stores.Opener) (string, error) {
	dir, err := o.Folder()
	if err == nil && stores.Missing(dir) {
		return "", stores.NoStore(dir)
	}
	return dir, err
}

// checkFolder checks the log and the outputs of the store in dir, and that every output
// that a record names exists. The result lists the damage. An error means that the check
// could not be completed.
func checkFolder(ctx context.Context, p *render.Printer, dir string) (*checkReport, error) {
	c := &checkReport{Store: dir, Damages: []damageRow{}}
	progress := p.Progress()
	defer progress.End()
	named := engine.NewReferencedOutputs()
	log, err := integrity.Check(ctx, dir, func(f integrity.Finding) {
		c.Damages = append(c.Damages, damageRow{
			Part: "log", File: render.OrNull(f.File), Offset: zeroBased(f.Offset), Position: render.OrNull(f.Position), Through: render.OrNull(f.Through),
			Stream: render.OrNull(f.Stream), Revision: render.OrNull(f.Revision), Detail: f.Detail,
		})
	}, integrity.Options{Checkpoint: checkCheckpoint, Record: named.Add, Progress: progress.Check})
	if err != nil {
		return nil, err
	}
	c.Records, c.Streams, c.Checkpoints, c.End, c.Digest = log.Records, log.Streams, log.Checkpoints, render.OrNull(log.End), render.OrNull(log.Digest)
	c.Files, c.Bytes, c.Opened, c.Closed, c.Locked = log.Files, log.Bytes, log.Opened, log.Closed, log.Locked
	checked, err := outputs.Check(ctx, filepath.Join(dir, stores.OutputsName), nil, func(f outputs.Corruption) {
		row := damageRow{Part: stores.OutputsName, Offset: zeroBased(f.Offset), Detail: f.Detail}
		if f.File != "" {
			row.File = render.OrNull(stores.OutputsName + "/" + f.File)
		}
		if !f.Ref.Settlement().IsZero() {
			row.Output = render.OrNull(f.Ref.String())
		}
		c.Damages = append(c.Damages, row)
	}, func(bytes, total int64) { progress.Bytes("outputs", bytes, total) })
	if err != nil {
		return nil, err
	}
	known, err := outputs.Inventory(ctx, filepath.Join(dir, stores.OutputsName), nil)
	if err != nil && checked.Opened {
		return c, context.Cause(ctx) // the findings already list unreadable outputs
	}
	for _, lost := range named.Missing(known) {
		c.Damages = append(c.Damages, damageRow{Part: stores.OutputsName, Output: render.OrNull(lost.Ref.String()), Stream: render.OrNull(lost.Stream), Detail: lost.Reason})
	}
	c.Outputs, c.Files, c.Bytes = checked.Outputs, c.Files+checked.Files, c.Bytes+checked.Bytes
	return c, nil
}

// checkCheckpoint returns the damage of a checkpoint, or nil. The checkpoints of
// consumers, bus groups, persistent subscriptions and the store itself must be JSON. Any
// other checkpoint must be the stored state of a projection.
func checkCheckpoint(name string, data []byte) error {
	for _, other := range []string{"publish", "bus/", "group/", "store/"} {
		if !strings.HasPrefix(name, other) {
			continue
		}
		if len(data) > 0 && !json.Valid(data) {
			return errors.New("it is not JSON")
		}
		return nil
	}
	return projections.CheckpointFault(data)
}

// printCheck prints the result of a check for a person.
func printCheck(p *render.Printer, c *checkReport) {
	t := render.Table{Head: []string{"~DAMAGED", "?>OFFSET", ">POSITION", "?>THROUGH", "~STREAM", "?>REVISION", "~OUTPUT", "~DETAIL"}}
	for _, d := range c.Damages {
		file, offset, stream, revision := d.Part, "", "", ""
		if d.File != nil {
			file = *d.File
		}
		if d.Offset != nil {
			offset = fmt.Sprint(*d.Offset)
		}
		if d.Stream != nil {
			stream = render.OneLine(string(*d.Stream), 40)
		}
		if d.Revision != nil {
			revision = fmt.Sprint(*d.Revision)
		}
		t.Add(p.Styled(render.Red, file), offset, render.StringOf(d.Position), render.StringOf(d.Through), stream, revision, render.ValueOf(d.Output), render.OneLine(d.Detail, 160))
	}
	if len(t.Rows) > 0 {
		p.Table(t)
		p.Line("")
	}
	p.Line("%s in %s, %s and %s read: %s.", render.Count(int(c.Records), "record"), render.Count(c.Streams, "stream"), render.Count(c.Checkpoints, "checkpoint"),
		render.Count(c.Outputs, "output"), render.Count(c.Files, "file")+" of "+render.Bytes(c.Bytes))
	if !c.Opened {
		p.Line("The records could not be read: the database does not open. Its files were looked at.")
	}
	if !c.Closed {
		p.Line("The store was not closed in order: that nothing is missing at its end is not proven.")
	}
	if !c.Locked {
		p.Line("The lock of the folder is missing or may not be read: a process may have written meanwhile.")
	}
	if c.Digest != nil {
		p.Line("Digest to position %s: %s", render.StringOf(c.End), *c.Digest)
	}
	if len(c.Damages) == 0 {
		p.Line("%s", p.Styled(render.Green, "✓ everything is as it was written"))
		return
	}
	p.Line("%s", p.Styled(render.Red, "✗ "+render.Count(len(c.Damages), "damage")))
}
