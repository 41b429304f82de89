package conversation_test

import "fmt"

// A model reads prompts, replies, and an answer to each call.
func ExampleState_ModelMessages() {
	d := newDesk()
	d.prompt("What is in a?")
	message := d.answer("I look.", call("call_1"))
	d.start(message, "call_1")
	d.settle(message, "call_1", "one line")
	for _, m := range d.state().ModelMessages() {
		fmt.Printf("%s: %s%s\n", m.Role, m.Text, m.Reading.Text)
	}
	// Output:
	// user: What is in a?
	// assistant: I look.
	// tool: one line
}
