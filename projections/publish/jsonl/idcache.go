package jsonl

// An idCache holds the IDs of records that are in the file and may be
// published again: the records after the consumer's position when the file was
// opened, until each is published again, and the last ones written. It keeps
// two generations and drops the older one when the younger is full.
type idCache struct {
	fromFile   map[string]bool
	young, old map[string]bool // that came, and those before them
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
