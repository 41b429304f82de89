package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// syncData makes the data of a file durable with fdatasync.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

// peakMemory returns the peak resident memory of this process in bytes.
func peakMemory() (float64, error) { return field("/proc/self/status", "VmHWM:", 1024) }

// peakOf returns the peak resident memory of a process that ended, in bytes.
func peakOf(p *os.ProcessState) float64 {
	if u, ok := p.SysUsage().(*syscall.Rusage); ok {
		return float64(u.Maxrss) * 1024
	}
	return 0
}

// residentMemory returns the resident memory of this process in bytes.
func residentMemory() (float64, error) { return field("/proc/self/status", "VmRSS:", 1024) }

// bytesWritten returns the number of bytes that this process passed to write calls.
func bytesWritten() (float64, error) { return field("/proc/self/io", "wchar:", 1) }

// field returns the number after name in a file of lines "NAME VALUE", multiplied by
// unit.
func field(path, name string, unit float64) (float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if words := bytes.Fields(line); len(words) > 1 && string(words[0]) == name {
			n, err := strconv.ParseUint(string(words[1]), 10, 64)
			return float64(n) * unit, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, name)
}
