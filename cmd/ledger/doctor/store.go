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

// examineStore opens the store, for writing only if write is set, and runs the checks of
// an open store. It returns an error only for an invalid address. If the store cannot be
// opened or its log cannot be read, it skips the remaining checks. An error of a later
// check becomes a finding of that check, and the next check runs.
func (d *Doctor) examineStore(ctx context.Context, e *Report, at stores.Address, write bool) error {
	open := d.OpenToReadAt
	if write {
		open = d.OpenAt
	}
	s, err := open(ctx, at)
	if err != nil {
		// An invalid address is a mistake of the caller and not a finding.
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
	// The checks below do not depend on each other.
	rest := []storeCheck{{"disk", d.examineDisk}, {"records", d.examineRecords}, {"processes", d.examineProcesses}, {"consumers", d.examineConsumers}, {"views", d.examineViews}}
	if write {
		rest = slices.Insert(rest, 0, storeCheck{"writing", d.examineWriting})
	}
	for _, part := range rest {
		if err := part.examine(ctx, e, s); err != nil {
			e.failWith(part.check, err)
		}
	}
	return nil
}

// examineRefusal checks the rights of a user whom the database did not allow to open the
// ledger. It opens the database without RequireReadAll, so that missing rights to read are
// findings and not an error of Open.
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

// examineRights lists the rights that the user has in a database. Each missing right is a
// failure, with the event by which an administrator grants it. It stores no record.
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

// examineRecords checks that no stream metadata and no tombstone makes a database
// hide or delete records of the ledger. If the search takes longer than d.Timeout,
// the check passes and names ledger verify. It skips a folder.
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
		e.pass("records", "the log is too long to search it in %s for hidden or deleted records: ledger verify does", d.Timeout)
		return nil
	case err != nil:
		return err
	}
	n := 0
	for _, i := range all {
		if !i.Undone {
			n++
			e.fail("records", stores.DeletionRemedy(i)+"; ledger verify lists the records that are gone or will be deleted", "%s: %s", i.Stream, stores.DescribeDeletion(i))
		}
	}
	if n == 0 {
		e.pass("records", "no metadata tells the server to hide or delete records of the ledger")
	}
	return nil
}

// A storeCheck is one check of an open store.
type storeCheck struct {
	// check is the name of the check, for an error of examine.
	check   string
	examine func(context.Context, *Report, *stores.Store) error
}

// timings are the durations of several attempts, in the order of the attempts.
type timings []time.Duration

// time calls f and appends the duration of the call to t. If f returns an error, time
// returns that error and appends nothing.
func (t *timings) time(f func() error) error {
	begun := time.Now()
	err := f()
	if err == nil {
		*t = append(*t, time.Since(begun))
	}
	return err
}

// median returns the middle duration. For an even number of durations it returns the
// longer of the two in the middle. It panics if t is empty.
func (t timings) median() time.Duration { return slices.Sorted(slices.Values(t))[len(t)/2] }

// worst returns the longest duration. It panics if t is empty.
func (t timings) worst() time.Duration { return slices.Max(t) }

// String returns the median, the number of attempts and the longest duration for a person.
func (t timings) String() string {
	return fmt.Sprintf("%s, the median of %d; the worst %s", brief(t.median()), len(t), brief(t.worst()))
}

// figures returns the number of attempts, the median and the longest duration, in
// microseconds.
func (t timings) figures() map[string]int64 {
	return map[string]int64{"tries": int64(len(t)), "median_us": t.median().Microseconds(), "worst_us": t.worst().Microseconds()}
}

// examineReading reads the last record of the log readTries times and reports the
// latency. The time in that record is from the clock of its writer: if it is more than
// maxSkew later than the clock of this machine, the check clocks fails.
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
		e.pass("reading", "the log is empty, answered in %s", took)
		e.addFigures(took.figures())
		return nil
	}
	e.pass("reading", "the last record, at position %s, in %s", h.Position, took)
	e.addFigures(took.figures())
	if ahead := h.Time.Sub(d.Now()); ahead > maxSkew {
		e.fail("clocks", "synchronize the clocks of all machines: leases allow for "+runner.LeaseMargin.String(), "the last record has a time that is %s ahead of this machine's clock", ahead.Round(time.Second))
	} else {
		e.pass("clocks", "the last record has no time in the future")
	}
	return nil
}

// examineWriting appends writeProbes records to probeStream, one after the other, and
// reports how long each append takes to become durable. The records stay in the log.
// For a database it also reports the skew of the server's clock: it compares the time
// at which the server created the last record with this machine's times before and
// after the append.
func (d *Doctor) examineWriting(ctx context.Context, e *Report, s *stores.Store) error {
	// The stream may have records of earlier checks.
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
	e.pass("writing", "an append is durable after %s", took)
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

// examineDisk checks that Pebble had no failed flush or compaction, no slow write and no
// write stall. It uses the statistics since the store was opened. If these show no
// fault, it uses the statistics that the last writer saved when it closed the store. It
// skips a database, and a folder that another process serves: the metrics of that
// process have the same numbers.
func (d *Doctor) examineDisk(ctx context.Context, e *Report, s *stores.Store) error {
	if s.Folder == nil {
		return nil
	}
	// A reader makes no writes, so its own statistics are good. The ones of the last
	// writer are in a checkpoint.
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
		e.pass("disk", "no write was slow, no flush or compaction failed, and no write waited for one")
	}
	if health.Failures > 0 {
		e.fail("disk", "ledger store check finds what is damaged; keep a backup", "%s failed in the background, %s: %s", render.Count(int(health.Failures), "flush or compaction"), when, health.LastFailure)
	}
	if health.Slow > 0 {
		e.fail("disk", "check the health of the disk, and the other programs that write to it", "%s took longer than 2 seconds, %s: %s", render.Count(int(health.Slow), "write"), when, health.LastSlow)
	}
	if health.Stalls > 0 {
		e.fail("disk", "use a faster disk or append less: the disk cannot keep up", "writes waited %s for flushes or compactions, %s: %s", render.Count(int(health.Stalls), "time"), when, health.LastStall)
	}
	e.addFigures(map[string]int64{"failures": int64(health.Failures), "slow": int64(health.Slow), "stalls": int64(health.Stalls)})
	return nil
}

// examineProcesses counts the living, dead and unknown processes of the ledger, as
// [stores.Store.Judge] classifies them by their leases. The check with the name "left
// open" fails if a dead process left work to recover.
func (d *Doctor) examineProcesses(ctx context.Context, e *Report, s *stores.Store) error {
	lives, err := stores.Current(ctx, s, runner.Processes())
	if err != nil {
		return err
	}
	judged := s.Judge(lives, d.Now())
	e.pass("processes", "%d alive, %d dead, %d unknown", len(judged.Living), len(judged.Dead), len(judged.Unknown))
	e.addFigures(map[string]int64{"living": int64(len(judged.Living)), "dead": int64(len(judged.Dead)), "unknown": int64(len(judged.Unknown))})
	if len(judged.Dead) > 0 {
		e.fail("left open", "ledger recover ends their calls and layers", "%s left calls or layers open", render.Count(len(judged.Dead), "dead process"))
	}
	return nil
}

// examineConsumers reports the lag of each consumer in records. It fails for a
// consumer with an error or with dead letters. The lag alone is no failure, as a
// consumer may be stopped on purpose.
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
			e.fail("consumer", "ledger consumer show "+c.Name+" lists its dead letters", "%s is %d records behind and has %d dead letters", c.Name, lag.Records, len(c.DeadLetters))
		} else {
			e.pass("consumer", "%s is %d records behind", c.Name, lag.Records)
		}
		e.addFigures(map[string]int64{"lag": int64(lag.Records), "poison": int64(len(c.DeadLetters))})
	}
	return nil
}

// views lists the projections whose states the store caches in its checkpoints, by
// the names of the checkpoints.
var views = []string{"calls", "catalog", "staleness", "processes", "approvals"}

// examineViews reports how far each cached state on this machine is behind the log:
// in records for a folder, as positions for a database, where positions are byte
// offsets. It never fails for a lag, because a command that reads a state catches up
// first. It skips a client of a serving process, which would transfer each state in
// full.
func (d *Doctor) examineViews(ctx context.Context, e *Report, s *stores.Store) error {
	if s.Shared && s.Node == nil {
		return nil
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
			continue // no usable state: the next reader folds the whole log
		}
		switch behind := stores.Sequence(end) - min(stores.Sequence(end), stores.Sequence(at)); {
		case behind == 0:
			told = append(told, view+" is current")
		case s.Folder == nil:
			told = append(told, fmt.Sprintf("%s is at position %s of %s", view, at, end))
		default:
			told = append(told, fmt.Sprintf("%s is %d records behind", view, behind))
			figures[view] = int64(behind)
		}
	}
	if len(told) > 0 {
		e.pass("views", "%s; a view catches up when a command reads it", strings.Join(told, ", "))
		e.addFigures(figures)
	}
	return nil
}
