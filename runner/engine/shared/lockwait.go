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
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
)

// ownerName is the file in which package embedded names the process that has the lock.
const ownerName = "owner"

// readOwner returns the process in the owner file, which may have been killed since.
// It returns false if the file is missing or invalid.
func readOwner(dir string) (o storedir.Owner, ok bool) {
	text, err := os.ReadFile(filepath.Join(dir, ownerName))
	return o, err == nil && json.Unmarshal(text, &o) == nil && o.PID != 0
}

// of reports whether process o wrote the endpoint. It compares the start times too,
// since a later process can have the same PID.
func (e Endpoint) of(o storedir.Owner) bool { return e.PID == o.PID && e.Started.Equal(o.Started) }

// describe names a process by PID, command, host and start.
func describe(o storedir.Owner) string {
	return fmt.Sprintf("process %d (%s on %s, since %s)", o.PID, o.Command, o.Host, o.Started.Format(time.RFC3339))
}

// A LockWait describes the process that has the lock of a folder while a Store waits
// for that process.
type LockWait struct {
	// Dir is the folder.
	Dir string
	// Owner is the process. Zero: unknown.
	Owner storedir.Owner
	// Stopped is set if a signal has stopped the process, for example Ctrl-Z. It is
	// false on systems without /proc.
	Stopped bool
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

// An UnresponsiveError reports that the process that has a folder open did not respond
// until the timeout. It matches ErrUnresponsive and events.ErrInUse.
type UnresponsiveError struct {
	LockWait
	// Last is the error of the last attempt to connect. Nil: there was no attempt.
	Last error
}

// ErrUnresponsive is matched by every UnresponsiveError.
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

// currentWait returns a description of the process that has the lock of a folder now,
// according to the owner file.
func currentWait(dir string) LockWait {
	o, _ := readOwner(dir)
	host, err := os.Hostname()
	return LockWait{dir, o, err == nil && o.Host == host && stopped(o.PID, o.Started)}
}

// stopped reports whether a process of this machine is stopped by a signal. It returns
// false for a process that started after since: such a process has only the same PID.
// Without /proc it returns false.
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

// bootTime returns when the machine started, and false if /proc does not show it.
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
