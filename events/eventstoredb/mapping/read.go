package mapping

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// What stands before the version and before the time of a record.
const (
	beforeVersion = `{"$ledger":{"v":`
	beforeTime    = `,"t":"`
)

// read sets what the custom metadata say of a record if they are as Of writes
// them, with the record's own beside $ledger, and reports whether they are.
// Nearly all are, and to parse any object takes longer.
func read(r *events.Record, metadata []byte) bool {
	text, ok := bytes.CutPrefix(metadata, []byte(beforeVersion))
	if !ok {
		return false
	}
	number, text, ok := bytes.Cut(text, []byte(beforeTime))
	if !ok || len(text) <= len(layout)+2 || string(text[len(layout):len(layout)+2]) != `"}` {
		return false
	}
	version, err := strconv.ParseUint(string(number), 10, 16)
	if err != nil || number[0] == '0' {
		return false
	}
	at, err := time.Parse(layout, string(text[:len(layout)]))
	if err != nil {
		return false
	}
	own, ok := beside(text[len(layout)+2:])
	if ok {
		r.Version, r.Time, r.Metadata = int(version), at.UTC(), own
	}
	return ok
}

// beside returns the object whose members stand behind $ledger, in memory of
// its own, if that is sure to be one.
func beside(tail []byte) ([]byte, bool) {
	if string(tail) == "}" {
		return []byte("{}"), true
	}
	if !bytes.HasPrefix(tail, []byte(`,"`)) || tail[len(tail)-1] != '}' || mayHave(tail) {
		return nil, false
	}
	own := bytes.Clone(tail)
	own[0] = '{'
	return own, json.Valid(own)
}
