package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
)

// holdVariable is an environment variable. If it is set, the test binary holds a
// store open and runs no tests.
const holdVariable = "LEDGER_TEST_HOLD_STORE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdVariable); dir != "" {
		hold(dir)
		return
	}
	os.Exit(m.Run())
}

// hold opens a store, prints that it is open, and waits for the end of its input.
func hold(dir string) {
	if _, err := Open(context.Background(), dir, Config{Owner: storedir.Owner{Command: "holder"}}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	bufio.NewReader(os.Stdin).ReadByte()
}

func TestAStoreInUseNamesTheProcessThatHasIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), holdVariable+"="+dir)
	input, err := other.StdinPipe()
	must(t, err)
	output, err := other.StdoutPipe()
	must(t, err)
	must(t, other.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	if line != "open\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	inUse(t, dir, fmt.Sprintf("process %d (holder on ", other.Process.Pid))
	must(t, os.WriteFile(filepath.Join(dir, storedir.OwnerName), []byte(`{"pid":12`), 0o600))
	inUse(t, dir, "another process")

	must(t, input.Close()) // it ends without closing the store
	must(t, other.Wait())
	s, err := Open(t.Context(), dir, Config{})
	must(t, err)
	inUse(t, dir, fmt.Sprintf("process %d ", os.Getpid()))
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	inUse(t, link, "which is this one")
	must(t, s.Close())
	if _, err := os.Stat(filepath.Join(dir, storedir.OwnerName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the owner file of a closed store: %v, want it gone", err)
	}
	s, err = Open(t.Context(), dir, Config{})
	must(t, err)
	must(t, s.Close())
}

func inUse(t *testing.T, dir, who string) {
	t.Helper()
	_, err := Open(t.Context(), dir, Config{})
	real, _ := filepath.EvalSymlinks(dir)
	if !errors.Is(err, events.ErrInUse) || !strings.Contains(err.Error(), real) || !strings.Contains(err.Error(), who) {
		t.Errorf("Open of a store in use = %v, want ErrInUse that names %s and %q", err, real, who)
	}
}

func TestANewerFormatIsRefusedAndNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, storedir.FormatName), []byte(storedir.FormatTitle+"7\n"), 0o600))
	_, err := Open(t.Context(), dir, Config{})
	if !errors.Is(err, events.ErrNewerFormat) || !strings.Contains(err.Error(), "format 7") || !strings.Contains(err.Error(), "up to 1") {
		t.Errorf("Open of format 7 = %v, want ErrNewerFormat that names both formats", err)
	}
	untouched(t, dir, storedir.FormatName)
}

func TestAFolderThatIsNotAStoreIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{"notes.txt": "mine", "lock.txt": "", storedir.FormatName: "something else 1\n", storedir.LogName: "", storedir.OwnerName: "{}"} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		if _, err := Open(t.Context(), dir, Config{}); !errors.Is(err, events.ErrNotAStore) || !strings.Contains(err.Error(), dir) {
			t.Errorf("Open of a folder with %s = %v, want ErrNotAStore that names the folder", name, err)
		}
		untouched(t, dir, name)
	}
}

// untouched returns an error unless a folder holds exactly these files.
func untouched(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, want) {
		t.Errorf("%s holds %q, want %q", dir, names, want)
	}
}

func TestAMissingFolderIsMadeWithItsParents(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b", "c")
	s, err := Open(t.Context(), dir, Config{})
	must(t, err)
	must(t, s.Close())
	untouched(t, dir, storedir.FormatName, storedir.LockName, storedir.LogName)
}

func TestOpeningNamesWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if _, err := Open(t.Context(), dir, Config{}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("Open(%s), where a file is = %v, want an error that names it", dir, err)
		}
	}
	locked := filepath.Join(t.TempDir(), "locked")
	must(t, os.Mkdir(locked, 0o500))
	if os.Getuid() != 0 { // nothing is locked for root
		if _, err := Open(t.Context(), locked, Config{}); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), locked) {
			t.Errorf("Open(a folder without permission) = %v, want an error that names it", err)
		}
	}
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if _, err := Open(ctx, t.TempDir(), Config{}); err != stop {
		t.Errorf("Open in a context that ended = %v, want its cause", err)
	}
}

// After a power cut that leaves a lock file and the beginning of a FORMAT file, the
// store opens.
func TestAStoreCutOffWhileItWasMadeOpens(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	must(t, storage.MkdirAll("store", 0o700))
	for _, name := range []string{storedir.LockName, storedir.FormatName + ".new"} {
		f, err := storage.Create("store/"+name, vfs.WriteCategoryUnspecified)
		must(t, err)
		must(t, f.Close())
	}
	must(t, open(t, storage).Append(t.Context(), "s-1", 0, newRecordWriter(1).records(1, 1)...))
}

func TestClosingTwiceIsErrClosed(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	must(t, s.Close())
	if err := s.Close(); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Close again = %v, want ErrClosed", err)
	}
}
