package registry

import "errors"

// The errors of this package. Callers match them with errors.Is.
var (
	ErrClosed       = errors.New("scope or layer is closed")
	ErrUnrecorded   = errors.New("closing is in effect and not on record")
	ErrBadLimits    = errors.New("limits are not usable")
	ErrCallConflict = errors.New("call is on record with another tool or input")
	ErrBegan        = errors.New("call began elsewhere and its end is not on record")
	ErrMisplaced    = errors.New("layers are not in rising placement")
)
