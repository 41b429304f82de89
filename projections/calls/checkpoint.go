package calls

import (
	"encoding/json"

	"github.com/settlement-ledger/ledger/projections"
)

// AppendBinary appends the checkpoint encoding of s to b. States that were folded
// from the same events have the same encoding. AppendBinary does not change s, and
// other goroutines may read s meanwhile. The encoding is the following sequence, cut
// into compressed blocks; a block ends after a session or a call:
//
//	smallState     JSON with its length
//	sessions       their number; for each its JSON, turns, offers and replies
//	tables         words, processes and offered registrations
//	calls          their number; for each its encoding with its length,
//	               and the length 0 for an unpacked one
//	tables         the same, of the unpacked calls
//	calls          the encodings of the unpacked calls, in order
func (s *State) AppendBinary(b []byte) ([]byte, error) {
	w := blockWriter{to: b}
	small, err := projections.Encode(s.kept)
	if err != nil {
		return b, err
	}
	text(&w.checkpointCodec, &small)
	w.count(len(s.kept.Sessions))
	for _, known := range s.kept.Sessions {
		if err := known.pack(&w.checkpointCodec); err != nil {
			return b, err
		}
		w.border()
	}
	s.tables.pack(&w.checkpointCodec)
	// Unpacked calls have tables of their own, because encoding adds to them and must
	// not change s.
	live := checkpointCodec{tables: &tables{}}
	w.count(len(s.store.live))
	r := s.reader()
	for i, c := range s.store.live {
		var packed []byte
		if c != nil {
			s.pack(&live, c)
		} else {
			packed = r.packed(i)
		}
		// The bytes are empty for an unpacked call.
		text(&w.checkpointCodec, &packed)
		w.border()
	}
	live.tables.pack(&w.checkpointCodec)
	w.b = append(w.b, live.b...)
	return w.end(), nil
}

// UnmarshalBinary is the inverse of AppendBinary. It replaces the contents of s. If
// data is not a valid encoding, it returns errCorrupt or an error of encoding/json,
// and the caller must not use s.
func (s *State) UnmarshalBinary(data []byte) error {
	*s = *New()
	p := &checkpointCodec{reading: true, blocks: data}
	p.border()
	var small []byte
	if text(p, &small); p.broken {
		return errCorrupt
	}
	if err := json.Unmarshal(small, &s.kept); err != nil {
		return err
	}
	for i := range p.count(0) {
		known := &checkedSession{number: i}
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
		return errCorrupt
	}
	return nil
}

// readCalls decodes the calls of a checkpoint, from the number of calls to its end.
// It copies the encodings of packed calls into pages without decoding them, decodes
// the unpacked calls, and then indexes the key of each call. Of a packed call it
// decodes only the key and the flags.
func (s *State) readCalls(p *checkpointCodec) {
	n := p.count(0)
	s.store.live, s.store.packed.places = make([]*callRecord, n), make([]pageOffset, n)
	var live []int
	for i := range n {
		size := p.count(0)
		if packed := p.take(uint64(size)); len(packed) > 0 {
			s.store.packed.put(i, packed)
		} else {
			live = append(live, i)
		}
		p.border()
	}
	own := &tables{}
	own.pack(p)
	p.tables = own
	for _, i := range live {
		c := &callRecord{number: i}
		if s.pack(p, c); p.broken {
			return
		}
		s.store.live[i] = c
	}
	r := s.reader()
	for i := range n {
		c := s.store.live[i]
		if c == nil {
			c = &callRecord{}
			flags, key := uint32(0), &checkpointCodec{b: r.packed(i), reading: true}
			s.packKey(key, c)
			if unsigned(key, &flags); key.broken {
				p.fail()
				return
			}
			s.store.mark(i, flags&hasAsked == 0)
		}
		s.store.index.add(hash(c.session, c.Key()))
	}
}

// pack encodes or decodes a session: its exported fields as JSON, its turns with the
// index of their offer, and its replies.
func (known *checkedSession) pack(p *checkpointCodec) error {
	small, err := []byte(nil), error(nil)
	if !p.reading {
		if small, err = projections.Encode(known); err != nil {
			return err
		}
	}
	text(p, &small)
	if p.reading {
		if p.broken {
			return errCorrupt
		}
		if err := json.Unmarshal(small, known); err != nil {
			return err
		}
	}
	packIDs(p, &known.turns)
	if p.reading {
		known.offered = make([]int, len(known.turns.list))
	}
	for i := range known.offered {
		unsigned(p, &known.offered[i])
	}
	packIDs(p, &known.answered)
	return nil
}
