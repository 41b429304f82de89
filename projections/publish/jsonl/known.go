package jsonl

// known are the IDs of records that are in the file and may come again: those
// that were behind the position of the consumer when the file opened, until they
// have come, and the last ones that came.
type known struct {
	opened         map[string]bool
	recent, before map[string]bool // that came, and those before them
}

// mostRecent is how many of the last ones are known, and up to twice as many.
const mostRecent = 4096

func (k *known) has(id string) bool { return k.opened[id] || k.recent[id] || k.before[id] }

// add says that a record came, and is in the file.
func (k *known) add(id string) {
	delete(k.opened, id)
	if k.recent == nil || len(k.recent) >= mostRecent {
		k.recent, k.before = map[string]bool{}, k.recent
	}
	k.recent[id] = true
}
