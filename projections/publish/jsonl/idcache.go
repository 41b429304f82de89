package jsonl

// idCache is the IDs of records that are in the file and may come again: those
// that were behind the position of the consumer when the file opened, until they
// have come, and the last ones that came.
type idCache struct {
	fromFile   map[string]bool
	young, old map[string]bool // that came, and those before them
}

// generationSize is how many of the last ones are known, and up to twice as many.
const generationSize = 4096

func (c *idCache) has(id string) bool { return c.fromFile[id] || c.young[id] || c.old[id] }

// add says that a record came, and is in the file.
func (c *idCache) add(id string) {
	delete(c.fromFile, id)
	if c.young == nil || len(c.young) >= generationSize {
		c.young, c.old = map[string]bool{}, c.young
	}
	c.young[id] = true
}
