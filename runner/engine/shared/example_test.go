package shared_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// A program works in a folder in which other processes work too, such as ledger run.
func Example() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "example-")
	defer os.RemoveAll(dir)
	mint := domain.NewMint(time.Now, rand.Reader)
	id := mint.Process()
	store, err := shared.Open(ctx, dir, shared.Config{Command: "example", Process: id})
	if err != nil {
		panic(err)
	}
	p, err := engine.Start(ctx, engine.ProcessConfig{
		ID: id, Program: "example", Lease: runner.DefaultLease, InStore: true, Address: store.Node(),
		Ledger: events.NewLedger(store, mint, time.Now), Checkpoints: store, Outputs: store.Outputs(),
		Recover: store.Holds(),
		AdjustLiveness: func(j *runner.Liveness) error { // this process has the lock that these had
			j.Living = slices.DeleteFunc(j.Living, func(s events.ProcessStarted) bool {
				dead := slices.Contains(store.Before(), s.Process)
				if dead {
					j.Dead = append(j.Dead, s)
				}
				return dead
			})
			return nil
		},
		SweepOutputs: func(ctx context.Context, recorded func(context.Context, domain.EventID) (bool, error)) error {
			_, err := store.Sweep(ctx, recorded)
			return err
		},
	})
	fmt.Println(err, store.Holds(), store.Recovered())
	fmt.Println(p.Close(ctx), store.Close(ctx))
	// Output:
	// <nil> true <nil>
	// <nil> <nil>
}
