package registry

import "errors"

// The errors of this package. Match them with errors.Is. The package doc names the
// functions that return each.
var (
	ErrClosed       = errors.New("scope or layer is closed")
	ErrUnrecorded   = errors.New("scope is closed, but its closing is not on record")
	ErrBadLimits    = errors.New("limits are not valid")
	ErrCallConflict = errors.New("call is on record with another tool or input")
	ErrBegan        = errors.New("call was started by another settlement, and its end is not on record")
	ErrMisplaced    = errors.New("layers are not ordered by placement")
)
