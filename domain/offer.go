package domain

// A Placement is the reach of a layer of registrations. The zero Placement is
// not valid.
type Placement uint8

// The placements, in rising precedence.
const (
	// Application is the reach of the whole process.
	Application Placement = iota + 1
	// Location is the reach of one directory or workspace.
	Location
	// PerSession is the reach of one session.
	PerSession
)

var placements = enumNames[Placement]{"", "application", "location", "session"}

// String returns the name of the constant, as events and the CLI write it;
// "?N" for a value N outside the set.
func (p Placement) String() string { return placements.name(p) }

// MarshalText returns the text of String, or an ErrBadWord for a value outside
// the set.
func (p Placement) MarshalText() ([]byte, error) { return placements.marshal(p) }

// UnmarshalText accepts the texts of String, and the empty text for zero. It
// returns an ErrBadWord for any other text.
func (p *Placement) UnmarshalText(text []byte) error { return placements.unmarshal(p, text) }

// An Offered identifies a registration of a tool name: the one that a turn
// offered, or the one that is in effect.
type Offered struct {
	Name         Name           `json:"tool" codec:"intern"`
	Registration RegistrationID `json:"registration"`
	Layer        LayerID        `json:"layer"`
	Fingerprint  Fingerprint    `json:"fingerprint"`
}

// IsZero reports whether o identifies no registration.
func (o Offered) IsZero() bool { return o == Offered{} }

// An Offer lists the tools that one turn may call. It has at most one
// registration for each name.
type Offer struct {
	Turn  TurnID    `json:"turn"`
	Tools []Offered `json:"tools"` // in the order of the request to the model
}

// Find returns the registration offered for a name, and true, or false if the offer
// does not contain the name. It takes time proportional to the number of tools.
func (o Offer) Find(name string) (Offered, bool) {
	for _, t := range o.Tools {
		if string(t.Name) == name {
			return t, true
		}
	}
	return Offered{}, false
}
