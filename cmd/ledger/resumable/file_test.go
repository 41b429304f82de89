package resumable

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// content is the content of the files of the tests.
type content struct {
	Query string `json:"query"`
}

// segments are the bytes between the checkpoints of a file of the tests.
var segments = []string{strings.Repeat("one\n", 40), strings.Repeat("two\n", 30), "three\n"}

// write writes the segments that are missing and finishes the file, unless until is reached
// before. It calls cut after each checkpoint.
func write(path string, o Options, cut func()) (resumed int, err error) {
	f, err := Open(path, content{"all"}, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	start, states, ok := f.Resumed()
	if !ok {
		err = f.Begin("position 7")
	} else if string(start) != `"position 7"` {
		return 0, fmt.Errorf("the start is %s", start)
	}
	if len(states) > 0 {
		if err := json.Unmarshal(states[len(states)-1], &resumed); err != nil {
			return 0, err
		}
	}
	if len(states) != resumed {
		return 0, fmt.Errorf("%d states, and the last one is %d", len(states), resumed)
	}
	for n := resumed; n < len(segments) && err == nil; n++ {
		if _, err = f.Write([]byte(segments[n])); err == nil {
			err = f.Checkpoint(n + 1)
		}
		cut()
	}
	if err != nil {
		return resumed, err
	}
	return resumed, f.Finish()
}

// read returns the content of a file.
func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// noFile fails the test if a path exists.
func noFile(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s exists", path)
		}
	}
}

// decompressed returns the bytes of a file without its compression.
func decompressed(t *testing.T, path string) string {
	t.Helper()
	var from io.Reader = bytes.NewReader(read(t, path))
	var err error
	switch by, _ := CompressionOf(path); by {
	case Gzip:
		from, err = gzip.NewReader(from)
	case Zstd:
		from, err = zstd.NewReader(from)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A file that is interrupted at any byte, of its data or of its progress, is continued at the
// last checkpoint that both have, and has the bytes of one written at once.
func TestAFileGoesOnFromEveryByte(t *testing.T) {
	t.Parallel()
	step := 29
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		step = 1
	}
	for _, name := range []string{"f", "f.gz", "f.zst"} {
		whole := filepath.Join(t.TempDir(), name)
		// The files after each checkpoint.
		type pair struct{ data, progress []byte }
		var after []pair
		if _, err := write(whole, Options{}, func() {
			after = append(after, pair{read(t, whole+partialSuffix), read(t, whole+progressSuffix)})
			noFile(t, whole)
		}); err != nil {
			t.Fatal(err)
		}
		noFile(t, whole+partialSuffix, whole+progressSuffix)
		if got := decompressed(t, whole); got != strings.Join(segments, "") {
			t.Fatalf("%s has %q", name, got)
		}
		last := after[len(after)-1]
		var before pair
		for n, p := range append(after, last) {
			// The data of a segment is durable before its line is written: first the data
			// grows, then the progress.
			cuts := map[string]pair{}
			for i := len(before.data); i <= len(p.data); i += step {
				cuts[fmt.Sprint("data ", i)] = pair{p.data[:i], before.progress}
			}
			for i := len(before.progress); i <= len(p.progress); i += step {
				cuts[fmt.Sprint("progress ", i)] = pair{p.data, p.progress[:i]}
			}
			for at, cut := range cuts {
				path := filepath.Join(t.TempDir(), name)
				if err := errors.Join(os.WriteFile(path+partialSuffix, cut.data, 0o600), os.WriteFile(path+progressSuffix, cut.progress, 0o600)); err != nil {
					t.Fatal(err)
				}
				resumed, err := write(path, Options{}, func() {})
				want := max(0, bytes.Count(cut.progress, []byte("\n"))-1)
				if err != nil || resumed != want || !bytes.Equal(read(t, path), read(t, whole)) {
					t.Errorf("%s cut at %s after segment %d: resumed at %d (want %d), %v, equal bytes %t", name, at, n, resumed, want, err, bytes.Equal(read(t, path), read(t, whole)))
				}
			}
			before = p
		}
	}
}

// A partial file of other content, or with other bytes, is refused and stays as it is. Restart
// replaces it.
func TestAPartialFileThatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(path string) error
		want   error
	}{
		"other content": {func(path string) error {
			f, err := Open(path, content{"one"}, Options{Restart: true})
			if err != nil {
				return err
			}
			return errors.Join(f.Begin(1), f.Close())
		}, ErrOtherContent},
		"other bytes": {func(path string) error {
			return os.WriteFile(path+partialSuffix, bytes.Repeat([]byte("x"), 500), 0o600)
		}, ErrAltered},
		"too short":  {func(path string) error { return os.Truncate(path+partialSuffix, 100) }, ErrAltered},
		"other line": {func(path string) error { return os.WriteFile(path+progressSuffix, []byte("{}\n"), 0o600) }, ErrAltered},
	} {
		path := filepath.Join(t.TempDir(), "f")
		f, err := Open(path, content{"all"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, wrote := f.Write([]byte(segments[0]))
		if err := errors.Join(f.Begin("position 7"), wrote, f.Checkpoint(1), f.Close(), c.change(path)); err != nil {
			t.Fatal(err)
		}
		data, progress := read(t, path+partialSuffix), read(t, path+progressSuffix)
		if _, err := write(path, Options{}, func() {}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if !bytes.Equal(data, read(t, path+partialSuffix)) || !bytes.Equal(progress, read(t, path+progressSuffix)) {
			t.Errorf("%s: the refused files changed", name)
		}
		if resumed, err := write(path, Options{Restart: true}, func() {}); err != nil || resumed != 0 || string(read(t, path)) != strings.Join(segments, "") {
			t.Errorf("%s: restart = %d, %v, %q", name, resumed, err, read(t, path))
		}
	}
}

// An existing file is replaced with Overwrite only, and a lock excludes a second writer. A file
// that is closed before Begin leaves nothing.
func TestOneWriterReplacesAFileOnRequest(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	f, err := Open(path, content{"all"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, content{"all"}, Options{}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second Open = %v, want ErrInUse", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	noFile(t, path, path+partialSuffix, path+progressSuffix)
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A kill between the two steps of Finish leaves the progress of a complete file.
	if err := os.WriteFile(path+progressSuffix, []byte(`{"bytes":5}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := write(path, Options{}, func() {}); !errors.Is(err, ErrExists) || string(read(t, path)) != "before" {
		t.Errorf("write = %v, want ErrExists", err)
	}
	if _, err := write(path, Options{Overwrite: true}, func() {}); err != nil || string(read(t, path)) != strings.Join(segments, "") {
		t.Errorf("write = %v, %q", err, read(t, path))
	}
}

// A folder, a link and a device are never replaced.
func TestOnlyAFileIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", dir, link, "/dev/null"} {
		if _, err := Open(path, content{"all"}, Options{Overwrite: true}); !errors.Is(err, ErrNotAFile) {
			t.Errorf("Open of %q = %v, want ErrNotAFile", path, err)
		}
	}
	noFile(t, link+partialSuffix, dir+partialSuffix)
}

// A Stream writes the bytes of a File.
func TestAStreamHasTheBytesOfAFile(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"f", "f.gz", "f.zst"} {
		path := filepath.Join(t.TempDir(), name)
		if _, err := write(path, Options{}, func() {}); err != nil {
			t.Fatal(err)
		}
		by, _ := CompressionOf(name)
		var out bytes.Buffer
		s := NewStream(&out, by)
		for _, segment := range segments {
			_, err := io.WriteString(s, segment)
			if err = errors.Join(err, s.Checkpoint(nil)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Finish(); err != nil || !bytes.Equal(out.Bytes(), read(t, path)) {
			t.Errorf("%s: %v, %d bytes, want the %d of the file", name, err, out.Len(), len(read(t, path)))
		}
	}
}
