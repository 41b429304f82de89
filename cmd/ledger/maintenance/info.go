package maintenance

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

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
)

// An eventTotals has the number of events of a kind, category, session or day, and the size
// of their data and metadata.
type eventTotals struct {
	Name   string `json:"name"`
	Events int    `json:"events"`
	Bytes  int64  `json:"bytes"`
}

// An infoReport is the JSON result of ledger store info.
type infoReport struct {
	Store       string                `json:"store"`
	Format      int                   `json:"format"`   // version of the folder format
	Position    events.Position       `json:"position"` // of the last record
	Events      int                   `json:"events"`
	Bytes       int64                 `json:"bytes"` // of the data and metadata of all records
	Streams     int                   `json:"streams"`
	First       render.Timestamp      `json:"first"`      // time of the first record
	Last        render.Timestamp      `json:"last"`       // time of the last record
	Kinds       []eventTotals         `json:"kinds"`      // largest first
	Categories  []eventTotals         `json:"categories"` // largest first
	Sessions    []eventTotals         `json:"sessions"`   // the ten largest, largest first
	Days        []eventTotals         `json:"days"`       // the last seven UTC days with events, by the times of the events
	Files       map[string]fileTotals `json:"files"`      // keys: tables, logs, outputs, other
	Outputs     int                   `json:"outputs"`    // number of outputs in the store
	OutputBytes int64                 `json:"kept"`       // size of the outputs in the store
	Levels      []levelRow            `json:"levels"`     // non-empty levels; empty while another process has the folder open
	Ratio       *float64              `json:"ratio"`      // bytes in tables for each byte of data and metadata; null: not known
	Disk        stores.Disk           `json:"disk"`
	WriteStats  *writeStats           `json:"pace"` // of the last process that wrote and closed in order; null: not known
}

// A writeStats has the write statistics of the last process that wrote to the store
// and closed it in order. Sync durations are in microseconds.
type writeStats struct {
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

// A fileTotals has the number and the size of the files of one kind: tables, logs,
// outputs or other files.
type fileTotals struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// A levelRow is the number and the size of the tables of one level of Pebble's tree.
type levelRow struct {
	Level  int   `json:"level"`
	Tables int64 `json:"tables"`
	Bytes  int64 `json:"bytes"`
}

// maxSessions is the number of sessions in an infoReport.
const maxSessions = 10

// Info reads the folder that o names and prints its contents and sizes to p.
func Info(ctx context.Context, p *render.Printer, o *stores.Opener) error {
	dir, err := o.Folder()
	if err != nil {
		return err
	}
	return o.Read(ctx, func(s *stores.Store) error { return showSizes(ctx, p, dir, s) })
}

// showSizes prints the contents and the sizes of the store s in dir. It prints the
// layout and the write statistics only if this process itself has the folder open.
func showSizes(ctx context.Context, p *render.Printer, dir string, s *stores.Store) (err error) {
	row := &infoReport{Store: dir, Format: storedir.Format, Levels: []levelRow{}}
	if row.Position, err = s.Head(ctx); err != nil {
		return err
	}
	if err := row.readHeaders(ctx, s.Log); err != nil {
		return err
	}
	for output, err := range s.LocalOutputs.All(ctx) {
		if err != nil {
			return err
		}
		row.Outputs++
		row.OutputBytes += output.Bytes
	}
	if s.Folder != nil { // nil: another process has the folder open
		if err := row.readLayout(ctx, s.Folder.Log); err != nil {
			return err
		}
	}
	if row.Files, err = folderFiles(dir); err != nil {
		return err
	}
	row.Disk = stores.DiskOf(dir)
	return p.Object(row, func() { printInfo(p, row) })
}

// readLayout fills in the levels, the ratio and the write statistics of r from an open
// store.
func (r *infoReport) readLayout(ctx context.Context, store *embedded.Store) error {
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
		r.WriteStats = &writeStats{
			render.Timestamp(p.Closed), p.Durability, p.Appends, p.Records, p.Groups, p.Syncs,
			p.Median.Microseconds(), p.P99.Microseconds(), p.Longest.Microseconds(),
		}
	}
	return nil
}

// readHeaders reads the headers of all records and fills in the counts of r.
func (r *infoReport) readHeaders(ctx context.Context, store events.Store) error {
	kinds, categories, sessions, days := map[string]*eventTotals{}, map[string]*eventTotals{}, map[string]*eventTotals{}, map[string]*eventTotals{}
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
		addEvent(kinds, h.Kind, h.Size)
		addEvent(categories, h.Stream.Category(), h.Size)
		if id, ok := h.Stream.Session(); ok {
			addEvent(sessions, id.String(), h.Size)
		}
		addEvent(days, h.Time.UTC().Format(time.DateOnly), h.Size)
	}
	r.Streams = len(streams)
	largest := func(x, y eventTotals) int { return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Name, y.Name)) }
	r.Kinds, r.Categories, r.Sessions = sortTotals(kinds, largest), sortTotals(categories, largest), sortTotals(sessions, largest)
	r.Sessions = r.Sessions[:min(maxSessions, len(r.Sessions))]
	r.Days = sortTotals(days, func(x, y eventTotals) int { return cmp.Compare(x.Name, y.Name) })
	r.Days = r.Days[max(0, len(r.Days)-7):]
	return nil
}

// addEvent counts an event of size bytes in the totals of the given name.
func addEvent(to map[string]*eventTotals, name string, size int) {
	w := to[name]
	if w == nil {
		w = &eventTotals{Name: name}
		to[name] = w
	}
	w.Events++
	w.Bytes += int64(size)
}

// sortTotals returns the values of the map, sorted by the function order.
func sortTotals(totals map[string]*eventTotals, order func(x, y eventTotals) int) []eventTotals {
	all := make([]eventTotals, 0, len(totals))
	for w := range maps.Values(totals) {
		all = append(all, *w)
	}
	slices.SortFunc(all, order)
	return all
}

// folderFiles returns the number and the size of the files in the folder of a store. The
// keys of the map are the kinds of files, such as tables and logs.
func folderFiles(dir string) (map[string]fileTotals, error) {
	found := map[string]fileTotals{"tables": {}, "logs": {}, "outputs": {}, "other": {}}
	err := eachFile(dir, func(path string, size int64) {
		sort := "other"
		switch first, ext := firstElement(path), filepath.Ext(path); {
		case first == stores.OutputsName:
			sort = "outputs"
		case first == "log" && (ext == ".sst" || ext == ".blob"):
			sort = "tables"
		case first == "log" && ext == ".log":
			sort = "logs"
		}
		w := found[sort]
		found[sort] = fileTotals{w.Files + 1, w.Bytes + size}
	})
	return found, err
}

// firstElement returns the first element of a relative path.
func firstElement(path string) string {
	for dir := filepath.Dir(path); dir != "."; path, dir = dir, filepath.Dir(dir) {
	}
	return path
}

// folderSize returns the total size of the files under dir.
func folderSize(dir string) (total int64, err error) {
	err = eachFile(dir, func(_ string, size int64) { total += size })
	return total, err
}

// eachFile calls the function do for each file under dir, with its path relative to dir.
// It skips files that disappear during the walk.
func eachFile(dir string, do func(path string, size int64)) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreMissing(err)
		}
		file, err := d.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		if path, err = filepath.Rel(dir, path); err == nil {
			do(path, file.Size())
		}
		return err
	})
}

// ignoreMissing returns nil for a file that no longer exists, and err otherwise.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// printInfo prints an infoReport for a person.
func printInfo(p *render.Printer, r *infoReport) {
	p.Line("Store      %s, format %d", r.Store, r.Format)
	p.Line("Position   %s", r.Position)
	p.Line("Events     %d in %s, %s", r.Events, render.Count(r.Streams, "stream"), render.Bytes(r.Bytes))
	if r.Events > 0 {
		p.Line("From       %s to %s", p.LongTime(render.TimeOf(r.First)), p.LongTime(render.TimeOf(r.Last)))
	}
	p.Line("Outputs    %d, %s", r.Outputs, render.Bytes(r.OutputBytes))
	total := int64(0)
	for _, name := range []string{"tables", "logs", "outputs", "other"} {
		f := r.Files[name]
		total += f.Bytes
		p.Line("%-10s %s in %s", name, render.Bytes(f.Bytes), render.Count(f.Files, "file"))
	}
	p.Line("Folder     %s", render.Bytes(total))
	if r.Ratio != nil {
		p.Line("Tables     hold %.2f bytes for each byte of events", *r.Ratio)
	}
	for _, l := range r.Levels {
		p.Line("Level %d    %s, %s", l.Level, render.Count(int(l.Tables), "table"), render.Bytes(l.Bytes))
	}
	printDisk(p, r.Disk)
	if w := r.WriteStats; w != nil {
		p.Line("Syncs      %.2f ms at the median, %.2f ms at the 99th percentile, %.2f ms the longest, of the last %d before %s",
			ms(w.Median), ms(w.P99), ms(w.Longest), w.Syncs, p.LongTime(render.TimeOf(w.Closed)))
		p.Line("Appends    %d in %s that shared a sync, then; durability %s", w.Appends, render.Count(int(w.Groups), "group"), w.Durability)
	}
	for _, part := range []struct {
		title  string
		totals []eventTotals
	}{{"KIND", r.Kinds}, {"CATEGORY", r.Categories}, {"LARGEST SESSIONS", r.Sessions}, {"DAY", r.Days}} {
		t := render.Table{Head: []string{part.title, ">EVENTS", ">SIZE"}}
		for _, w := range part.totals {
			t.Add(render.OneLine(w.Name, 40), fmt.Sprint(w.Events), render.Bytes(w.Bytes))
		}
		if len(t.Rows) > 0 {
			p.Line("")
			p.Table(t)
		}
	}
}

// ms converts microseconds to milliseconds.
func ms(microseconds int64) float64 { return float64(microseconds) / 1000 }

// printDisk prints the file system of the store, with a warning if it is a network
// file system.
func printDisk(p *render.Printer, d stores.Disk) {
	kind := "not known"
	if d.Type != nil {
		kind = *d.Type
	}
	if d.Free != nil && d.Total != nil {
		p.Line("Disk       %s, %s of %s free", kind, render.Bytes(*d.Free), render.Bytes(*d.Total))
	}
	if d.Network {
		p.Line("%s", p.Styled(render.Yellow, "This is a network file system: that a lock holds and that a sync is a sync is up to its server."))
	}
}
