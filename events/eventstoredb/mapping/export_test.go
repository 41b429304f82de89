package mapping

import "github.com/settlement-ledger/ledger/events"

// Read and Parse are the two ways to what custom metadata say of a record.
func Read(r *events.Record, f Form) bool { return read(r, f.Metadata) }

func Parse(r *events.Record, f Form) (own bool, err error) { return f.parse(r) }
