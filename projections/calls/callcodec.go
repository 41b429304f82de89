package calls

import (
	"encoding/json"

	"github.com/settlement-ledger/ledger/domain"
)

// The flags of an encoded call. Most flags mean that an optional field follows in the
// encoding: hasTurn stands for Turn, and so on. The flags isImported, isIdempotent,
// hasBegan and agrees are the values of boolean fields. The order of the flags is
// part of the format of checkpoints.
const (
	hasTurn = 1 << iota
	hasAsked
	hasStarted
	hasSettled
	hasProcess
	hasOffered
	hasEffective
	hasChangedBy
	hasRule
	hasRetained
	hasStrays
	isImported
	isIdempotent
	// isOtherTurn, isOtherTool and isOtherOffered: the settlement names another turn,
	// tool or offered registration than the call does, and its value follows. Without
	// the flag, the decoder copies the value of the call.
	isOtherTurn
	isOtherTool
	isOtherOffered
	hasBegan
	agrees
	hasText
	hasDetail
	hasInput
	hasInputPreview
	hasPreview
	hasLate
	hasRequests
	hasParent
	hasTitle
	hasRan
)

// flags returns the flags of a call.
func (c *callRecord) flags() (f uint32) {
	e := &c.Settlement
	for _, has := range []struct {
		flag uint32
		set  bool
	}{
		{hasTurn, !c.Turn.IsZero()}, {hasAsked, !c.Asked.IsZero()}, {hasStarted, !c.Started.IsZero()}, {hasSettled, c.State == Settled},
		{hasProcess, !c.Process.IsZero()}, {hasOffered, !c.Offered.IsZero()}, {hasEffective, !e.Effective.IsZero()},
		{hasChangedBy, !e.ChangedBy.IsZero()}, {hasRule, e.Rule != domain.Rule{}}, {hasRetained, e.Retained != nil},
		{hasStrays, len(c.Strays) > 0}, {isImported, c.Imported}, {isIdempotent, c.Idempotent},
		{isOtherTurn, e.Turn != c.Turn}, {isOtherTool, e.Tool != c.Tool}, {isOtherOffered, e.Offered != c.Offered},
		{hasBegan, e.Began}, {agrees, e.Agrees}, {hasText, e.Text != ""}, {hasDetail, e.Detail != ""},
		{hasInput, len(c.Input) > 0}, {hasInputPreview, c.InputPreview != ""}, {hasPreview, c.Preview != ""},
		{hasLate, c.Late != 0}, {hasRequests, c.Requests != 0 || c.WaitedMS != 0},
		{hasParent, c.Parent != ""}, {hasTitle, c.Title != ""}, {hasRan, e.RanMS != 0},
	} {
		if has.set {
			f |= has.flag
		}
	}
	return f
}

// stages has the stages by their number in the encoding. A call has the empty stage
// while the log has only late results of it.
var stages = [...]Stage{"", Asked, Begun, Settled}

// packKey encodes or decodes the key of a call. The number of the session stands for
// its ID. The key comes first in the encoding, so that [State.is] compares it without
// decoding the rest.
func (s *State) packKey(p *checkpointCodec, c *callRecord) {
	unsigned(p, &c.session)
	id(p, &c.Message)
	text(p, &c.ID)
}

// pack encodes the call c, or decodes a call into c if p.reading is set. To decode,
// the caller passes a zero c; a number outside its table breaks p. While it encodes,
// pack does not change c, because other goroutines may read it. An optional field is
// present only if its flag is set. The encoding has these parts in this order:
//
//	key            session number, message ID, call ID
//	flags          see hasTurn
//	tool           number in the table of words; agent and location likewise
//	stage          index in stages
//	turn           ID
//	offered        number in the table of offered registrations
//	input          bytes, or the beginning of a long input
//	reply          time, event ID, revision, position, ordinal
//	start          the same; then the number of the process
//	late           number of late results
//	requests       number of permission requests, and the milliseconds waited
//	strays         places of the late results before a reply
//	parent         call ID
//	title          text
//	settlement     see packEnd
func (s *State) pack(p *checkpointCodec, c *callRecord) {
	s.packKey(p, c)
	if p.reading {
		if c.session < 0 || c.session >= len(s.kept.Sessions) {
			p.fail()
			return
		}
		c.Session = s.kept.Sessions[c.session].ID
	}
	flags := uint32(0)
	if !p.reading {
		flags = c.flags()
	}
	unsigned(p, &flags)
	has := func(flag uint32) bool { return flags&flag != 0 && !p.broken }
	if p.reading {
		c.Imported, c.Idempotent = has(isImported), has(isIdempotent)
	}
	word(p, &p.tables.words, &c.Tool)
	word(p, &p.tables.words, &c.Agent)
	word(p, &p.tables.words, &c.Location)
	stage := 0
	for stages[stage] != c.State {
		stage++
	}
	unsigned(p, &stage)
	if stage < 0 || stage >= len(stages) {
		p.fail()
		return
	}
	if p.reading {
		c.State = stages[stage]
	}
	if has(hasTurn) {
		id(p, &c.Turn)
	}
	if has(hasOffered) {
		tableValue(p, &p.tables.offered, &c.Offered, same, same)
	}
	if has(hasInput) {
		text(p, &c.Input)
	}
	if has(hasInputPreview) {
		text(p, &c.InputPreview)
	}
	if has(hasAsked) {
		p.time(&c.Asked)
		id(p, &c.AskedAt.Event)
		p.place(&c.AskedAt)
	}
	if has(hasStarted) {
		p.time(&c.Started)
		id(p, &c.StartedAt.Event)
		p.place(&c.StartedAt)
	}
	if has(hasProcess) {
		tableValue(p, &p.tables.processes, &c.Process, same, same)
	}
	if has(hasLate) {
		unsigned(p, &c.Late)
	}
	if has(hasRequests) {
		unsigned(p, &c.Requests)
		p.signed(&c.WaitedMS)
	}
	if has(hasStrays) {
		if n := p.count(len(c.Strays)); p.reading {
			c.Strays = make([]Place, n)
		}
		for i := range c.Strays {
			id(p, &c.Strays[i].Event)
			p.place(&c.Strays[i])
		}
	}
	if has(hasParent) {
		text(p, &c.Parent)
	}
	if has(hasTitle) {
		text(p, &c.Title)
	}
	if has(hasSettled) {
		s.packEnd(p, c, has)
	}
}

// packEnd encodes or decodes the settlement of the call c. A settlement repeats most
// of the call, so packEnd encodes only the fields that differ. has reports whether a
// flag of the call is set.
func (s *State) packEnd(p *checkpointCodec, c *callRecord, has func(uint32) bool) {
	p.time(&c.Settled)
	id(p, &c.SettledBy)
	p.place(&c.SettledAt)
	e := &c.Settlement
	if p.reading {
		c.SettledAt.Event = c.SettledBy
		e.Turn, e.Message, e.Call, e.Tool, e.Offered = c.Turn, c.Message, c.ID, c.Tool, c.Offered
		e.Began, e.Agrees = has(hasBegan), has(agrees)
	}
	unsigned(p, &e.Outcome)
	unsigned(p, &e.Interruption)
	if has(isOtherTurn) {
		id(p, &e.Turn)
	}
	if has(isOtherTool) {
		word(p, &p.tables.words, &e.Tool)
	}
	if has(isOtherOffered) {
		tableValue(p, &p.tables.offered, &e.Offered, same, same)
	}
	if has(hasEffective) {
		tableValue(p, &p.tables.offered, &e.Effective, same, same)
	}
	if has(hasChangedBy) {
		id(p, &e.ChangedBy)
	}
	if has(hasText) {
		text(p, &e.Text)
	}
	if has(hasDetail) {
		text(p, &e.Detail)
	}
	if has(hasPreview) {
		text(p, &c.Preview)
	}
	if has(hasRule) {
		asJSON(p, &e.Rule)
	}
	if has(hasRetained) {
		asJSON(p, &e.Retained)
	}
	if has(hasRan) {
		p.signed(&e.RanMS)
	}
}

// asJSON encodes or decodes a rare field as JSON with a length prefix. Invalid JSON
// breaks the codec.
func asJSON[T any](p *checkpointCodec, v *T) {
	var data []byte
	if !p.reading {
		// These fields hold texts and numbers, which always have a JSON form.
		data, _ = json.Marshal(v)
	}
	text(p, &data)
	if p.reading && !p.broken && json.Unmarshal(data, v) != nil {
		p.fail()
	}
}
