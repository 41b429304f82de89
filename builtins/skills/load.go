package skills

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/frontmatter"
)

// The limits of the sample of a skill's files.
const (
	// maxSample is the number of files that a result names.
	maxSample = 10
	// maxVisited is the maximum number of entries that are read for the sample.
	maxVisited = 2000
)

// find returns the skill of a name and a sample of its files, from the project or else
// from the user. more reports that the skill has further files. find returns an
// fs.ErrNotExist for an unknown skill, and the reason for an invalid skill.
func (f Folders) find(ctx context.Context, name string) (text skillText, sample []string, more bool, err error) {
	if err := frontmatter.CheckName(name); err != nil {
		return skillText{}, nil, false, fs.ErrNotExist
	}
	directories, err := f.open()
	if err == nil {
		err = fs.ErrNotExist
	}
	for _, d := range directories {
		defer d.Close()
		text, readErr := readSkill(d, name)
		if readErr == nil {
			sample, more, err = sampleFiles(ctx, d, name)
			return text, sample, more, err
		}
		if !errors.Is(readErr, fs.ErrNotExist) {
			err = readErr
		}
	}
	return skillText{}, nil, false, err
}

// sampleFiles returns the paths of some files of a skill, relative to its folder. The
// files of the folder come before the files of its subfolders; both are sorted by name.
// sampleFiles does not follow symbolic links, and skips names that begin with a dot and
// subfolders that it cannot read. more reports that there are or may be further files.
// sampleFiles returns the cause of an ended context.
func sampleFiles(ctx context.Context, d *frontmatter.Directory, name string) (sample []string, more bool, err error) {
	room := maxVisited
	for folders := []string{"."}; len(folders) > 0; folders = folders[1:] {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		entries, cut, err := d.List(path.Join(name, folders[0]), room)
		if err != nil {
			continue
		}
		more = more || cut
		room -= len(entries)
		for _, entry := range entries {
			file := path.Join(folders[0], entry.Name())
			switch {
			case strings.HasPrefix(entry.Name(), ".") || file == skillFile:
			case entry.IsDir():
				folders = append(folders, file)
			case !entry.Type().IsRegular():
			case len(sample) == maxSample:
				return sample, true, nil
			default:
				sample = append(sample, file)
			}
		}
		if room <= 0 {
			return sample, more || len(folders) > 1, nil
		}
	}
	return sample, more, nil
}

// contentVersion returns the version of a content for a domain.FileAccess.
func contentVersion(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
