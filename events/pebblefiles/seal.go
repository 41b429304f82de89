package pebblefiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The seal is a file in the folder of a database that Pebble ignores:
//
//	settlement-ledger seal, format 2
//	end NUMBER
//	file NAME BYTES SUM         one for each file, unless the database was opened since
//	sum CRC-32C                 over the lines before
//
// The SUM is the CRC-32C of the file's bytes or, for a table, of sums inside it (see
// tableSum); it is - for a table whose sums cannot be read. In format 1 it is - for every
// table.
const (
	sealName   = "seal"
	sealTitle  = "settlement-ledger seal, format 2\n"
	sealTitle1 = "settlement-ledger seal, format 1\n"
)

// Seal writes a seal that lists the files of a closed database, durably. The seal
// also holds the number end, which the caller chooses and which Unseal returns.
func Seal(storage vfs.FS, dir string, end uint64) error {
	text, err := sealOf(storage, dir, end)
	if err != nil {
		return fmt.Errorf("seal %s: %w", dir, err)
	}
	if err := WriteFile(storage, dir, sealName, text); err != nil {
		return fmt.Errorf("seal %s: %w", dir, err)
	}
	return nil
}

// sealOf returns the text of the seal of a folder.
func sealOf(storage vfs.FS, dir string, end uint64) ([]byte, error) {
	list, err := List(storage, dir)
	if err != nil {
		return nil, err
	}
	text := sealBegin(end)
	for _, f := range list {
		if !isSealed(f.Name) {
			continue
		}
		sum, err := sumOf(storage, dir, f)
		if err != nil {
			return nil, err
		}
		text = fmt.Appendf(text, "file %s %d %s\n", f.Name, f.Bytes, sum)
	}
	return sealEnd(text), nil
}

// sealBegin returns the lines of a seal before the lines of its files.
func sealBegin(end uint64) []byte { return fmt.Appendf([]byte(sealTitle), "end %d\n", end) }

// sealEnd appends the last line of a seal, with the checksum of text.
func sealEnd(text []byte) []byte {
	return fmt.Appendf(text, "sum %08x\n", crc32.Checksum(text, castagnoli))
}

// isSealed reports whether a seal lists a file with this name. A seal does not list the
// lock file, temporary files and itself.
func isSealed(name string) bool {
	return name != "LOCK" && name != sealName && !strings.HasSuffix(name, ".new") && !strings.ContainsAny(name, " \n")
}

// sumOf returns the checksum of a file in a seal: tableSum of a table, noSum for a
// blob file, and otherwise the CRC-32C of the whole content.
func sumOf(storage vfs.FS, dir string, f File) (string, error) {
	switch f.Kind {
	case Table:
		return tableSum(storage, storage.PathJoin(dir, f.Name)), nil
	case Blob:
		return noSum, nil
	}
	file, err := storage.Open(storage.PathJoin(dir, f.Name))
	if err != nil {
		return "", err
	}
	sum := crc32.New(castagnoli)
	_, err = io.Copy(sum, file)
	return fmt.Sprintf("%08x", sum.Sum32()), errors.Join(err, file.Close())
}

// Unseal compares the folder of a database with its seal before the database is opened
// for writing. It then removes the list of files from the seal, durably, because the
// database will change the files. It returns the number in the seal, or 0 without a
// seal. The number stays in the seal until the next Seal, even if a process that opens
// the database before then is killed.
//
// If a file differs, Unseal returns an [ErrDamaged] that names the file, and keeps the
// seal. If a program that writes no seals has opened the database since it was sealed,
// Unseal does not compare the files and only returns the number. For files of a newer
// version it returns an [ErrNewerVersion].
func Unseal(storage vfs.FS, dir string) (end uint64, err error) {
	end, ok, err := compareSeal(storage, dir)
	if err != nil || !ok {
		return 0, err
	}
	return end, WriteFile(storage, dir, sealName, sealEnd(sealBegin(end)))
}

// Intact compares the folder of a database with its seal as Unseal does, and leaves the
// seal unchanged, for a reader.
func Intact(storage vfs.FS, dir string) (end uint64, err error) {
	end, _, err = compareSeal(storage, dir)
	return end, err
}

// compareSeal compares a folder with its seal. It returns the number in the seal, and
// the first damage as the error. ok is false after an error, and for a folder without
// a seal.
func compareSeal(storage vfs.FS, dir string) (end uint64, ok bool, err error) {
	if err := CheckVersion(storage, dir); err != nil {
		return 0, false, err
	}
	list, err := List(storage, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	text, err := readFile(storage, storage.PathJoin(dir, sealName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	end, damages, err := compare(storage, dir, list, text)
	if err == nil && len(damages) > 0 {
		err = damages[0]
	}
	return end, err == nil, err
}

// Sealed reports whether a database was closed cleanly after its last use. end is the
// number in its seal, or 0 without a readable seal. It does not compare or change
// files.
func Sealed(storage vfs.FS, dir string) (end uint64, closed bool) {
	text, err := readFile(storage, storage.PathJoin(dir, sealName))
	if err != nil {
		return 0, false
	}
	list, err := List(storage, dir)
	if err != nil {
		return 0, false
	}
	end, lines, err := parseSeal(text)
	return end, err == nil && !outdated(list, lines)
}

// sealDamages returns a Damage for each file that differs from the seal. It returns
// no damage without a seal, and an error for an unreadable one.
func sealDamages(storage vfs.FS, dir string, list []File) ([]*Damage, error) {
	text, err := readFile(storage, storage.PathJoin(dir, sealName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	_, damages, err := compare(storage, dir, list, text)
	return damages, err
}

// compare returns the number in a seal, and a Damage for each file that is missing or
// differs from the seal. If the database was opened since it was sealed, the seal is
// outdated, and compare returns no damages. A table that differs only because it has
// a damaged block is not a Damage either: reads of that block will fail, and all
// other blocks can be read.
func compare(storage vfs.FS, dir string, list []File, text []byte) (uint64, []*Damage, error) {
	end, lines, err := parseSeal(text)
	if err != nil {
		return 0, nil, err
	}
	there := map[string]File{}
	for _, f := range list {
		there[f.Name] = f
	}
	if outdated(list, lines) {
		return end, nil, nil
	}
	var damages []*Damage
	for _, want := range lines {
		f, ok := there[want.name]
		switch {
		case !ok:
			damages = append(damages, &Damage{want.name, -1, 0, missing})
			continue
		case f.Bytes != want.bytes:
			damages = append(damages, &Damage{f.Name, -1, 0, fmt.Sprintf("it has %d bytes, and %d were there when the store was closed", f.Bytes, want.bytes)})
			continue
		}
		sum, err := sumOf(storage, dir, f)
		if err != nil {
			sum = err.Error()
		}
		if f.Kind == Table && (sum == noSum || want.sum == noSum) {
			continue // a seal of format 1, or an unreadable block, which its reader reports
		}
		if sum != want.sum && !(f.Kind == Table && hasDamagedBlock(storage, dir, f)) {
			damages = append(damages, &Damage{f.Name, -1, 0, "it is not as it was when the store was closed: its sum is " + sum + ", not " + want.sum})
		}
	}
	return end, damages, nil
}

// hasDamagedBlock reports whether a block of a table does not match its checksum. If
// so, compare assumes that this block is why the table differs from the seal, and not
// that another table replaced it.
func hasDamagedBlock(storage vfs.FS, dir string, f File) bool {
	return len(checkTable(context.Background(), storage, storage.PathJoin(dir, f.Name), f)) > 0
}

// outdated reports whether the database was opened after it was sealed. Then the seal
// lists no files, or there is a newer manifest because a program that writes no seals
// opened the database.
func outdated(list []File, lines []sealLine) bool {
	if len(lines) == 0 {
		return true
	}
	last := uint64(0)
	for _, l := range lines {
		last = max(last, manifestNumber(l.name))
	}
	return slices.ContainsFunc(list, func(f File) bool { return manifestNumber(f.Name) > last })
}

// manifestNumber returns the number of a manifest, or 0 for any other file.
func manifestNumber(name string) uint64 {
	digits, _ := strings.CutPrefix(name, "MANIFEST-")
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || KindOf(name) != Manifest {
		return 0
	}
	return number
}

// A sealLine is the line of a seal about one file.
type sealLine struct {
	name  string
	bytes int64
	sum   string
}

// parseSeal returns the number and the lines of a seal. It returns a Damage if the
// checksum does not match or a line is invalid.
func parseSeal(text []byte) (end uint64, lines []sealLine, err error) {
	bad := func(why string) (uint64, []sealLine, error) {
		return 0, nil, &Damage{File: sealName, Offset: -1, Why: why}
	}
	at := bytes.LastIndex(text, []byte("sum "))
	if at < 0 || string(text[at:]) != fmt.Sprintf("sum %08x\n", crc32.Checksum(text[:at], castagnoli)) {
		return bad("its bytes do not match their sum")
	}
	rest, ok := bytes.CutPrefix(text[:at], []byte(sealTitle))
	if !ok {
		rest, ok = bytes.CutPrefix(text[:at], []byte(sealTitle1))
	}
	if !ok {
		return bad("it is of another format")
	}
	for line := range strings.Lines(string(rest)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && words[0] == "end":
			end, err = strconv.ParseUint(words[1], 10, 64)
		case len(words) == 4 && words[0] == "file":
			size, e := strconv.ParseInt(words[2], 10, 64)
			lines, err = append(lines, sealLine{words[1], size, words[3]}), e
		default:
			return bad("it is not valid")
		}
		if err != nil {
			return bad(err.Error())
		}
	}
	return end, lines, nil
}

// WriteFile writes a file atomically and durably, and replaces an existing one. It uses
// a temporary file with the suffix .new.
func WriteFile(storage vfs.FS, dir, name string, content []byte) error {
	path := storage.PathJoin(dir, name)
	file, err := storage.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write(bytes.Clone(content)) // Write may change its argument
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := storage.Rename(path+".new", path); err != nil {
		return err
	}
	return SyncDir(storage, dir)
}

// MakeDirs creates a folder and its missing parents, durably: a power cut that loses the
// entry of a folder loses its files.
func MakeDirs(storage vfs.FS, dir string) error {
	var missing []string
	for at := dir; ; at = storage.PathDir(at) {
		info, err := storage.Stat(at)
		if err == nil && !info.IsDir() {
			return fmt.Errorf("%s is not a folder", at)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, at)
		if storage.PathDir(at) == at {
			break
		}
	}
	for _, at := range slices.Backward(missing) {
		if err := storage.MkdirAll(at, 0o700); err != nil {
			return err
		}
		if err := SyncDir(storage, storage.PathDir(at)); err != nil {
			return err
		}
	}
	return nil
}

// SyncDir makes the entries of a folder durable: created, renamed and removed files.
func SyncDir(storage vfs.FS, dir string) error {
	if dir == "" {
		dir = "."
	}
	d, err := storage.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
