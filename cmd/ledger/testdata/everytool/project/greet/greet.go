// Package greet makes greetings.
package greet

// Hello returns a greeting.
func Hello(name string) string { return "Helo, " + name }
