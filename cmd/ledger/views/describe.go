package views

import "github.com/settlement-ledger/ledger/events"

// Describe returns the content of an event as text, which may have several lines and is not
// made printable.
func Describe(e events.Event) string { return describe(e) }
