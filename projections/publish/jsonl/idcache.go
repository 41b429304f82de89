package jsonl

// An idCache holds the IDs of records that the file has and that the relay may
// publish again. It has two sets:
//
//   - The records after the consumer's position that the file had when it was opened.
//     A record leaves this set when it is published again.
//   - The last records written, at least generationSize of them. This set has two
//     generations, and the older one is dropped when the younger is full.
type idCache struct {
	// fromFile has the IDs that were read from the file.
	fromFile map[string]bool
	// young and old are the generations of published records.
	young, old map[string]bool
}

// generationSize is the number of IDs in a generation.
const generationSize = 4096

// has reports whether a record is known to be in the file.
func (c *idCache) has(id string) bool { return c.fromFile[id] || c.young[id] || c.old[id] }

// add adds a record that was published and is in the file.
func (c *idCache) add(id string) {
	delete(c.fromFile, id)
	if c.young == nil || len(c.young) >= generationSize {
		c.young, c.old = map[string]bool{}, c.young
	}
	c.young[id] = true
}
