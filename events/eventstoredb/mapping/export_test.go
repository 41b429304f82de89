package mapping

import "github.com/settlement-ledger/ledger/events"

// ReadFast and Parse are the two decoders of custom metadata.
func ReadFast(r *events.Record, f RawEvent) bool { return readFast(r, f.Metadata) }

func Parse(r *events.Record, f RawEvent) (own bool, err error) { return f.parse(r) }
