package plugins_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner/plugins"
)

// greeter is a plugin with one tool.
type greeter struct{}

func (greeter) Name() string { return "greeter" }

func (greeter) Install(ctx context.Context, scope plugins.PluginScope, at plugins.PluginLocation) error {
	greet, err := domain.Make(domain.Spec[struct{}, string]{
		Description: "Greets.",
		Execute: func(context.Context, struct{}, domain.Invocation) (string, error) {
			return "Hello from " + at.Folder, nil
		},
	})
	if err != nil {
		return err
	}
	return scope.Register(ctx, map[string]domain.Tool{"greet": greet})
}

// A host installs a plugin in the layer of a location.
func Example() {
	ctx := context.Background()
	mint := domain.NewMint(time.Now, rand.Reader)
	ledger := events.NewLedger(eventstest.NewSlice(), mint, time.Now)
	layers := registry.NewLayers(ledger, mint.Process())
	layer, err := layers.Location(ctx, "/src")
	if err != nil {
		log.Fatal(err)
	}
	host, err := plugins.New(plugins.Config{Layer: layer, Location: plugins.PluginLocation{Folder: "/src", Permission: yes{}}})
	if err != nil {
		log.Fatal(err)
	}
	if err := host.Install(ctx, greeter{}); err != nil {
		log.Fatal(err)
	}
	tools, err := layers.Registry(registry.Config{}, layer)
	if err != nil {
		log.Fatal(err)
	}
	offer, err := tools.Materialize(ctx, registry.TurnSpec{ID: mint.Turn()})
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range offer.Definitions() {
		fmt.Println(d.Name, d.Description)
	}
	if err := host.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: greet Greets.
}
