package embedded

import (
	"math"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
)

// A matcher applies a filter to the header of an encoded record, without decoding the
// record. It accepts exactly the records that the filter accepts. It is immutable.
type matcher struct {
	kinds       []string // empty: every kind
	categories  []string // empty: every category
	prefixes    []string // of stream names; empty: every stream
	first, last int64    // accepted times, both ends included, in microseconds of Unix time
}

// newMatcher returns the matcher of a valid filter. It converts Since and Until,
// which may have nanoseconds or lie outside the range of 64 bits, to whole
// microseconds.
func newMatcher(f events.Filter) matcher {
	m := matcher{
		// Copies, because the caller may change its slices while the loop runs.
		kinds: slices.Clone(f.Kinds), categories: slices.Clone(f.Categories), prefixes: slices.Clone(f.Prefixes),
		first: math.MinInt64, last: math.MaxInt64,
	}
	nothing := matcher{first: 1} // after last: it accepts no record
	if !f.Since.IsZero() {
		switch first, side := microsecond(f.Since); side {
		case 0:
			m.first = first
		case 1:
			return nothing
		}
	}
	if !f.Until.IsZero() {
		switch until, side := microsecond(f.Until); {
		case side < 0 || side == 0 && until == math.MinInt64:
			return nothing
		case side == 0:
			m.last = until - 1
		}
	}
	return m
}

// microsecond returns the first whole microsecond of Unix time at or after t. If t is
// outside the range of 64 bits, us is not valid: side is -1 if t is before the range,
// and 1 if it is after. For any other t, side is 0.
func microsecond(t time.Time) (us int64, side int) {
	switch {
	case t.Before(time.UnixMicro(math.MinInt64)):
		return 0, -1
	case t.After(time.UnixMicro(math.MaxInt64)):
		return 0, 1
	}
	us = t.UnixMicro()
	if t.Nanosecond()%1000 != 0 {
		us++
	}
	return us, 0
}

// always reports whether m accepts every record.
func (m *matcher) always() bool {
	return m.timeless() && len(m.kinds) == 0 && len(m.categories) == 0 && len(m.prefixes) == 0
}

// timeless reports whether m accepts every time.
func (m *matcher) timeless() bool { return m.first == math.MinInt64 && m.last == math.MaxInt64 }

// match reports whether m accepts a record.
func (m *matcher) match(r layout.RawRecord) bool {
	if at := r.Micros(); at < m.first || at > m.last {
		return false
	}
	return oneOf(m.kinds, r.Kind(), is) && oneOf(m.categories, r.Stream(), inCategory) && oneOf(m.prefixes, r.Stream(), begins)
}

// oneOf reports whether the function stands accepts the name with at least one element
// of the list these. An empty list accepts every name.
func oneOf(these []string, name []byte, stands func([]byte, string) bool) bool {
	for _, one := range these {
		if stands(name, one) {
			return true
		}
	}
	return len(these) == 0
}

// is reports whether a kind is equal to the name in a record.
func is(name []byte, kind string) bool { return string(name) == kind }

// begins reports whether a stream name has a prefix.
func begins(name []byte, prefix string) bool {
	return len(name) >= len(prefix) && string(name[:len(prefix)]) == prefix
}

// inCategory reports whether a stream is in a category, which has no hyphen.
func inCategory(name []byte, category string) bool {
	return begins(name, category) && (len(name) == len(category) || name[len(category)] == '-')
}
