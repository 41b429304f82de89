package registry

import "errors"

// The errors of this package. Match them with errors.Is. The package doc names the
// functions that return each.
var (
	// ErrClosed is returned for a use of a closed scope, layer or Layers.
	ErrClosed = errors.New("scope or layer is closed")
	// ErrUnrecorded is returned by closings and by Materialize while a closing that is in
	// effect could not be recorded. A second Close retries.
	ErrUnrecorded = errors.New("scope is closed, but its closing is not on record")
	// ErrBadLimits is returned for limits at which a preview could not hold its
	// reference.
	ErrBadLimits = errors.New("limits are not valid")
	// ErrCallConflict is returned by Settle if the recorded or running call of the ID has
	// another tool or input.
	ErrCallConflict = errors.New("call is on record with another tool or input")
	// ErrBegan is returned by Settle for a call that another process started and did not
	// end. Recovery ends it.
	ErrBegan = errors.New("call was started by another settlement, and its end is not on record")
	// ErrMisplaced is returned for an overlay of layers that are not in rising placement.
	ErrMisplaced = errors.New("layers are not ordered by placement")
)
