package pebblefiles

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// FormatVersion is the version of Pebble's files that databases are made with, and
// that older ones are raised to when they are opened to write. A program that knows
// only an older one cannot open them then. It changes on purpose alone, and not
// because another release of Pebble knows a newer one: the tests name its number.
const FormatVersion = pebble.FormatValueSeparation

// ErrNewerVersion says that a database has a newer version of Pebble's files than
// FormatVersion.
var ErrNewerVersion = errors.New("database has a newer format")

// versionMarker is what the name of the empty file begins with that says the
// version: marker.format-version.COUNTER.VERSION. The highest counter is right.
const versionMarker = "marker.format-version."

// CheckVersion returns an ErrNewerVersion, with both numbers, if the version of a
// database's files is newer than FormatVersion. One that does not say its version is
// left to Pebble.
func CheckVersion(storage vfs.FS, dir string) error {
	names, err := storage.List(dir)
	if err != nil {
		return nil // there is no database yet, or Pebble says what is wrong
	}
	var last, found uint64
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, versionMarker)
		count, version, both := strings.Cut(rest, ".")
		at, bad := strconv.ParseUint(count, 10, 64)
		number, worse := strconv.ParseUint(version, 10, 64)
		if ok && both && bad == nil && worse == nil && at >= last {
			last, found = at, number
		}
	}
	if found > uint64(FormatVersion) {
		return fmt.Errorf("%w: version %d of Pebble's files, and this program knows versions up to %d; use a newer program", ErrNewerVersion, found, uint64(FormatVersion))
	}
	return nil
}
