package registry_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/registry"
)

func ExampleScope_Register() {
	store := eventstest.NewSlice()
	ctx, mint := context.Background(), domain.NewMint(time.Now, rand.NewChaCha8([32]byte{}))
	ledger := events.NewLedger(store, mint, time.Now)
	layers := registry.NewLayers(ledger, mint.Process())
	application, err := layers.Application(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	greet, err := domain.Make(domain.Spec[struct{ Name string }, string]{
		Description: "Greets somebody.",
		Execute: func(_ context.Context, in struct{ Name string }, _ domain.Invocation) (string, error) {
			return "Hello, " + in.Name, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	scope := application.Scope()
	fmt.Println(scope.Register(ctx, registry.Tools{"hello world": greet}))
	if err := scope.Register(ctx, registry.Tools{"greet": greet}); err != nil {
		fmt.Println(err)
		return
	}

	r, err := layers.Registry(registry.Config{}, application)
	if err != nil {
		fmt.Println(err)
		return
	}
	turn, err := r.Materialize(ctx, registry.Turn{ID: mint.Turn()})
	if err != nil {
		fmt.Println(err)
		return
	}
	session := mint.Session()
	journal := newJournal(ledger.Writer(events.SessionStream(session), 0))
	as := domain.Invocation{Session: session, Agent: "build", Message: mint.Message()}
	settled, err := turn.Settle(ctx, journal, as, domain.Call{ID: "1", Name: "greet", Input: []byte(`{"Name":"Ada"}`)})
	fmt.Println(settled.Outcome, settled.Reading().Text, err)

	fmt.Println(scope.Close(ctx))
	settled, err = turn.Settle(ctx, journal, as, domain.Call{ID: "2", Name: "greet", Input: []byte(`{"Name":"Ada"}`)})
	fmt.Println(settled.Outcome, settled.Text, err)
	// Output:
	// register 1 tools: Invalid tool name: "hello world" is not a letter and up to 63 letters, digits, _ and -
	// succeeded Hello, Ada <nil>
	// <nil>
	// stale Stale tool call: greet <nil>
}
