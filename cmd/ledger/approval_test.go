//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// answeredCommand runs ledger with a pseudo terminal as standard input and standard
// error, and types the next answer at each prompt. It writes the text that the terminal
// showed to FILE, and kills a command that runs for 30 seconds.
//
// Usage: answered FILE ANSWER,... ARG...
func answeredCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: answered FILE ANSWER,... ARG...")
	}
	master, device, err := openTerminal()
	ts.Check(err)
	defer master.Close()
	cmd := exec.Command(commandPath(), args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "HOME="+ts.Getenv("HOME"), "LEDGER_STORE="+ts.Getenv("LEDGER_STORE"))
	cmd.Stdin, cmd.Stderr = device, device
	ts.Check(cmd.Start())
	ts.Check(device.Close())
	hang := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	shown := typeAnswers(master, strings.Split(args[1], ","))
	err = cmd.Wait()
	hang.Stop()
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(shown), 0o600))
	ts.Check(err)
}

// openTerminal opens a pseudo terminal and returns its master and its slave device. The
// caller closes both.
func openTerminal() (master, device *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		device, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	return master, device, err
}

// typeAnswers types one answer at each prompt until every process has closed the
// terminal, and returns the text that the terminal showed.
func typeAnswers(master *os.File, answers []string) string {
	const prompt = " and why: "
	var shown strings.Builder
	b := make([]byte, 4096)
	for typed := 0; ; {
		n, err := master.Read(b)
		shown.Write(b[:n])
		for typed < len(answers) && strings.Count(shown.String(), prompt) > typed {
			_, _ = io.WriteString(master, answers[typed]+"\n")
			typed++
		}
		if err != nil { // the last process closed the device
			return shown.String()
		}
	}
}
