package calls_test

import "fmt"

// A call that began and has no end is an exception until it is settled.
func ExampleState_Exceptions() {
	d := newDesk()
	d.ask("call_1")
	d.add(d.started("call_1"))
	for _, e := range d.state().Exceptions() {
		fmt.Printf("%s: %s: %s\n", e.Call, e.Law, e.Detail)
	}
	d.add(d.settled("call_1"))
	fmt.Println("exceptions:", len(d.state().Exceptions()))
	// Output:
	// call_1: a call ends: it began and has no end
	// exceptions: 0
}
