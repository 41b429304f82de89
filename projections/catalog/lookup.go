package catalog

import (
	"slices"

	"github.com/settlement-ledger/ledger/domain"
)

// Layer returns a layer with all its registrations, and whether it exists. It copies
// the list of registrations; [State.Brief] does not.
func (s *State) Layer(id domain.LayerID) (LayerHistory, bool) {
	l, ok := s.index[id]
	if !ok {
		return LayerHistory{}, false
	}
	return l.copy(), true
}

// Layers returns all layers in order of opening, closed ones too.
func (s *State) Layers() []LayerHistory {
	all := make([]LayerHistory, len(s.layers))
	for i, l := range s.layers {
		all[i] = l.copy()
	}
	return all
}

// Brief returns a layer without its registrations, and whether it exists.
func (s *State) Brief(id domain.LayerID) (LayerHistory, bool) {
	l, ok := s.index[id]
	if !ok {
		return LayerHistory{}, false
	}
	return l.brief(), true
}

// OpenOf returns the open layers of a process in order of opening, without their
// registrations. For an unknown process it returns nil.
func (s *State) OpenOf(process domain.ProcessID) []LayerHistory {
	var open []LayerHistory
	for _, l := range s.processes[process] {
		if l.Ended == 0 {
			open = append(open, l.brief())
		}
	}
	return open
}

// brief returns the layer without its registrations.
func (l *layerIndex) brief() LayerHistory {
	b := l.LayerHistory
	b.Registrations = nil
	return b
}

// copy returns the layer with a list of registrations that later events do not
// change. The tools in the registrations are shared; no event changes them.
func (l *layerIndex) copy() LayerHistory {
	c := l.LayerHistory
	c.Registrations = slices.Clone(c.Registrations)
	return c
}

// entry returns the entry of a name in the registration with index i, which must have
// a tool of that name.
func (l *layerIndex) entry(i int, name domain.Name) ToolEntry {
	r := &l.Registrations[i]
	t, _ := r.tool(name)
	return ToolEntry{
		Offered: domain.Offered{Name: name, Registration: r.ID, Layer: l.ID, Fingerprint: t.Fingerprint},
		Tool:    t, Scope: r.Scope, Placement: l.Placement, At: r.At,
	}
}

// top returns the index of the latest active registration of a name, and whether the
// layer has one. A closed layer has no active registration. The cost grows with the
// number of closed registrations of the name after that one.
func (l *layerIndex) top(name domain.Name) (int, bool) {
	if l.Ended != 0 {
		return 0, false
	}
	for _, i := range slices.Backward(l.named[name]) {
		if l.Registrations[i].Ended == 0 {
			return i, true
		}
	}
	return 0, false
}

// Effective resolves a name in layers, which are in rising precedence, and reports
// whether the name has an entry in effect. The entry is the latest active
// registration of the name in the highest layer that has one. A closed or unknown
// layer has no entry in effect.
func (s *State) Effective(layers []domain.LayerID, name domain.Name) (ToolEntry, bool) {
	for _, id := range slices.Backward(layers) {
		l, ok := s.index[id]
		if !ok {
			continue
		}
		if i, ok := l.top(name); ok {
			return l.entry(i, name), true
		}
	}
	return ToolEntry{}, false
}

// Catalog returns all entries in effect in layers, which are in rising precedence, in
// definition order. This order begins with the names of the lowest layer: by their
// oldest active registrations, and within one registration by the order of its tools.
// The entry of a higher layer takes the place of an entry of the same name; new names
// of the higher layer follow in the same kind of order.
func (s *State) Catalog(layers []domain.LayerID) []ToolEntry {
	var entries []ToolEntry
	at := map[domain.Name]int{}
	for _, id := range layers {
		l, ok := s.index[id]
		if !ok {
			continue
		}
		for _, e := range l.effective() {
			if i, ok := at[e.Name]; ok {
				entries[i] = e
				continue
			}
			at[e.Name] = len(entries)
			entries = append(entries, e)
		}
	}
	return entries
}

// effective returns the entries in effect in one layer, in definition order. The
// place of a name is that of its oldest active registration, and its tool is that of
// the latest.
func (l *layerIndex) effective() []ToolEntry {
	if l.Ended != 0 {
		return nil
	}
	var entries []ToolEntry
	seen := map[domain.Name]bool{}
	for _, i := range l.active {
		for _, t := range l.Registrations[i].Tools {
			if seen[t.Name] {
				continue
			}
			seen[t.Name] = true
			top, _ := l.top(t.Name)
			entries = append(entries, l.entry(top, t.Name))
		}
	}
	return entries
}

// Overlay returns every active entry of a name in layers, which are in rising
// precedence: first the entry in effect, then the hidden entries, in the order in
// which they would come into effect.
func (s *State) Overlay(layers []domain.LayerID, name domain.Name) []ToolEntry {
	var entries []ToolEntry
	for _, id := range slices.Backward(layers) {
		l, ok := s.index[id]
		if !ok || l.Ended != 0 {
			continue
		}
		for _, i := range slices.Backward(l.named[name]) {
			if l.Registrations[i].Ended == 0 {
				entries = append(entries, l.entry(i, name))
			}
		}
	}
	return entries
}

// ClosedBy returns the event that ended a registration, and whether the registration
// ended. The event is the closing of the registration or of its layer, the earlier of
// the two.
func (s *State) ClosedBy(r domain.RegistrationID, layer domain.LayerID) (domain.EventID, bool) {
	l, i, ok := s.find(r, layer)
	if !ok {
		return domain.EventID{}, false
	}
	event, ended := l.end(i)
	return event, ended != 0
}

// find returns the layer with the ID id and the index of the registration r in it.
// The boolean is false if the layer or the registration is unknown.
func (s *State) find(r domain.RegistrationID, id domain.LayerID) (*layerIndex, int, bool) {
	l, ok := s.index[id]
	if !ok {
		return nil, 0, false
	}
	i, ok := l.byID[r]
	return l, i, ok
}

// end returns the event that ended the registration with index i, and the ordinal of
// the event: the closing of the registration or of its layer, the earlier of the two.
// Both results are zero if the registration is active.
func (l *layerIndex) end(i int) (domain.EventID, int) {
	r := &l.Registrations[i]
	if r.Ended != 0 && (l.Ended == 0 || r.Ended < l.Ended) {
		return r.Closed, r.Ended
	}
	return l.Closed, l.Ended
}

// An activeSpan is the range of ordinals during which a registration was active. The
// end is exclusive. For an active registration it is one past the last event folded.
type activeSpan struct {
	// event registered the tools of the span.
	event      domain.EventID
	began, end int
}

// Displaced returns the event since which a registration is no longer in effect in
// layers, which are in rising precedence, and whether it is displaced. The event is
// the closing of the registration or of its layer, or the other registration that has
// hidden it without interruption. The event is zero if the layer never had the
// registration, or if the answer depends on what Forget dropped.
//
// Displaced goes back in time, from the end of the registration or, if it is active,
// from now. At each step it searches the spans of other registrations that hid the
// registration just before that time, and goes to the beginning of the earliest span.
// It stops when no span hid the registration at that time. Hiding spans that touch or
// overlap thus count as one, and the result is the event that began the first of
// them. An earlier hiding span does not count, because the registration was in effect
// after it.
func (s *State) Displaced(layers []domain.LayerID, offered domain.Offered) (domain.EventID, bool) {
	if e, ok := s.Effective(layers, offered.Name); ok && e.Registration == offered.Registration && e.Layer == offered.Layer {
		return domain.EventID{}, false
	}
	l, i, ok := s.find(offered.Registration, offered.Layer)
	if !ok {
		return domain.EventID{}, true
	}
	event, until := l.end(i)
	if until == 0 {
		until = s.folded + 1
	}
	hiders := s.hiders(layers, l, i, offered.Name)
	for {
		h, ok := earliest(hiders, until)
		if !ok {
			return event, true
		}
		if event, until = h.event, h.began; until <= s.forgotten {
			return domain.EventID{}, true
		}
	}
}

// earliest returns the span that began first, among the spans that began before the
// ordinal until and ended at it or later. ok is false if there is no such span.
func earliest(spans []activeSpan, until int) (first activeSpan, ok bool) {
	for _, h := range spans {
		if h.began < until && h.end >= until && (!ok || h.began < first.began) {
			first, ok = h, true
		}
	}
	return first, ok
}

// hiders returns the spans of all registrations of a name that hide registration i of
// the layer l, or hid it before they ended: the later registrations in l, and all
// registrations in higher layers.
func (s *State) hiders(layers []domain.LayerID, l *layerIndex, i int, name domain.Name) []activeSpan {
	var spans []activeSpan
	above := false
	for _, id := range layers {
		higher, ok := s.index[id]
		if !ok {
			continue
		}
		for _, j := range higher.named[name] {
			if above || higher == l && j > i {
				spans = append(spans, s.span(higher, j))
			}
		}
		above = above || higher == l
	}
	return spans
}

// span returns the span of the registration with index i of a layer.
func (s *State) span(l *layerIndex, i int) activeSpan {
	_, end := l.end(i)
	if end == 0 {
		end = s.folded + 1
	}
	r := &l.Registrations[i]
	return activeSpan{domain.EventOf(r.ID), r.Began, end}
}
