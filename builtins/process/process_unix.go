//go:build unix && !linux

package process

import (
	"os"
	"os/exec"
	"syscall"
)

// configureSession makes a command the leader of its own session and group. A session of
// its own has no terminal: a command that had one could type an answer to a
// question.
func configureSession(cmd *exec.Cmd) (unlock func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return func() {}
}

// openDirPath returns the path of a directory: there is no portable way to start a
// process in one that is open.
func openDirPath(_ *os.File, dir string) string { return dir }

// waitLeader waits for a command. It closes exited when the command has ended, and
// returns when release is closed. There is no portable way to keep the number
// of the process until then: it stays taken only while its group has members.
func waitLeader(cmd *exec.Cmd, exited chan<- struct{}, release <-chan struct{}) error {
	err := cmd.Wait()
	close(exited)
	<-release
	return err
}

// killDescendants finds nothing: there is no portable way to tell the descendants that
// have left a group.
func killDescendants(string) {}
