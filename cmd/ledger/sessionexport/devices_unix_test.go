//go:build unix

package sessionexport

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A device is written to and stays one, and a link stays a link.
func TestDevicesAndLinksAreNotReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, link, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink("file", link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	read := make(chan string, 1)
	go func() {
		text, err := os.ReadFile(pipe)
		read <- fmt.Sprint(string(text), err)
	}()
	for _, path := range []string{pipe, link} {
		done, err := writeFile(path, func(to io.Writer) error { _, err := io.WriteString(to, "whole"); return err })
		if err != nil || done.bytes != 5 {
			t.Fatalf("%s: %+v, %v", path, done, err)
		}
	}
	if got := <-read; got != "whole<nil>" {
		t.Errorf("the pipe has %q", got)
	}
	if text, err := os.ReadFile(file); string(text) != "whole" || err != nil {
		t.Errorf("behind the link is %q, %v", text, err)
	}
	for path, want := range map[string]os.FileMode{pipe: os.ModeNamedPipe, link: os.ModeSymlink} {
		if info, err := os.Lstat(path); err != nil || info.Mode().Type() != want {
			t.Errorf("%s is %v, %v", path, info.Mode(), err)
		}
	}
}
