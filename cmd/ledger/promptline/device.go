package promptline

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// A ttyDevice is a terminal device with the mode that it had at first. It is safe for
// concurrent use.
type ttyDevice struct {
	fd    int
	mu    sync.Mutex
	first unix.Termios
}

// openDevice returns the terminal behind a file descriptor.
func openDevice(fd int) (*ttyDevice, error) {
	mode, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, fmt.Errorf("read the mode of the terminal: %w", err)
	}
	return &ttyDevice{fd: fd, first: *mode}, nil
}

// edit sets the mode in which the program edits lines: without echo, and each byte at once.
// The signals of the keyboard and the conversion of line ends on output stay.
func (d *ttyDevice) edit() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	mode := d.first
	mode.Lflag &^= unix.ICANON | unix.ECHO | unix.ECHONL | unix.IEXTEN
	mode.Lflag |= unix.ISIG
	mode.Iflag &^= unix.ICRNL | unix.INLCR | unix.IGNCR | unix.ISTRIP
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
	mode.Cc[unix.VSUSP] = disabledKey // a stopped program would leave this mode to its shell
	if err := unix.IoctlSetTermios(d.fd, setTermios, &mode); err != nil {
		return fmt.Errorf("set the mode of the terminal: %w", err)
	}
	return nil
}

// restore sets the first mode.
func (d *ttyDevice) restore() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return unix.IoctlSetTermios(d.fd, setTermios, &d.first)
}
