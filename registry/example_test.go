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

// A scope registers tools in a layer until it is closed. Package runner/engine
// shows a whole program, which also settles calls.
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
		Description: "Greets a person.",
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
	turn, err := r.Materialize(ctx, registry.TurnSpec{ID: mint.Turn()})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range turn.Definitions() {
		fmt.Println(d.Name, d.Description)
	}

	fmt.Println(scope.Close(ctx))
	turn, err = r.Materialize(ctx, registry.TurnSpec{ID: mint.Turn()})
	fmt.Println(len(turn.Definitions()), err)
	fmt.Println(application.Close(ctx))
	// Output:
	// register 1 tools: Invalid tool name: "hello world" is not a letter and up to 63 letters, digits, _ and -
	// greet Greets a person.
	// <nil>
	// 0 <nil>
	// <nil>
}
