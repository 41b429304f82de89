package domain

// A Placement is where a layer lies. The zero Placement is not valid.
type Placement uint8

// The placements, in rising precedence.
const (
	Application Placement = iota + 1 // the process
	Location                         // a directory or workspace
	PerSession                       // one session
)

var placements = enumNames[Placement]{"", "application", "location", "session"}

func (p Placement) String() string               { return placements.name(p) }
func (p Placement) MarshalText() ([]byte, error) { return placements.marshal(p) }

// UnmarshalText accepts what String gives; the empty text is zero.
func (p *Placement) UnmarshalText(text []byte) error { return placements.unmarshal(p, text) }

// An Offered is a registration of a name: the one that a turn offered, or the
// one in effect.
type Offered struct {
	Name         Name           `json:"tool"`
	Registration RegistrationID `json:"registration"`
	Layer        LayerID        `json:"layer"`
	Fingerprint  Fingerprint    `json:"fingerprint"`
}

// IsZero reports whether o is no registration.
func (o Offered) IsZero() bool { return o == Offered{} }

// An Offer is what one turn may call: names and the registrations offered for
// them.
type Offer struct {
	Turn  TurnID    `json:"turn"`
	Tools []Offered `json:"tools"` // in the order in which the model sees them
}

// Find returns the registration offered for a name, and whether there is one.
func (o Offer) Find(name string) (Offered, bool) {
	for _, t := range o.Tools {
		if string(t.Name) == name {
			return t, true
		}
	}
	return Offered{}, false
}
