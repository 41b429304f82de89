//go:build !darwin && !linux

package permission

import (
	"context"
	"io"
)

// A device is a terminal. This platform has no implementation: deviceOf returns nil, and an
// input discards only the bytes that it has read itself.
type device struct{}

func deviceOf(io.Reader) *device { return nil }

// readable reports whether a read returns without blocking.
func (*device) readable() bool { return true }

func (*device) hungUp() bool { return true }

func (*device) discard() bool { return false }

func (*device) waiter(context.Context) (func() error, func(), error) { return nil, func() {}, nil }
