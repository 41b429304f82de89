package stores

import (
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
)

// DescribeDeletion describes a change that an administrator made to a stream, with its time.
// EventStoreDB does not record the user.
func DescribeDeletion(i eventstoredb.Deletion) string {
	when := fmt.Sprintf("at %s (event %s at position %s; the server does not record by whom)", i.Time.Format(time.RFC3339), i.EventID, i.Position)
	if i.Tombstone {
		return "the stream was deleted permanently, by a tombstone, " + when
	}
	return "the metadata was set to " + render.OneLine(i.Metadata, 100) + " " + when
}

// DeletionRemedy returns advice on how an administrator restores hidden records. A
// tombstone is final: for it the advice is how to save the remaining records.
func DeletionRemedy(i eventstoredb.Deletion) string {
	if i.Tombstone {
		return "a tombstone cannot be removed: do not scavenge, and copy the remaining records with ledger store copy"
	}
	return fmt.Sprintf("do not scavenge; as an administrator, write metadata without $tb, $maxCount and $maxAge to the stream, in $$%s", i.Name)
}

// Sequence returns the first part of a position. In an embedded store it is the
// sequence number of the record, which rises by one with each record.
func Sequence(p events.Position) uint64 {
	n, _ := p.Parts()
	return n
}
