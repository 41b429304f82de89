package stores

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Saving a checkpoint removes the old temporary file of a killed process, and keeps the
// recent one of a process that is saving.
func TestWhatKilledReadersLeftIsRemoved(t *testing.T) {
	t.Parallel()
	c := checkpointFolder(t.TempDir())
	left, busy := unfinishedName(c.path("calls")), unfinishedName(c.path("calls"))
	left, busy = strings.Replace(left, "*", "1", 1), strings.Replace(busy, "*", "2", 1)
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(busy, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(left, time.Time{}, time.Now().Add(-2*abandonedAge)); err != nil {
		t.Fatal(err)
	}
	if err := c.SaveCheckpoint(t.Context(), "calls", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed process left is still there")
	}
	if _, err := os.Stat(busy); err != nil {
		t.Errorf("what another process is saving is gone: %v", err)
	}
}
