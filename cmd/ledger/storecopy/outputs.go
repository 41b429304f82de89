package storecopy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// copyOutputs copies the outputs that settlements of the source name and the target lacks. It
// skips pruned outputs, and counts outputs that the source lacks as missing.
func (c *copier) copyOutputs(ctx context.Context) error {
	state, err := stores.Current(ctx, c.from, calls.Projection())
	if err != nil {
		return err
	}
	retained := slices.DeleteFunc(state.Retained(), func(r calls.Retention) bool { return r.Pruned })
	for _, named := range retained {
		c.bytes.total += named.Bytes
	}
	passed := int64(0)
	for _, named := range retained {
		if err := c.copyOutput(ctx, named.Retained); err != nil {
			return err
		}
		passed += named.Bytes // output reports fewer bytes if it skips the output or fails to find it
		c.addBytes(passed - c.bytes.done)
	}
	return nil
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
	// LocalOutputs ignores other nodes: the target must store the output itself.
	found, err := c.to.LocalOutputs.Stat(ctx, named.Ref)
	if err == nil && found == named || errors.Is(err, outputs.ErrPruned) {
		return nil
	}
	if err != nil && !errors.Is(err, outputs.ErrNotFound) {
		return fmt.Errorf("copy to %s: %w", c.totals.To, err)
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
	kept, err := c.to.LocalOutputs.Keep(ctx, named.Ref, named.MIME, countingReader{from, c.addBytes})
	if err == nil && kept != named {
		err = fmt.Errorf("%w: %s has %d bytes with SHA-256 %s, and its settlement says %d and %s", outputs.ErrDamaged, named.Ref, kept.Bytes, kept.SHA256, named.Bytes, named.SHA256)
	}
	if err == nil {
		err = c.to.LocalOutputs.Confirm(ctx, named.Ref.Settlement())
	}
	if err != nil {
		return fmt.Errorf("copy to %s: %w", c.totals.To, err)
	}
	c.totals.Outputs++
	return nil
}
