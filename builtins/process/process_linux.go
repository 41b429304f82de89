package process

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// configureSession makes a command the leader of its own session and group, to be killed
// when this process is. A session of its own has no terminal: a command that
// had one could type an answer to a question. The system ties that to the thread that starts it, so the
// goroutine keeps its thread until the returned function is called.
func configureSession(cmd *exec.Cmd) (unlock func()) {
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	return runtime.UnlockOSThread
}

// openDirPath returns a path by which a child of this process reaches a directory
// that this process has open.
func openDirPath(opened *os.File, _ string) string {
	return "/proc/self/fd/" + strconv.Itoa(int(opened.Fd()))
}

// waitLeader waits for a command. It closes exited when the command has ended, and
// lets go of the number of the process only when release is closed.
func waitLeader(cmd *exec.Cmd, exited chan<- struct{}, release <-chan struct{}) error {
	for errors.Is(unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	close(exited)
	<-release
	return cmd.Wait()
}

// maxKillRounds bounds the rounds of reap. A process can start another between
// being found and being killed, but each round leaves it less time to.
const maxKillRounds = 100

// killDescendants kills every process that carries a mark, and those which they start
// meanwhile.
func killDescendants(mark string) {
	for range maxKillRounds {
		if !killMarked(mark) {
			return
		}
	}
}

// killMarked reports whether it killed a process.
func killMarked(mark string) bool {
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return false
	}
	killed := false
	for _, environ := range environs {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(environ)))
		if err == nil && pid != os.Getpid() && hasMark(environ, mark) {
			killed = kill(pid, environ, mark) || killed
		}
	}
	return killed
}

// kill kills a process by a handle, after it has looked at the mark again: the
// number may have passed to another process.
func kill(pid int, environ, mark string) bool {
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(handle)
	return hasMark(environ, mark) && unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0) == nil
}

func hasMark(environ, mark string) bool {
	data, err := os.ReadFile(environ) // empty for a process that has ended
	if err != nil || !bytes.Contains(data, []byte(mark)) {
		return false
	}
	for variable := range bytes.SplitSeq(data, []byte{0}) {
		if marks, ok := bytes.CutPrefix(variable, []byte(MarkVariable+"=")); ok {
			return slices.ContainsFunc(bytes.Fields(marks), func(m []byte) bool { return string(m) == mark })
		}
	}
	return false
}
