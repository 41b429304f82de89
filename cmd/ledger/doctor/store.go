package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/runner"
)

// examineStore opens the store and looks at what is in it. An address that makes
// no sense is an error.
func (d *Doctor) examineStore(ctx context.Context, e *Report, at stores.Address, write bool) error {
	open := d.OpenToReadAt
	if write {
		open = d.OpenAt
	}
	s, err := open(ctx, at)
	if err != nil {
		if fault.Of(err).Exit == fault.ExitUsage {
			return err
		}
		e.failWith("store", err)
		if errors.Is(err, eventstoredb.ErrForbidden) {
			return d.examineRefusal(ctx, e, at)
		}
		return nil
	}
	defer s.Close()
	kind := "opened in this process, to read"
	if write {
		kind = "opened in this process"
	}
	if s.Shared {
		kind = "a server answers"
	}
	e.pass("store", "%s", kind)
	if err := d.examineReading(ctx, e, s); err != nil {
		e.failWith("reading", err)
		return nil
	}
	if database, ok := s.Log.(*eventstoredb.Store); ok {
		if err := d.examineRights(ctx, e, database); err != nil {
			e.failWith("rights", err)
		}
	}
	rest := []step{{"disk", d.examineDisk}, {"records", d.examineRecords}, {"processes", d.examineProcesses}, {"consumers", d.examineConsumers}, {"views", d.examineViews}}
	if write {
		rest = slices.Insert(rest, 0, step{"writing", d.examineWriting})
	}
	for _, part := range rest {
		if err := part.examine(ctx, e, s); err != nil {
			e.failWith(part.check, err)
		}
	}
	return nil
}

// examineRefusal reports which rights are missing to a user who may not open the
// ledger.
func (d *Doctor) examineRefusal(ctx context.Context, e *Report, at stores.Address) error {
	database, err := eventstoredb.Open(ctx, at.Database, eventstoredb.Config{Namespace: at.Namespace, RetryTimeout: d.Timeout})
	if err == nil {
		err = errors.Join(d.examineRights(ctx, e, database), database.Close())
	}
	if err != nil {
		e.failWith("rights", err)
	}
	return nil
}

// examineRights tells which rights a user has at a database, and how to get the
// others.
func (d *Doctor) examineRights(ctx context.Context, e *Report, database *eventstoredb.Store) error {
	probe := events.Record{ID: domain.NewMint(d.Now, d.Entropy).Event(), Kind: "DoctorProbed", Version: 1, Time: d.Now().UTC().Truncate(time.Microsecond), Data: []byte("{}")}
	rights, err := database.Rights(ctx, probe)
	if err != nil {
		return err
	}
	var granted []string
	for _, r := range rights {
		if r.Missing == nil {
			granted = append(granted, r.Name)
			continue
		}
		e.fail("rights", "put the user into the group ledger, and append as an administrator to the stream $settings an event of the type update-default-acl with the data "+
			eventstoredb.DefaultACL("ledger"), "the user may not %s: %s", r.Name, r.Missing)
	}
	if len(granted) > 0 {
		e.pass("rights", "the user may %s", strings.Join(granted, ", "))
	}
	return nil
}

// examineRecords tells whether somebody has a database hide or delete records.
func (d *Doctor) examineRecords(ctx context.Context, e *Report, s *stores.Store) error {
	database, ok := s.Log.(*eventstoredb.Store)
	if !ok {
		return nil
	}
	looking, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	all, err := database.Deletions(looking)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		e.pass("records", "the log is too long to look in %s whether somebody hid or deleted records: ledger verify does", d.Timeout)
		return nil
	case err != nil:
		return err
	}
	n := 0
	for _, i := range all {
		if !i.Undone {
			n++
			e.fail("records", stores.DeletionRemedy(i)+"; ledger verify tells which records are gone or will go", "%s: %s", i.Stream, stores.DescribeDeletion(i))
		}
	}
	if n == 0 {
		e.pass("records", "nobody has the server hide or delete records of the ledger")
	}
	return nil
}

// An step is a part of the examination of a store that is open.
type step struct {
	check   string
	examine func(context.Context, *Report, *stores.Store) error
}

// timings are how long each of several tries took.
type timings []time.Duration

// time calls f and notes how long it takes, unless it fails.
func (t *timings) time(f func() error) error {
	begun := time.Now()
	err := f()
	if err == nil {
		*t = append(*t, time.Since(begun))
	}
	return err
}

// median returns the one in the middle, and worst the longest.
func (t timings) median() time.Duration { return slices.Sorted(slices.Values(t))[len(t)/2] }
func (t timings) worst() time.Duration  { return slices.Max(t) }

func (t timings) String() string {
	return fmt.Sprintf("%s, the median of %d; the worst %s", brief(t.median()), len(t), brief(t.worst()))
}

func (t timings) figures() map[string]int64 {
	return map[string]int64{"tries": int64(len(t)), "median_us": t.median().Microseconds(), "worst_us": t.worst().Microseconds()}
}

// examineReading times reading the end of the log, and looks whether it is from
// the future.
func (d *Doctor) examineReading(ctx context.Context, e *Report, s *stores.Store) error {
	var h events.Header
	var any bool
	var took timings
	for range readTries {
		if err := took.time(func() (err error) { h, any, err = s.Ledger.Head(ctx); return err }); err != nil {
			return err
		}
	}
	if !any {
		e.pass("reading", "the log is empty; it says so in %s", took)
		e.addFigures(took.figures())
		return nil
	}
	e.pass("reading", "the last record, at position %s, in %s", h.Position, took)
	e.addFigures(took.figures())
	if ahead := h.Time.Sub(d.Now()); ahead > maxSkew {
		e.fail("clocks", "set the clocks of all machines by one source: leases allow for "+runner.LeaseMargin.String(), "the last record is from %s in the future of this machine", ahead.Round(time.Second))
	} else {
		e.pass("clocks", "the last record is not from the future")
	}
	return nil
}

// examineWriting appends records to a stream of its own, and compares the clock
// of the server by when it made the last.
func (d *Doctor) examineWriting(ctx context.Context, e *Report, s *stores.Store) error {
	length := events.Revision(0)
	for h, err := range events.Headers(ctx, s.Log, events.Query{Stream: probeStream, Backward: true}) {
		if err != nil {
			return err
		}
		length = h.Revision
		break
	}
	var took timings
	var sent, heard time.Time
	for range writeProbes {
		sent = d.Now()
		probe := events.Record{ID: s.Ledger.Mint().Event(), Kind: "DoctorProbed", Version: 1, Time: s.Ledger.Now(), Data: []byte("{}")}
		if err := took.time(func() error { return s.Log.Append(ctx, probeStream, length, probe) }); err != nil {
			return err
		}
		heard = d.Now()
		length++
	}
	e.pass("writing", "a record is durable after %s", took)
	e.addFigures(took.figures())
	if database, ok := s.Log.(*eventstoredb.Store); ok {
		skew, err := database.Skew(ctx, probeStream, length, sent, heard)
		if err != nil {
			return err
		}
		if skew != nil {
			e.skew("the clock by which the leader made it", *skew)
		}
	}
	return nil
}

// examineDisk tells what the database of a folder met in the background: now, or
// the last time that it was written to.
func (d *Doctor) examineDisk(ctx context.Context, e *Report, s *stores.Store) error {
	if s.Folder == nil {
		return nil // its metrics tell
	}
	health, when := s.Folder.Log.Stats().Health, "now"
	if health.Well() {
		last, _, err := s.Folder.Log.LastSummary(ctx)
		if err != nil {
			return err
		}
		if last.Health != nil {
			health, when = *last.Health, "until "+last.Closed.UTC().Format(time.RFC3339)
		}
	}
	if health.Well() {
		e.pass("disk", "no write was slow, and no flush or compaction failed or was waited for")
	}
	if health.Failures > 0 {
		e.fail("disk", "ledger store check finds what is damaged; keep a backup", "%s failed in the background, %s: %s", render.Count(int(health.Failures), "flush or compaction"), when, health.LastFailure)
	}
	if health.Slow > 0 {
		e.fail("disk", "look at the health of the disk, and at what else writes to it", "%s took longer than 2 seconds, %s: %s", render.Count(int(health.Slow), "write"), when, health.LastSlow)
	}
	if health.Stalls > 0 {
		e.fail("disk", "the disk is slower than what is appended", "writes waited %s for flushes or compactions, %s: %s", render.Count(int(health.Stalls), "time"), when, health.LastStall)
	}
	e.addFigures(map[string]int64{"failures": int64(health.Failures), "slow": int64(health.Slow), "stalls": int64(health.Stalls)})
	return nil
}

// examineProcesses tells who is at work.
func (d *Doctor) examineProcesses(ctx context.Context, e *Report, s *stores.Store) error {
	lives, err := stores.Current(ctx, s, runner.Processes())
	if err != nil {
		return err
	}
	judged := s.Judge(lives, d.Now())
	e.pass("processes", "%d at work, %d dead, %d of which nobody can tell", len(judged.Living), len(judged.Dead), len(judged.Unknown))
	e.addFigures(map[string]int64{"living": int64(len(judged.Living)), "dead": int64(len(judged.Dead)), "unknown": int64(len(judged.Unknown))})
	if len(judged.Dead) > 0 {
		e.fail("left open", "ledger recover ends what they left", "%s left something open", render.Count(len(judged.Dead), "dead process"))
	}
	return nil
}

// examineConsumers tells how far each consumer is behind.
func (d *Doctor) examineConsumers(ctx context.Context, e *Report, s *stores.Store) error {
	desk := d.Relay(s)
	all, err := desk.Consumers(ctx)
	if err != nil {
		return fault.Publishing(err)
	}
	for _, c := range all {
		lag, err := desk.Lag(ctx, c)
		if err != nil {
			return err
		}
		if c.LastError != nil || len(c.DeadLetters) > 0 {
			e.fail("consumer", "ledger consumer show "+c.Name+" tells more", "%s is %d records behind, has set %d aside", c.Name, lag.Records, len(c.DeadLetters))
		} else {
			e.pass("consumer", "%s is %d records behind", c.Name, lag.Records)
		}
		e.addFigures(map[string]int64{"lag": int64(lag.Records), "poison": int64(len(c.DeadLetters))})
	}
	return nil
}

// views are the projections whose answers are kept beside the log.
var views = []string{"calls", "catalog", "staleness", "processes", "approvals"}

// examineViews tells how far the answers that are kept in a folder of this
// machine are behind. They catch up by themselves when they are asked for.
func (d *Doctor) examineViews(ctx context.Context, e *Report, s *stores.Store) error {
	if s.Shared && s.Node == nil {
		return nil // who serves the store would send the answers whole
	}
	end, err := s.Head(ctx)
	if err != nil {
		return err
	}
	var told []string
	figures := map[string]int64{}
	for _, view := range views {
		data, err := s.Checkpoints.LoadCheckpoint(ctx, view)
		if err != nil {
			return err
		}
		at := stores.CheckpointPosition(data)
		if at.IsZero() {
			continue // it is folded again when it is asked for
		}
		switch behind := stores.Sequence(end) - min(stores.Sequence(end), stores.Sequence(at)); {
		case behind == 0:
			told = append(told, view+" is current")
		case s.Folder == nil: // positions of a database are bytes of its log
			told = append(told, fmt.Sprintf("%s is at position %s of %s", view, at, end))
		default:
			told = append(told, fmt.Sprintf("%s is %d records behind", view, behind))
			figures[view] = int64(behind)
		}
	}
	if len(told) > 0 {
		e.pass("views", "%s; they catch up when they are asked", strings.Join(told, ", "))
		e.addFigures(figures)
	}
	return nil
}
