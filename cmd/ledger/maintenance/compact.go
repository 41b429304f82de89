package maintenance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/runner"
)

// Compact compacts the folder that o names and prints its size before and after to p.
// It returns an error that wraps events.ErrInUse while another process has the folder open
// or holds a valid lease.
func Compact(ctx context.Context, p *render.Printer, o *stores.Opener) error {
	dir, err := existingFolder(o)
	if err != nil {
		return err
	}
	before, err := folderSize(dir)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := compactFolder(ctx, o, dir); err != nil {
		return err
	}
	after, err := folderSize(dir)
	if err != nil {
		return err
	}
	row := struct {
		Store   string  `json:"store"`
		Before  int64   `json:"before"`
		After   int64   `json:"after"`
		Seconds float64 `json:"seconds"`
	}{dir, before, after, time.Since(begun).Seconds()}
	return p.Object(row, func() { p.Line("%s before, %s after.", render.Bytes(before), render.Bytes(after)) })
}

// compactFolder opens the store in dir exclusively and compacts it. It refuses if the
// log has a process with a valid lease, because that process could not renew its lease
// during the compaction.
func compactFolder(ctx context.Context, o *stores.Opener, dir string) (err error) {
	s, err := o.OpenFolder(ctx, dir, storedir.Owner{Command: o.Command})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	lives, err := stores.Current(ctx, s, runner.Processes())
	if err != nil {
		return err
	}
	var alive []string
	for _, p := range s.Judge(lives, o.Clock()).Living {
		alive = append(alive, fmt.Sprintf("process %d (%s on %s, its lease runs until %s)", p.PID, p.Program, p.Host, p.Until.UTC().Format(time.RFC3339)))
	}
	if len(alive) > 0 {
		return fault.WithHint(fmt.Errorf("compact %s: %w by %s", dir, events.ErrInUse, strings.Join(alive, ", ")), "end these processes, or wait until their leases have run out")
	}
	return errors.Join(s.Folder.Log.Compact(ctx), s.Folder.Outputs.Compact(ctx))
}
