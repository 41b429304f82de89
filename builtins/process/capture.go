package process

// A Capture is the captured part of an output.
type Capture struct {
	Head []byte // the beginning; all of it where nothing is lost and it fits
	Tail []byte // the end, after what was lost
	Lost int64  // how many bytes lay between Head and Tail
}

// A captureBuffer keeps the first and the last bytes written to it, in constant memory. Its
// Write never fails.
type captureBuffer struct {
	head, tail []byte // tail is a ring once it is full
	halfLimit  int    // the limit of each
	ringStart  int    // where the ring goes on
	written    int64
}

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

// appendTail copies the beginning of p into the ring and returns the number of bytes.
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

func (r *captureBuffer) capture() Capture {
	c := Capture{Head: r.head, Lost: r.written - int64(len(r.head)) - int64(len(r.tail))}
	if c.Lost == 0 {
		c.Head = append(c.Head, r.tail...)
		return c
	}
	c.Tail = append(append(c.Tail, r.tail[r.ringStart:]...), r.tail[:r.ringStart]...)
	return c
}
