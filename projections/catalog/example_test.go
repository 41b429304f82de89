package catalog_test

import (
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// A location layer hides the tool of the same name in the application layer, and
// closing it reveals that tool.
func ExampleState_Catalog() {
	b := bench{projectionstest.NewLog(1)}
	app, location := b.open(domain.Application), b.open(domain.Location)
	b.register(app, "read", "write")
	b.register(location, "deploy", "read")
	show := func() {
		for _, e := range b.state().Catalog([]domain.LayerID{app, location}) {
			fmt.Println(e.Name, "of the", e.Placement)
		}
	}
	show()
	fmt.Println("closing the location:")
	b.closeLayer(location)
	show()
	// Output:
	// read of the location
	// write of the application
	// deploy of the location
	// closing the location:
	// read of the application
	// write of the application
}
