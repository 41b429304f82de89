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

// configureSession makes a command the leader of its own session and process group.
// A session of its own has no controlling terminal, on which the command could type an
// answer to a permission question. The kernel kills the command when the thread that
// started it ends, so the goroutine stays locked to its thread until unlock is called.
func configureSession(cmd *exec.Cmd) (unlock func()) {
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	return runtime.UnlockOSThread
}

// openDirPath returns a path through which a child process reaches a directory that this
// process has open.
func openDirPath(opened *os.File, _ string) string {
	return "/proc/self/fd/" + strconv.Itoa(int(opened.Fd()))
}

// waitLeader waits for the end of the command and closes exited. It reaps the process,
// which frees its ID, only after release is closed.
func waitLeader(cmd *exec.Cmd, exited chan<- struct{}, release <-chan struct{}) error {
	for errors.Is(unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	close(exited)
	<-release
	return cmd.Wait()
}

// maxKillRounds bounds the rounds of killDescendants. A process can fork between the
// scan and its kill, but in each round it has less time to fork.
const maxKillRounds = 100

// killDescendants kills every process with the mark, in rounds until a scan finds none.
func killDescendants(mark string) {
	for range maxKillRounds {
		if !killMarked(mark) {
			return
		}
	}
}

// killMarked scans /proc once, kills every process with the mark, and reports whether it
// killed one.
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

// kill kills a process through a pidfd and reports whether it did. After it has opened
// the pidfd it reads the mark again, because another process can have the ID by then.
func kill(pid int, environ, mark string) bool {
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(handle)
	return hasMark(environ, mark) && unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0) == nil
}

// hasMark reports whether the environment file of a process contains the mark as an
// element of MarkVariable.
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
