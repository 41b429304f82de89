// Command greetings greets the people that its arguments name.
package main

import (
	"os"

	"example.org/greetings/greet"
)

func main() {
	for _, name := range os.Args[1:] {
		println(greet.Hello(name))
	}
}
