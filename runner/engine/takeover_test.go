package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// A process that takes over a folder keeps the outputs that its running calls stored
// with the holder before it, although their settlements are not on record yet and no
// other process is alive. The start of a later process sweeps an output whose settlement
// was never recorded.
func TestATakeoverKeepsTheOutputsOfRunningCalls(t *testing.T) {
	t.Parallel()
	l, disk := ledgerOver(eventstest.NewSlice()), vfs.NewMem()
	open := func() *outputs.Store {
		t.Helper()
		s, err := outputs.Open("outputs", outputs.Config{FS: disk})
		if err != nil {
			t.Fatalf("Open = %v", err)
		}
		return s
	}
	kept := open()
	config := engine.ProcessConfig{Ledger: l, Lease: time.Hour, SweepOutputs: func(ctx context.Context, recorded func(context.Context, domain.EventID) (bool, error)) error {
		_, err := kept.Sweep(ctx, recorded)
		return err
	}}
	p := start(t, config)
	ref := domain.NewRef(l.Mint().Event(), domain.TextChannel)
	if _, err := kept.Keep(t.Context(), ref, "", strings.NewReader("the output of a running call")); err != nil {
		t.Fatalf("Keep = %v", err)
	}
	reopen := func() {
		t.Helper()
		if err := kept.Close(); err != nil {
			t.Fatalf("Close = %v", err)
		}
		kept = open()
	}
	reopen() // as the new holder does
	if _, err := p.Recover(t.Context()); err != nil {
		t.Fatalf("Recover = %v", err)
	}
	if _, err := kept.Stat(t.Context(), ref); err != nil {
		t.Errorf("after the takeover Stat = %v, want the output of the running call", err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatalf("Close = %v", err)
	}
	reopen()
	config.Recover = true
	next := start(t, config)
	if _, err := kept.Stat(t.Context(), ref); !errors.Is(err, outputs.ErrNotFound) {
		t.Errorf("after the next start Stat = %v, want ErrNotFound", err)
	}
	if err := errors.Join(next.Close(t.Context()), kept.Close()); err != nil {
		t.Errorf("Close = %v", err)
	}
}
