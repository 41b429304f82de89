package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
)

// storeInfoCommand returns the command ledger store info.
func (a *app) storeInfoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "info", Short: "Show what a store holds, how large it is and how it grows",
		Example: "  ledger store info\n  ledger store info -o json | jq '.kinds'",
		Long: `Read the headers of all records and show their number and size, by kind, by
category of stream and for the largest sessions; how much came on each of the last
days; how large the folder is and what of it is tables, logs and outputs; and
what file system it is on, with how much of that is free. How the tables lie and how
fast records came is not shown while another process has the folder open.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := a.Folder()
			if err != nil {
				return err
			}
			return a.Read(cmd.Context(), func(s *stores.Store) error { return a.storeInfo(cmd.Context(), dir, s) })
		},
	}
}

// A weight is the number of events of a kind, category, session or day, and the size
// of their data and metadata.
type weight struct {
	Name   string `json:"name"`
	Events int    `json:"events"`
	Bytes  int64  `json:"bytes"`
}

// A storeRow is the JSON result of ledger store info.
type storeRow struct {
	Store      string                `json:"store"`
	Format     int                   `json:"format"`   // version of the folder format
	Position   events.Position       `json:"position"` // of the last record
	Events     int                   `json:"events"`
	Bytes      int64                 `json:"bytes"` // of the data and metadata of all records
	Streams    int                   `json:"streams"`
	First      render.Timestamp      `json:"first"`      // time of the first record
	Last       render.Timestamp      `json:"last"`       // time of the last record
	Kinds      []weight              `json:"kinds"`      // largest first
	Categories []weight              `json:"categories"` // largest first
	Sessions   []weight              `json:"sessions"`   // the ten largest, largest first
	Days       []weight              `json:"days"`       // the last seven UTC days with events, by the times of the events
	Files      map[string]fileWeight `json:"files"`      // keys: tables, logs, outputs, other
	Outputs    int                   `json:"outputs"`    // number of kept outputs
	Kept       int64                 `json:"kept"`       // size of the kept outputs
	Levels     []levelRow            `json:"levels"`     // non-empty levels; empty while another process has the folder open
	Ratio      *float64              `json:"ratio"`      // bytes in tables for each byte of data and metadata; null: not known
	Disk       stores.Disk           `json:"disk"`
	Pace       *paceRow              `json:"pace"` // of the last process that wrote and closed in order; null: not known
}

// A paceRow holds the write statistics of the last process that wrote to the store
// and closed it in order. Sync durations are in microseconds.
type paceRow struct {
	Closed     render.Timestamp `json:"closed"`
	Durability string           `json:"durability"`
	Appends    uint64           `json:"appends"`
	Records    uint64           `json:"records"`
	Groups     uint64           `json:"groups"` // group commits: batches of appends that shared a sync
	Syncs      int              `json:"syncs"`  // number of syncs that the durations are of, the last ones
	Median     int64            `json:"median_us"`
	P99        int64            `json:"p99_us"`
	Longest    int64            `json:"longest_us"`
}

// A fileWeight is the number and the size of the files of one sort.
type fileWeight struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// A levelRow is the number and the size of the tables of one level of Pebble's tree.
type levelRow struct {
	Level  int   `json:"level"`
	Tables int64 `json:"tables"`
	Bytes  int64 `json:"bytes"`
}

// shown is the number of sessions in a storeRow.
const shown = 10

// storeInfo prints the size of the store s in dir. Layout and write statistics are
// known only if this process has the folder open itself.
func (a *app) storeInfo(ctx context.Context, dir string, s *stores.Store) (err error) {
	row := &storeRow{Store: dir, Format: storedir.Format, Levels: []levelRow{}}
	if row.Position, err = s.Head(ctx); err != nil {
		return err
	}
	if err := row.weigh(ctx, s.Log); err != nil {
		return err
	}
	for kept, err := range s.LocalOutputs.All(ctx) {
		if err != nil {
			return err
		}
		row.Outputs++
		row.Kept += kept.Bytes
	}
	if s.Folder != nil { // nil: another process has the folder open
		if err := row.examine(ctx, s.Folder.Log); err != nil {
			return err
		}
	}
	if row.Files, err = folderFiles(dir); err != nil {
		return err
	}
	row.Disk = stores.DiskOf(dir)
	return a.Object(row, func() { a.storePage(row) })
}

// examine fills in the levels, the ratio and the write statistics of r from an open
// store.
func (r *storeRow) examine(ctx context.Context, store *embedded.Store) error {
	layout, err := store.Layout()
	if err != nil {
		return err
	}
	tables := int64(0)
	for i, l := range layout.Levels {
		if l.Tables > 0 {
			r.Levels = append(r.Levels, levelRow{i, l.Tables, l.Bytes})
		}
		tables += l.Bytes
	}
	if tables > 0 && r.Bytes > 0 {
		r.Ratio = render.OrNull(float64(tables) / float64(r.Bytes))
	}
	if p, ok, err := store.LastSummary(ctx); err != nil {
		return err
	} else if ok {
		r.Pace = &paceRow{
			render.Timestamp(p.Closed), p.Durability, p.Appends, p.Records, p.Groups, p.Syncs,
			p.Median.Microseconds(), p.P99.Microseconds(), p.Longest.Microseconds(),
		}
	}
	return nil
}

// weigh reads the headers of all records and fills in the counts of r.
func (r *storeRow) weigh(ctx context.Context, store events.Store) error {
	kinds, categories, sessions, days := map[string]*weight{}, map[string]*weight{}, map[string]*weight{}, map[string]*weight{}
	streams := map[events.Stream]bool{}
	for h, err := range events.Headers(ctx, store, events.Query{}) {
		if err != nil {
			return err
		}
		r.Events++
		r.Bytes += int64(h.Size)
		streams[h.Stream] = true
		if r.First == (render.Timestamp{}) {
			r.First = render.Timestamp(h.Time)
		}
		r.Last = render.Timestamp(h.Time)
		add(kinds, h.Kind, h.Size)
		add(categories, h.Stream.Category(), h.Size)
		if id, ok := h.Stream.Session(); ok {
			add(sessions, id.String(), h.Size)
		}
		add(days, h.Time.UTC().Format(time.DateOnly), h.Size)
	}
	r.Streams = len(streams)
	largest := func(x, y weight) int { return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Name, y.Name)) }
	r.Kinds, r.Categories, r.Sessions = sorted(kinds, largest), sorted(categories, largest), sorted(sessions, largest)
	r.Sessions = r.Sessions[:min(shown, len(r.Sessions))]
	r.Days = sorted(days, func(x, y weight) int { return cmp.Compare(x.Name, y.Name) })
	r.Days = r.Days[max(0, len(r.Days)-7):]
	return nil
}

// add counts an event of size bytes under name.
func add(to map[string]*weight, name string, size int) {
	w := to[name]
	if w == nil {
		w = &weight{Name: name}
		to[name] = w
	}
	w.Events++
	w.Bytes += int64(size)
}

// sorted returns the weights in the given order.
func sorted(weights map[string]*weight, order func(x, y weight) int) []weight {
	all := make([]weight, 0, len(weights))
	for w := range maps.Values(weights) {
		all = append(all, *w)
	}
	slices.SortFunc(all, order)
	return all
}

// folderFiles returns the number and the size of the files in the folder of a store,
// by sort.
func folderFiles(dir string) (map[string]fileWeight, error) {
	found := map[string]fileWeight{"tables": {}, "logs": {}, "outputs": {}, "other": {}}
	err := eachFile(dir, func(path string, size int64) {
		sort := "other"
		switch first, ext := topOf(path), filepath.Ext(path); {
		case first == stores.OutputsName:
			sort = "outputs"
		case first == "log" && (ext == ".sst" || ext == ".blob"):
			sort = "tables"
		case first == "log" && ext == ".log":
			sort = "logs"
		}
		w := found[sort]
		found[sort] = fileWeight{w.Files + 1, w.Bytes + size}
	})
	return found, err
}

// topOf returns the first element of a relative path.
func topOf(path string) string {
	for dir := filepath.Dir(path); dir != "."; path, dir = dir, filepath.Dir(dir) {
	}
	return path
}

// folderSize returns the total size of the files under dir.
func folderSize(dir string) (total int64, err error) {
	err = eachFile(dir, func(_ string, size int64) { total += size })
	return total, err
}

// eachFile calls do for each file under dir, with its path relative to dir. It skips
// files that disappear during the walk.
func eachFile(dir string, do func(path string, size int64)) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return gone(err)
		}
		file, err := d.Info()
		if err != nil {
			return gone(err)
		}
		if path, err = filepath.Rel(dir, path); err == nil {
			do(path, file.Size())
		}
		return err
	})
}

// gone returns nil for a file that no longer exists, and err otherwise.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// storePage prints a storeRow for a person.
func (a *app) storePage(r *storeRow) {
	a.Line("Store      %s, format %d", r.Store, r.Format)
	a.Line("Position   %s", r.Position)
	a.Line("Events     %d in %s, %s", r.Events, render.Count(r.Streams, "stream"), render.Bytes(r.Bytes))
	if r.Events > 0 {
		a.Line("From       %s to %s", a.LongTime(render.TimeOf(r.First)), a.LongTime(render.TimeOf(r.Last)))
	}
	a.Line("Outputs    %d, %s", r.Outputs, render.Bytes(r.Kept))
	total := int64(0)
	for _, name := range []string{"tables", "logs", "outputs", "other"} {
		f := r.Files[name]
		total += f.Bytes
		a.Line("%-10s %s in %s", name, render.Bytes(f.Bytes), render.Count(f.Files, "file"))
	}
	a.Line("Folder     %s", render.Bytes(total))
	if r.Ratio != nil {
		a.Line("Tables     hold %.2f bytes for each byte of events", *r.Ratio)
	}
	for _, l := range r.Levels {
		a.Line("Level %d    %s, %s", l.Level, render.Count(int(l.Tables), "table"), render.Bytes(l.Bytes))
	}
	a.diskLines(r.Disk)
	if p := r.Pace; p != nil {
		a.Line("Syncs      %.2f ms at the median, %.2f ms at the 99th percentile, %.2f ms the longest, of the last %d before %s",
			ms(p.Median), ms(p.P99), ms(p.Longest), p.Syncs, a.LongTime(render.TimeOf(p.Closed)))
		a.Line("Appends    %d in %s that shared a sync, then; durability %s", p.Appends, render.Count(int(p.Groups), "group"), p.Durability)
	}
	for _, part := range []struct {
		title   string
		weights []weight
	}{{"KIND", r.Kinds}, {"CATEGORY", r.Categories}, {"LARGEST SESSIONS", r.Sessions}, {"DAY", r.Days}} {
		t := render.Table{Head: []string{part.title, ">EVENTS", ">SIZE"}}
		for _, w := range part.weights {
			t.Add(render.OneLine(w.Name, 40), fmt.Sprint(w.Events), render.Bytes(w.Bytes))
		}
		if len(t.Rows) > 0 {
			a.Line("")
			a.Table(t)
		}
	}
}

// ms converts microseconds to milliseconds.
func ms(microseconds int64) float64 { return float64(microseconds) / 1000 }

// diskLines prints the file system of the store, with a warning if it is a network
// file system.
func (a *app) diskLines(d stores.Disk) {
	kind := "not known"
	if d.Type != nil {
		kind = *d.Type
	}
	if d.Free != nil && d.Total != nil {
		a.Line("Disk       %s, %s of %s free", kind, render.Bytes(*d.Free), render.Bytes(*d.Total))
	}
	if d.Network {
		a.Line("%s", a.Styled(render.Yellow, "This is a network file system: that a lock holds and that a sync is a sync is up to its server."))
	}
}
