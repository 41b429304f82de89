//go:build unix && !linux

package bench

import (
	"errors"
	"os"
)

// errNotHere means that this system does not report the number. Linux does.
var errNotHere = errors.New("this system does not tell; measure on Linux")

func syncData(f *os.File) error        { return f.Sync() }
func peakMemory() (float64, error)     { return 0, errNotHere }
func residentMemory() (float64, error) { return 0, errNotHere }
func bytesWritten() (float64, error)   { return 0, errNotHere }

// peakOf returns 0: the unit of the peak differs between systems.
func peakOf(*os.ProcessState) float64 { return 0 }
