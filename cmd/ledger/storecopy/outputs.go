package storecopy

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/spill"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// copyOutputs copies the outputs that settlements of the source name and the target lacks. It
// skips pruned outputs, and counts outputs that the source lacks as missing. The list of
// outputs is in a temporary database, as it may not fit into memory.
func (c *copier) copyOutputs(ctx context.Context) (err error) {
	memory, err := spill.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, memory.Close()) }()
	retained, err := c.retained(ctx, memory)
	if err != nil {
		return err
	}
	passed := int64(0)
	for named := range retained.All() {
		if err := c.copyOutput(ctx, *named); err != nil {
			return err
		}
		passed += named.Bytes // output reports fewer bytes if it skips the output or fails to find it
		c.addBytes(passed - c.bytes.done)
	}
	return memory.Err()
}

// maxHeldOutputs is the number of outputs of the list in memory.
const maxHeldOutputs = 8192

// retained lists the outputs that settlements of the source name and that no event pruned,
// and adds their sizes to the total.
func (c *copier) retained(ctx context.Context, memory *spill.Store) (*spill.Map[domain.Ref, domain.Retained], error) {
	all := spill.NewMap(memory, spill.Options[domain.Ref, domain.Retained]{Text: domain.Ref.String, Limit: maxHeldOutputs})
	settled := events.Query{Filter: events.Filter{Kinds: []string{events.CallSettled{}.Kind(), events.OutputPruned{}.Kind()}}}
	for v, err := range c.from.Ledger.ScanAhead(ctx, settled) {
		if err != nil {
			return nil, err
		}
		switch e := v.Event.(type) {
		case events.CallSettled:
			for _, named := range e.Retained {
				if all.Get(named.Ref) == nil {
					all.Put(named.Ref, &named)
					c.bytes.total += named.Bytes
				}
			}
		case events.OutputPruned:
			if named := all.Get(e.Retained.Ref); named != nil {
				c.bytes.total -= named.Bytes
				all.Delete(e.Retained.Ref)
			}
		}
		all.Trim()
	}
	return all, memory.Err()
}

// addBytes adds n bytes to the progress and displays it.
func (c *copier) addBytes(n int64) {
	c.bytes.done += n
	c.progress.Bytes("outputs", c.bytes.done, c.bytes.total)
}

// A countingReader is a reader that calls add with the number of bytes of each Read.
type countingReader struct {
	io.Reader
	add func(int64)
}

// Read implements io.Reader.
func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.add(int64(n))
	return n, err
}

// copyOutput copies one output, unless the target has it or has pruned it. It then
// confirms the output in the target, because the copied log has the settlement. It
// returns ErrDamaged if the bytes do not match the size and the digest in the
// settlement.
func (c *copier) copyOutput(ctx context.Context, named domain.Retained) error {
	to := &Target{name: c.totals.To, store: c.to}
	if has, err := to.HasOutput(ctx, named); has || err != nil {
		return err
	}
	from, err := c.from.Outputs.Open(ctx, named.Ref)
	if errors.Is(err, outputs.ErrNotFound) || errors.Is(err, outputs.ErrPruned) || stores.NodeFailed(err) {
		c.totals.Missing++
		return nil
	}
	if err != nil {
		return fmt.Errorf("copy from %s: %w", c.totals.From, err)
	}
	defer from.Close()
	if err := to.KeepOutput(ctx, named, countingReader{from, c.addBytes}); err != nil {
		return err
	}
	c.totals.Outputs++
	return nil
}
