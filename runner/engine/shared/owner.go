package shared

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// ownerName is the file in which package embedded names the process that has the lock.
const ownerName = "owner"

// readOwner returns the process in the owner file, which may have been killed since,
// and whether there is one.
func readOwner(dir string) (o embedded.Owner, ok bool) {
	text, err := os.ReadFile(filepath.Join(dir, ownerName))
	return o, err == nil && json.Unmarshal(text, &o) == nil && o.PID != 0
}

// of reports whether the endpoint belongs to the process that has the lock.
func (e Endpoint) of(o embedded.Owner) bool { return e.PID == o.PID && e.Started.Equal(o.Started) }

// describe names a process by PID, command, host and start.
func describe(o embedded.Owner) string {
	return fmt.Sprintf("process %d (%s on %s, since %s)", o.PID, o.Command, o.Host, o.Started.Format(time.RFC3339))
}

// A LockWait describes the process that a Store waits for.
type LockWait struct {
	Dir     string
	Owner   embedded.Owner // zero: unknown
	Stopped bool           // by a signal, such as Ctrl-Z; false on systems without /proc
}

// String describes the process for a user.
func (w LockWait) String() string {
	who := "another process"
	if w.Owner.PID != 0 {
		who = describe(w.Owner)
	}
	if w.Stopped {
		return who + ", which is stopped"
	}
	return who
}

// An UnresponsiveError says that the process that has a folder open did not answer
// until the timeout. It is an ErrUnresponsive and an events.ErrInUse.
type UnresponsiveError struct {
	LockWait
	Last error // result of the last attempt; nil: no attempt
}

// ErrUnresponsive says that the process that has the folder open does not answer.
var ErrUnresponsive = errors.New("process that has the folder open does not answer")

// Error names the folder and the process.
func (s *UnresponsiveError) Error() string {
	text := fmt.Sprintf("open %s: %v by %s, and it does not answer", s.Dir, events.ErrInUse, s.LockWait)
	if errors.Is(s.Last, ErrNoResponse) {
		text += ": " + s.Last.Error()
	}
	return text
}

// Is reports whether target is ErrUnresponsive or events.ErrInUse.
func (s *UnresponsiveError) Is(target error) bool {
	return target == ErrUnresponsive || target == events.ErrInUse
}

// currentWait describes the process that has a folder now.
func currentWait(dir string) LockWait {
	o, _ := readOwner(dir)
	host, err := os.Hostname()
	return LockWait{dir, o, err == nil && o.Host == host && stopped(o.PID, o.Started)}
}

// stopped reports whether a process of this machine is stopped by a signal. A process
// that started later has the same PID by reuse and does not count. Without /proc,
// stopped returns false.
func stopped(pid int, since time.Time) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	// The name of the program is between parentheses, and can contain parentheses.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 || fields[0] != "T" && fields[0] != "t" {
		return false
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	boot, ok := bootTime()
	began := boot.Add(time.Duration(ticks) * (time.Second / clockTicks))
	return err == nil && ok && began.Before(since.Add(5*time.Second))
}

// clockTicks is the number of ticks in a second in /proc, on every architecture of
// Linux that Go supports.
const clockTicks = 100

// bootTime returns when the machine started, and whether /proc says so.
func bootTime() (time.Time, bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}, false
	}
	for line := range strings.Lines(string(text)) {
		if seconds, ok := strings.CutPrefix(line, "btime "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(seconds), 10, 64)
			return time.Unix(n, 0), err == nil
		}
	}
	return time.Time{}, false
}
