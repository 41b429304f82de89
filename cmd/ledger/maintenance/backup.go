package maintenance

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/backup"
)

// A backupReport is the JSON result of ledger store backup and restore.
type backupReport struct {
	Backup   string           `json:"backup"`
	Store    string           `json:"store"`
	Position events.Position  `json:"position"` // of the last record in the backup
	Records  uint64           `json:"records"`
	Digest   string           `json:"digest"`
	Made     render.Timestamp `json:"made"`
	Files    int              `json:"files"`
	Bytes    int64            `json:"bytes"`
	Written  writtenFiles     `json:"written"` // the part that this run wrote; the rest was there
	Missing  []string         `json:"missing"` // outputs that records name and the store does not hold
}

// A writtenFiles is the number and the size of the files that a backup wrote.
type writtenFiles struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// newBackupReport returns the result for the backup b in the folder dir. store is the
// name of the store, and w counts the files that were written.
func newBackupReport(dir, store string, b backup.Manifest, w backup.Written) backupReport {
	return backupReport{dir, store, b.Position, b.Records, b.Digest, render.Timestamp(b.Made), len(b.Files), b.Bytes(), writtenFiles{w.Files, w.Bytes}, append([]string{}, b.Missing...)}
}

// Backup makes a backup of the store in the folder that o names, and prints the result
// to p. The backup is in the folder dir. If another process serves the store, that
// process makes the backup.
func Backup(ctx context.Context, p *render.Printer, o *stores.Opener, dir string) error {
	if _, err := o.Folder(); err != nil {
		return err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	return o.Write(ctx, func(s *stores.Store) error {
		row, err := makeBackup(ctx, s, dir)
		if err != nil {
			return err
		}
		return p.Object(row, func() {
			p.Line("%s to position %s, %s of %s; %s of %s written.", render.Count(int(row.Records), "record"), row.Position,
				render.Count(row.Files, "file"), render.Bytes(row.Bytes), render.Count(row.Written.Files, "file"), render.Bytes(row.Written.Bytes))
			p.Line("Digest: %s", row.Digest)
			if len(row.Missing) > 0 {
				p.Line("%s", p.Styled(render.Red, "✗ "+render.Count(len(row.Missing), "output")+" that the records name, not in the store: ledger store check lists them"))
			}
		})
	})
}

// makeBackup makes a backup of a folder. If another process serves the folder, it asks
// that process to make the backup.
func makeBackup(ctx context.Context, s *stores.Store, dir string) (backupReport, error) {
	if s.Sharing == nil {
		return backupReport{}, fault.Usage("a backup is of a folder: %s is not one", s.Name)
	}
	made, err := s.Sharing.Backup(ctx, dir)
	return newBackupReport(dir, s.Name, made.Backup, made.Written), err
}

// Restore restores the backup in the folder src into the folder that o names, which must
// be empty or missing. It checks the new store and prints the result to p. If the backup
// contains damage, Restore returns a fault.Error with exit code 3 and leaves the new
// store in place.
func Restore(ctx context.Context, p *render.Printer, o *stores.Opener, src string) error {
	dir, err := o.Folder()
	if err != nil {
		return err
	}
	made, err := backup.Restore(ctx, src, dir, nil)
	if err != nil {
		return err
	}
	c, err := checkFolder(ctx, p, dir)
	if err != nil {
		return err
	}
	if len(c.Damages) == 0 { // a damaged store may not open; its findings are printed
		s, err := o.OpenSharedFolder(ctx, dir)
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			return err
		}
	}
	row := newBackupReport(src, dir, made, backup.Written{Files: len(made.Files), Bytes: made.Bytes()})
	err = p.Object(row, func() {
		p.Line("%s to position %s, from a backup of %s.", render.Count(int(row.Records), "record"), row.Position, p.LongTime(made.Made))
		p.Line("Digest: %s", row.Digest)
		if len(c.Damages) > 0 {
			printCheck(p, c)
		}
	})
	if err == nil && len(c.Damages) > 0 {
		return &fault.Error{
			Exit: fault.ExitUnverified, Code: "damaged", Err: fmt.Errorf("restore %s: %s, which the backup has as well", dir, render.Count(len(c.Damages), "damage")),
			Hint: "ledger store check lists them",
		}
	}
	return err
}
