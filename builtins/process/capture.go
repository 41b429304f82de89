package process

// A Capture is the kept part of an output: its beginning and, if bytes were lost, its
// end.
type Capture struct {
	Head []byte // the beginning, or the whole output if Lost is zero
	Tail []byte // the end; empty if Lost is zero
	Lost int64  // bytes between Head and Tail that were dropped
}

// A captureBuffer is an io.Writer that keeps the first and the last halfLimit bytes, in
// constant memory. Its Write never fails. It belongs to one goroutine.
type captureBuffer struct {
	head, tail []byte // at most halfLimit bytes; tail is a ring buffer once it is full
	halfLimit  int    // maximum size of head and of tail, in bytes
	ringStart  int    // index in tail of the oldest byte
	written    int64  // bytes written in total
}

// Write keeps or drops the bytes of p and returns len(p).
func (r *captureBuffer) Write(p []byte) (int, error) {
	n := len(p)
	r.written += int64(n)
	if room := r.halfLimit - len(r.head); room > 0 {
		room = min(room, len(p))
		r.head = append(r.head, p[:room]...)
		p = p[room:]
	}
	if len(p) > r.halfLimit {
		p = p[len(p)-r.halfLimit:]
	}
	for len(p) > 0 {
		p = p[r.appendTail(p):]
	}
	return n, nil
}

// appendTail copies as much of p as fits behind the newest byte of the tail, overwrites
// the oldest bytes of a full tail, and returns the number of copied bytes.
func (r *captureBuffer) appendTail(p []byte) int {
	if len(r.tail) < r.halfLimit {
		n := min(r.halfLimit-len(r.tail), len(p))
		r.tail = append(r.tail, p[:n]...)
		return n
	}
	n := copy(r.tail[r.ringStart:], p)
	r.ringStart = (r.ringStart + n) % r.halfLimit
	return n
}

// capture returns the kept bytes in order. The buffer is not used afterwards.
func (r *captureBuffer) capture() Capture {
	c := Capture{Head: r.head, Lost: r.written - int64(len(r.head)) - int64(len(r.tail))}
	if c.Lost == 0 {
		c.Head = append(c.Head, r.tail...)
		return c
	}
	c.Tail = append(append(c.Tail, r.tail[r.ringStart:]...), r.tail[:r.ringStart]...)
	return c
}
