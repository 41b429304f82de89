package spill

import (
	"encoding/json"
	"iter"
)

// A Map holds values of type V by key. The values have a JSON form.
type Map[K comparable, V any] struct {
	store  *Store // nil: all values are in memory
	prefix byte
	text   func(K) string
	weigh  func(*V) int
	limit  int
	// young has the values that were used since the last turn of the generations, and old
	// those of the generation before. A Map without a Store has only young.
	young, old map[K]*held[V]
	weight     int // of young
}

// A held is a value in memory.
type held[V any] struct {
	value  *V
	weight int
	dirty  bool // the Store does not have this value
	stored bool // the Store has a value of the key
}

// Options configure a Map. The zero Options select a weight of 1 for each value.
type Options[K comparable, V any] struct {
	// Text returns a text that is different for each key.
	Text func(K) string
	// Weigh returns the weight of a value. It is called when the value is put.
	Weigh func(*V) int
	// Limit is the weight of the values in memory above which Trim moves values to the
	// Store.
	Limit int
}

// NewMap returns an empty Map over a Store. If the Store is nil, the Map keeps all values
// in memory.
func NewMap[K comparable, V any](s *Store, o Options[K, V]) *Map[K, V] {
	m := &Map[K, V]{store: s, text: o.Text, weigh: o.Weigh, limit: o.Limit, young: map[K]*held[V]{}, old: map[K]*held[V]{}}
	if s != nil {
		s.maps++
		m.prefix = s.maps
	}
	if m.weigh == nil {
		m.weigh = func(*V) int { return 1 }
	}
	return m
}

// Get returns the value of a key, or nil if there is none. The caller may change the value
// until the next Trim, and then calls Put.
func (m *Map[K, V]) Get(k K) *V {
	if h, ok := m.young[k]; ok {
		return h.value
	}
	if m.store == nil {
		return nil
	}
	h, ok := m.old[k]
	if ok {
		delete(m.old, k)
	} else {
		data := m.store.get(m.key(k))
		if data == nil {
			return nil
		}
		h = &held[V]{value: new(V), stored: true}
		if err := json.Unmarshal(data, h.value); err != nil {
			m.store.fail(err)
			return nil
		}
		h.weight = m.weigh(h.value)
	}
	m.young[k] = h
	m.weight += h.weight
	return h.value
}

// Put makes v the value of a key. The Map owns v until it returns it from Get.
func (m *Map[K, V]) Put(k K, v *V) {
	h, ok := m.young[k]
	if !ok {
		if h, ok = m.old[k]; ok {
			delete(m.old, k)
		} else {
			h = &held[V]{}
			// A value of the key may be in the Store, which Delete must know.
			h.stored = m.store != nil
		}
		m.young[k] = h
		m.weight += h.weight
	}
	weight := m.weigh(v)
	m.weight += weight - h.weight
	h.value, h.weight, h.dirty = v, weight, true
}

// Delete removes the value of a key.
func (m *Map[K, V]) Delete(k K) {
	h, ok := m.young[k]
	if ok {
		m.weight -= h.weight
		delete(m.young, k)
	} else if h, ok = m.old[k]; ok {
		delete(m.old, k)
	}
	if m.store != nil && (!ok || h.stored) {
		m.store.remove(m.key(k))
	}
}

// Trim moves values that were not used lately to the Store if the Map is over its limit.
// Pointers that Get returned are no longer valid.
func (m *Map[K, V]) Trim() {
	if m.store == nil || m.weight <= m.limit/2 {
		return
	}
	for k, h := range m.old {
		if !h.dirty {
			continue
		}
		data, err := json.Marshal(h.value)
		if err != nil {
			m.store.fail(err)
			return
		}
		m.store.set(m.key(k), data)
	}
	m.old, m.young, m.weight = m.young, map[K]*held[V]{}, 0
}

// All yields all values, in no order. The body of the loop must not use the Map.
func (m *Map[K, V]) All() iter.Seq[*V] {
	return func(yield func(*V) bool) {
		inMemory := map[string]bool{}
		for _, generation := range []map[K]*held[V]{m.young, m.old} {
			for k, h := range generation {
				if m.store != nil && h.stored {
					inMemory[m.text(k)] = true
				}
				if !yield(h.value) {
					return
				}
			}
		}
		if m.store == nil {
			return
		}
		for key, data := range m.store.all(m.prefix) {
			if inMemory[string(key[1:])] {
				continue
			}
			v := new(V)
			if err := json.Unmarshal(data, v); err != nil {
				m.store.fail(err)
				return
			}
			if !yield(v) {
				return
			}
		}
	}
}

// key returns the key of a value in the Store.
func (m *Map[K, V]) key(k K) []byte { return append([]byte{m.prefix}, m.text(k)...) }

// MarshalJSON writes the values in memory as an object by key. It serves checkpoints of a
// Map without a Store.
func (m *Map[K, V]) MarshalJSON() ([]byte, error) {
	all := make(map[K]*V, len(m.young))
	for k, h := range m.young {
		all[k] = h.value
	}
	return json.Marshal(all)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (m *Map[K, V]) UnmarshalJSON(data []byte) error {
	var all map[K]*V
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for k, v := range all {
		m.Put(k, v)
	}
	return nil
}
