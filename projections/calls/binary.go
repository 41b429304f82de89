package calls

import (
	"encoding/json"

	"github.com/settlement-ledger/ledger/projections"
)

// AppendBinary appends what UnmarshalBinary reads: the sessions, the calls that
// have ended as they are packed, the others, and the rest as JSON, in
// compressed blocks. It is the same for states that answer the same and were
// folded from the same events.
func (s *State) AppendBinary(b []byte) ([]byte, error) {
	w := blockWriter{to: b}
	small, err := projections.Encode(s.kept)
	if err != nil {
		return b, err
	}
	text(&w.packer, &small)
	w.count(len(s.kept.Sessions))
	for _, known := range s.kept.Sessions {
		if err := known.pack(&w.packer); err != nil {
			return b, err
		}
		w.border()
	}
	s.tables.pack(&w.packer)
	live := packer{tables: &tables{}}
	w.count(len(s.shelf.live))
	r := s.reader()
	for i, c := range s.shelf.live {
		var packed []byte
		if c != nil {
			s.pack(&live, c)
		} else {
			packed = r.packed(i)
		}
		text(&w.packer, &packed) // none where it is live
		w.border()
	}
	live.tables.pack(&w.packer)
	w.b = append(w.b, live.b...)
	return w.end(), nil
}

// UnmarshalBinary makes s what AppendBinary was called on.
func (s *State) UnmarshalBinary(data []byte) error {
	*s = *New()
	p := &packer{reading: true, blocks: data}
	p.border()
	var small []byte
	if text(p, &small); p.broken {
		return errTorn
	}
	if err := json.Unmarshal(small, &s.kept); err != nil {
		return err
	}
	for i := range p.count(0) {
		known := &session{number: i}
		if err := known.pack(p); err != nil {
			return err
		}
		s.kept.Sessions = append(s.kept.Sessions, known)
		p.border()
	}
	s.tables.pack(p)
	s.index()
	s.readCalls(p)
	if p.broken || len(p.b) > 0 || len(p.blocks) > 0 {
		return errTorn
	}
	return nil
}

// readCalls reads the calls: first all that are packed, then those that are
// live.
func (s *State) readCalls(p *packer) {
	n := p.count(0)
	s.shelf.live, s.shelf.packed.places = make([]*record, n), make([]place, n)
	var live []int
	for i := range n {
		size := p.count(0)
		if packed := p.take(uint64(size)); len(packed) > 0 {
			s.shelf.packed.put(i, packed)
		} else {
			live = append(live, i)
		}
		p.border()
	}
	own := &tables{}
	own.pack(p)
	p.tables = own
	for _, i := range live {
		c := &record{number: i}
		if s.pack(p, c); p.broken {
			return
		}
		s.shelf.live[i] = c
	}
	r := s.reader()
	for i := range n {
		c := s.shelf.live[i]
		if c == nil {
			c = &record{}
			flags, key := uint32(0), &packer{b: r.packed(i), reading: true}
			s.packKey(key, c)
			if unsigned(key, &flags); key.broken {
				p.tear()
				return
			}
			s.shelf.mark(i, flags&hasAsked == 0)
		}
		s.shelf.index.add(hash(c.session, c.Key()))
	}
}

// pack goes through a session.
func (known *session) pack(p *packer) error {
	small, err := []byte(nil), error(nil)
	if !p.reading {
		if small, err = projections.Encode(known); err != nil {
			return err
		}
	}
	text(p, &small)
	if p.reading {
		if p.broken {
			return errTorn
		}
		if err := json.Unmarshal(small, known); err != nil {
			return err
		}
	}
	packSeen(p, &known.turns)
	if p.reading {
		known.offered = make([]int, len(known.turns.list))
	}
	for i := range known.offered {
		unsigned(p, &known.offered[i])
	}
	packSeen(p, &known.answered)
	return nil
}
