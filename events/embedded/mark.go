package embedded

import "sync"

// A mark is the sequence of the last durable record. Readers stop at it.
type mark struct {
	mu    sync.Mutex
	end   uint64
	moved chan struct{} // closed when the end moves
}

func newMark(end uint64) *mark { return &mark{end: end, moved: make(chan struct{})} }

// now returns the mark, and what is closed when it moves.
func (m *mark) now() (uint64, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.end, m.moved
}

func (m *mark) move(end uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end = end
	close(m.moved)
	m.moved = make(chan struct{})
}
