package events

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The generator runs as a program, because a package of the module cannot import
// it.
func TestGeneratedCodecIsUpToDate(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("../.ci/codecgen/*.go")
	if err != nil || len(sources) == 0 {
		t.Fatalf("found %d files of the generator: %v", len(sources), err)
	}
	for _, source := range sources { // the cache of test results counts the files that a test opens
		if _, err := os.ReadFile(source); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "run", "../.ci/codecgen", "-check").CombinedOutput()
	if err != nil {
		t.Errorf("check of the generated codec failed: %v\n%s", err, out)
	}
}
