package pebblefiles

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// FormatVersion is the version of Pebble's files. New databases have it, and opening an
// older database for writing raises the database to it. A program that supports only an
// older version cannot open the database afterwards. FormatVersion is fixed here, and
// does not follow the newest version of a Pebble release: a test names its number.
const FormatVersion = pebble.FormatValueSeparation

// ErrNewerVersion means that the version of a database's files is newer than
// FormatVersion.
var ErrNewerVersion = errors.New("database has a newer format")

// versionMarker is the prefix of the empty file whose name holds the version:
// marker.format-version.COUNTER.VERSION. The highest counter is in effect.
const versionMarker = "marker.format-version."

// CheckVersion returns an ErrNewerVersion, with both numbers, if the version of a
// database's files is newer than FormatVersion. It returns nil for a folder that has
// no version or cannot be listed; opening the database with Pebble then reports what
// is wrong.
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
