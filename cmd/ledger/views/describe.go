package views

import (
	"cmp"

	"github.com/settlement-ledger/ledger/events"
)

// Describe returns the content of an event as text, which may have several lines and is not
// made printable.
func Describe(e events.Event) string { return describe(e) }

// KindLabel returns the word that pages show for a kind of event.
func KindLabel(kind string) string { return cmp.Or(kindLabels[kind], kind) }
