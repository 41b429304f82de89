package mapping

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// The texts before the version and before the time of a record, as wrapMetadata
// writes them.
const (
	versionPrefix = `{"$ledger":{"v":`
	timePrefix    = `,"t":"`
)

// readFast sets the version, time and metadata of a record from custom metadata in the
// exact form of FromRecord with embedded metadata. It returns false for every other
// form, which parse decodes. Nearly all events have this form, and decoding JSON takes
// longer.
func readFast(r *events.Record, metadata []byte) bool {
	text, ok := bytes.CutPrefix(metadata, []byte(versionPrefix))
	if !ok {
		return false
	}
	number, text, ok := bytes.Cut(text, []byte(timePrefix))
	if !ok || len(text) <= len(timeLayout)+2 || string(text[len(timeLayout):len(timeLayout)+2]) != `"}` {
		return false
	}
	version, err := strconv.ParseUint(string(number), 10, 16)
	if err != nil || number[0] == '0' {
		return false
	}
	at, err := time.Parse(timeLayout, string(text[:len(timeLayout)]))
	if err != nil {
		return false
	}
	others, ok := otherMembers(text[len(timeLayout)+2:])
	if ok {
		r.Version, r.Time, r.Metadata = int(version), at.UTC(), others
	}
	return ok
}

// otherMembers returns the metadata of a record as a newly allocated JSON object. tail
// is the custom metadata behind the value of $ledger: the members that follow, and the
// end of the object. otherMembers returns false if tail is not valid, or may contain
// another $ledger.
func otherMembers(tail []byte) ([]byte, bool) {
	if string(tail) == "}" {
		return []byte("{}"), true
	}
	if !bytes.HasPrefix(tail, []byte(`,"`)) || tail[len(tail)-1] != '}' || mayHaveLedgerKey(tail) {
		return nil, false
	}
	object := bytes.Clone(tail)
	object[0] = '{'
	return object, json.Valid(object)
}
