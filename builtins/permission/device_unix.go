//go:build darwin || linux

package permission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A device is a terminal from which a person's input is read. A nil device is
// an input that is not a terminal.
type device struct{ fd int }

// deviceOf returns the terminal behind a reader, or nil.
func deviceOf(in io.Reader) *device {
	file, ok := in.(*os.File)
	if !ok {
		return nil
	}
	fd := int(file.Fd())
	if _, err := unix.IoctlGetTermios(fd, getTermios); err != nil {
		return nil
	}
	return &device{fd}
}

// readable reports whether a read would return without blocking.
func (d *device) readable() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}}, 0)
	return n > 0 && err == nil
}

// hungUp reports whether the terminal was closed at its other end. If hungUp returns
// false at an end of file, a person typed that end of file, and the terminal can be
// read again.
func (d *device) hungUp() bool {
	ready := []unix.PollFd{{Fd: int32(d.fd)}}
	_, err := unix.Poll(ready, 0)
	return err != nil && !errors.Is(err, unix.EINTR) || ready[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}

// discard drops all input in the buffer of the terminal and reports whether the buffer
// had any. In canonical mode poll does not report an unfinished line, so discard
// switches canonical mode off while it polls.
func (d *device) discard() bool {
	if d == nil {
		return false
	}
	hadInput := d.readable()
	if mode, err := unix.IoctlGetTermios(d.fd, getTermios); err == nil && mode.Lflag&unix.ICANON != 0 {
		raw := *mode
		raw.Lflag &^= unix.ICANON
		raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
		if unix.IoctlSetTermios(d.fd, setTermios, &raw) == nil {
			hadInput = d.readable() || hadInput
			flush(d.fd)
			_ = unix.IoctlSetTermios(d.fd, setTermios, mode) // the terminal had this mode before
		}
	}
	flush(d.fd)
	return hadInput
}

// waiter returns two functions: wait blocks until the terminal is readable or ctx ends,
// and stop releases the resources of wait.
func (d *device) waiter(ctx context.Context) (wait func() error, stop func(), err error) {
	wake, waker, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cancel := context.AfterFunc(ctx, func() { waker.Close() })
	wait = func() error {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}, {Fd: int32(wake.Fd()), Events: unix.POLLIN}}, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("poll the terminal: %w", err)
		}
		return nil
	}
	return wait, func() {
		if cancel() {
			waker.Close()
		}
		wake.Close()
	}, nil
}
