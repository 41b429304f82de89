//go:build !darwin && !linux

package permission

import (
	"context"
	"io"
)

// A device is a terminal. Here none is known, and only the input that was read
// is discarded.
type device struct{}

func deviceOf(io.Reader) *device { return nil }

// readable reports whether a read returns without blocking.
func (*device) readable() bool { return true }

func (*device) gone() bool { return true }

func (*device) discard() bool { return false }

func (*device) waiter(context.Context) (func() error, func(), error) { return nil, func() {}, nil }
