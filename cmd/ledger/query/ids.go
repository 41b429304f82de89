package query

import (
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
)

// Last is the ID of the last candidate in the order of the log.
const Last = "@last"

// A candidate is a session, turn, call, approval or process that an ID can identify. Its
// names are the texts that an ID is compared with.
type candidate[T any] struct {
	value       T
	names       []string // its names; the first is the whole ID
	description string   // a description for a person, in errors and completions
}

// pick returns the candidate that an ID identifies, by a whole name or a shortened one;
// case does not matter. A whole name takes precedence over a shortened one. The slice
// all holds the candidates in the order of the log, and the ID @last identifies the last
// candidate. An empty or ambiguous ID is a usage error, and an unknown ID a not-found
// error. noun is the kind of candidate in the texts of these errors.
func pick[T any](noun, id string, all []candidate[T]) (value T, err error) {
	if id == Last && len(all) > 0 {
		return all[len(all)-1].value, nil
	}
	// Try whole names first, so that an ID is not ambiguous because it also begins another.
	found := matching(id, all, strings.EqualFold)
	if len(found) == 0 {
		found = matching(id, all, index.Abbreviates)
	}
	return only(noun, id, found, false, len(all) == 0)
}

// only returns the one candidate that an ID identifies, or the error for another number of
// candidates. more reports that there may be more than found, and none that the store has
// nothing of this kind.
func only[T any](noun, id string, found []candidate[T], more, none bool) (value T, err error) {
	switch {
	case id == "":
		return value, fault.Usage("the id of a %s is empty", noun)
	case none:
		return value, fault.NotFound("", "no %s %s: there is none in the store", noun, id)
	case len(found) == 1 && !more:
		return found[0].value, nil
	case len(found) > 0 || more:
		return value, ambiguous(noun, id, found, more)
	}
	f := fault.NotFound(notFoundHint(noun, id), "no %s %s", noun, id)
	if hasListCommand(noun) {
		f.Command = "ledger " + noun + " ls"
	}
	return value, f
}

// resolve returns the thing that an ID identifies in the index. last returns the newest
// one and whether there is one, and search those that the ID fits.
func resolve[T any](noun, id string, last func() (T, bool, error), search func(string) (index.Found[T], error), describe func(T) candidate[T]) (value T, err error) {
	newest, ok, err := last()
	if err != nil || ok && id == Last {
		return newest, err
	}
	var found index.Found[T]
	if ok && id != "" {
		if found, err = search(id); err != nil {
			return value, err
		}
	}
	var all []candidate[T]
	for _, v := range found.All {
		all = append(all, describe(v))
	}
	return only(noun, id, all, found.More, !ok)
}

// hasListCommand reports whether the command "ledger NOUN ls" exists for a kind of candidate.
func hasListCommand(noun string) bool {
	return noun == "session" || noun == "call" || noun == "approval"
}

// matching returns the candidates with a name that the function matches accepts for id.
func matching[T any](id string, all []candidate[T], matches func(id, name string) bool) []candidate[T] {
	var found []candidate[T]
	for _, c := range all {
		for _, name := range c.names {
			if matches(id, name) {
				found = append(found, c)
				break
			}
		}
	}
	return found
}

// maxCandidates is the maximum number of candidates that an error lists.
const maxCandidates = 20

// ambiguous returns the usage error for an ID that identifies several candidates, which
// are in found. more reports that there may be others.
func ambiguous[T any](noun, id string, found []candidate[T], more bool) error {
	number := fmt.Sprint(len(found))
	if more {
		number = "more than " + number
	}
	f := fault.Usage("%s %s is ambiguous: %s fit", noun, id, number)
	f.Code, f.Hint = "ambiguous", "write more of the id, or one as it is listed"
	for i, c := range found {
		if i == maxCandidates {
			number = fmt.Sprint(len(found) - i)
			if more {
				number = "more than " + number
			}
			f.Candidates = append(f.Candidates, "and "+number+" more")
			break
		}
		f.Candidates = append(f.Candidates, strings.TrimSpace(c.names[0]+"  "+c.description))
	}
	return f
}

// nounsByPrefix maps the prefix of an ID to the kind of thing that it identifies.
var nounsByPrefix = map[string]string{
	domain.SessionID{}.Prefix(): "session", domain.TurnID{}.Prefix(): "turn", domain.MessageID{}.Prefix(): "message",
	domain.EventID{}.Prefix(): "event", domain.RegistrationID{}.Prefix(): "registration", domain.LayerID{}.Prefix(): "layer",
	domain.ScopeID{}.Prefix(): "scope", domain.ProcessID{}.Prefix(): "process", domain.PermissionID{}.Prefix(): "permission",
}

// notFoundHint returns the hint for an unknown ID. If the prefix of the ID belongs to
// another kind of thing, the hint says so. Otherwise it names the command that lists the
// known IDs.
func notFoundHint(noun, id string) string {
	prefix, _, ok := strings.Cut(id, "_")
	if kind := nounsByPrefix[strings.ToLower(prefix)]; ok && kind != "" && kind != noun && noun != "call" && !(noun == "approval" && kind == "permission") {
		return fmt.Sprintf("%s_ begins an id of another kind: %s", prefix, kind)
	}
	if hasListCommand(noun) {
		return "ledger " + noun + " ls lists them"
	}
	if noun == "process" {
		return "ledger recover lists those that are not on record as ended"
	}
	return "ledger session show SESSION lists them"
}

// processCandidates returns one candidate for each process. started are the processes without a
// recorded end.
func processCandidates(started []events.ProcessStarted) []candidate[events.ProcessStarted] {
	var all []candidate[events.ProcessStarted]
	for _, p := range started {
		all = append(all, candidate[events.ProcessStarted]{p, []string{p.Process.String()}, fmt.Sprintf("process %d on %s", p.PID, p.Host)})
	}
	return all
}

// sessionCandidate returns a session as a candidate.
func sessionCandidate(s calls.Session) candidate[calls.Session] {
	return candidate[calls.Session]{s, []string{s.ID.String()}, render.OneLine(fmt.Sprintf("%s  %s", s.Agent, s.Title), 60)}
}

// callCandidate returns a call as a candidate, with MESSAGE/CALL as its name.
func callCandidate(c calls.Call) candidate[calls.Call] {
	return candidate[calls.Call]{c, []string{c.Message.String() + "/" + string(c.ID)}, fmt.Sprintf("session %s  tool %s", c.Session, render.OneLine(c.Tool, 60))}
}

// turnCandidate returns a turn as a candidate.
func turnCandidate(t index.Turn) candidate[index.Turn] {
	return candidate[index.Turn]{t, []string{t.Turn.String()}, fmt.Sprintf("session %s  %d tools", t.Session, t.Tools)}
}

// Call returns the call that an ID identifies. The ID is the provider's ID of the call,
// MESSAGE/CALL, or the ID of the event that settled the call. It may be shortened, and of
// MESSAGE/CALL both parts. If no call matches, Call searches the orphans, which are results
// without a call.
func Call(r *index.Snapshot, id string) (calls.Call, error) {
	c, err := resolve("call", id, r.LastCall, r.FindCalls, callCandidate)
	if err == nil || id == "" || fault.Of(err).Exit != fault.ExitNotFound {
		return c, err
	}
	orphans, failed := r.FindOrphans(id)
	if id == Last {
		orphans.All, failed = r.Orphans()
		orphans.All = orphans.All[max(0, len(orphans.All)-1):]
	}
	switch {
	case failed != nil:
		return c, failed
	case len(orphans.All) == 1 && !orphans.More:
		return orphans.All[0], nil
	}
	return c, err
}

// Session returns the session that an ID identifies: by its ID, or by the name of an
// imported session in the program that wrote it.
func Session(r *index.Snapshot, id string) (calls.Session, error) {
	return resolve("session", id, r.LastSession, r.FindSessions, sessionCandidate)
}

// Turn returns the turn that an ID identifies: its own, or that of its event. The ID @last
// identifies the last turn of the last session that has one.
func Turn(r *index.Snapshot, id string) (index.Turn, error) {
	last := func() (t index.Turn, ok bool, err error) {
		all, err := r.LastTurns(1)
		if err != nil || len(all) == 0 {
			return t, false, err
		}
		return all[0], true, nil
	}
	return resolve("turn", id, last, r.FindTurns, turnCandidate)
}

// Process returns the process that an ID identifies among the processes in started.
func Process(started []events.ProcessStarted, id string) (events.ProcessStarted, error) {
	return pick("process", id, processCandidates(started))
}

// OrLast returns the first argument, or @last if there are no arguments.
func OrLast(args []string) string { return append(args, Last)[0] }
