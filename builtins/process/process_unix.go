//go:build unix && !linux

package process

import (
	"os"
	"os/exec"
	"syscall"
)

// configureSession makes a command the leader of its own session and process group.
// A session of its own has no controlling terminal, on which the command could type an
// answer to a permission question.
func configureSession(cmd *exec.Cmd) (unlock func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return func() {}
}

// openDirPath returns dir: there is no portable way to start a process in an open
// directory.
func openDirPath(_ *os.File, dir string) string { return dir }

// waitLeader waits for the end of the command, closes exited, and returns once release
// is closed. Without waitid it reaps the process at once, so the process group ID stays
// in use only while the group has members.
func waitLeader(cmd *exec.Cmd, exited chan<- struct{}, release <-chan struct{}) error {
	err := cmd.Wait()
	close(exited)
	<-release
	return err
}

// killDescendants is a stub: there is no portable way to read the environment of a
// process that left the group.
func killDescendants(string) {}
