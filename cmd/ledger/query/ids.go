package query

import (
	"context"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/staleness"
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
	switch {
	case id == "":
		return value, fault.Usage("the id of a %s is empty", noun)
	case len(all) == 0:
		return value, fault.NotFound("", "no %s %s: there is none in the store", noun, id)
	case id == Last:
		return all[len(all)-1].value, nil
	}
	// Try whole names first, so that an ID is not ambiguous because it also begins another.
	for _, matches := range []func(id, name string) bool{strings.EqualFold, abbreviates} {
		found := matching(id, all, matches)
		switch len(found) {
		case 0:
		case 1:
			return found[0].value, nil
		default:
			return value, ambiguous(noun, id, found)
		}
	}
	f := fault.NotFound(notFoundHint(noun, id), "no %s %s", noun, id)
	if hasListCommand(noun) {
		f.Command = "ledger " + noun + " ls"
	}
	return value, f
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
// are in found.
func ambiguous[T any](noun, id string, found []candidate[T]) error {
	f := fault.Usage("%s %s is ambiguous: %d fit", noun, id, len(found))
	f.Code, f.Hint = "ambiguous", "write more of the id, or one as it is listed"
	for i, c := range found {
		if i == maxCandidates {
			f.Candidates = append(f.Candidates, fmt.Sprintf("and %d more", len(found)-i))
			break
		}
		f.Candidates = append(f.Candidates, strings.TrimSpace(c.names[0]+"  "+c.description))
	}
	return f
}

// abbreviates reports whether id is a shortened form of name. A shortened form is the
// beginning of the name, the beginning without a prefix such as "ses_", the end of the
// name, or the beginning and the end around an ellipsis. Case does not matter.
func abbreviates(id, name string) bool {
	id, name = strings.ToLower(id), strings.ToLower(name)
	head, tail, ok := strings.Cut(strings.Replace(id, "...", "…", 1), "…")
	if ok {
		return len(head)+len(tail) <= len(name) && strings.HasPrefix(name, head) && strings.HasSuffix(name, tail)
	}
	_, bare, _ := strings.Cut(name, "_")
	return strings.HasPrefix(name, id) || bare != "" && strings.HasPrefix(bare, id) || strings.HasSuffix(name, id)
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

// sessionCandidates returns all sessions as candidates. An imported session has a second
// name: its name in the program from which it was imported.
func sessionCandidates(s *calls.State) []candidate[calls.Session] {
	var all []candidate[calls.Session]
	for _, known := range s.Sessions() {
		description := render.OneLine(fmt.Sprintf("%s  %s", known.Agent, known.Title), 60)
		names := []string{known.ID.String()}
		if known.Origin.Source != "" {
			names = append(names, known.Origin.Source)
		}
		all = append(all, candidate[calls.Session]{known, names, description})
	}
	return all
}

// callCandidates returns calls as candidates. Each has three names: MESSAGE/CALL, the ID
// that the provider gave the call, and the ID of the event that settled the call.
func callCandidates(all []calls.Call) []candidate[calls.Call] {
	candidates := make([]candidate[calls.Call], len(all))
	for i, c := range all {
		names := []string{c.Message.String() + "/" + string(c.ID), string(c.ID)}
		if !c.SettledBy.IsZero() {
			names = append(names, c.SettledBy.String())
		}
		candidates[i] = candidate[calls.Call]{c, names, fmt.Sprintf("session %s  tool %s", c.Session, render.OneLine(c.Tool, 60))}
	}
	return candidates
}

// Call returns the call that an ID identifies. The ID is the provider's ID of the call,
// MESSAGE/CALL, or the ID of the event that settled the call. It may be shortened, and of
// MESSAGE/CALL both parts. If no call matches, Call
// searches the orphans of s, which are results without a call.
func Call(s *calls.State, id string) (calls.Call, error) {
	c, err := pick("call", id, callCandidates(s.Calls()))
	if err == nil || fault.Of(err).Exit != fault.ExitNotFound {
		return c, err
	}
	if found := callsInMessage(s, id); len(found) == 1 {
		return found[0], nil
	} else if len(found) > 1 {
		return calls.Call{}, ambiguous("call", id, callCandidates(found))
	}
	if orphan, err := pick("call", id, callCandidates(s.Orphans())); err == nil {
		return orphan, nil
	}
	return calls.Call{}, err
}

// callsInMessage returns the calls that fit MESSAGE/CALL, where both parts may be shortened. It
// returns nil for an ID of another form.
func callsInMessage(s *calls.State, id string) (found []calls.Call) {
	message, call, two := strings.Cut(id, "/")
	if !two || message == "" || call == "" {
		return nil
	}
	for _, c := range s.Calls() {
		if abbreviates(message, c.Message.String()) && abbreviates(call, string(c.ID)) {
			found = append(found, c)
		}
	}
	return found
}

// turnCandidates returns the turns of sessions as candidates, grouped by session. The
// turns of a session are in the order of the log. A turn has a second name: the ID of
// its event.
func turnCandidates(s *staleness.State, sessions []calls.Session) []candidate[staleness.TurnOffer] {
	var all []candidate[staleness.TurnOffer]
	for _, session := range sessions {
		for _, t := range s.Turns(session.ID) {
			description := fmt.Sprintf("session %s  %d tools", t.Session, len(t.Offers))
			all = append(all, candidate[staleness.TurnOffer]{t, []string{t.Turn.String(), t.Event.String()}, description})
		}
	}
	return all
}

// LoadSession returns the session that an ID identifies. It also returns the state of
// all calls, from the projection in which it found the session.
func LoadSession(ctx context.Context, s *stores.Store, id string) (calls.Session, *calls.State, error) {
	state, err := stores.Current(ctx, s, calls.Projection())
	if err != nil {
		return calls.Session{}, nil, err
	}
	session, err := Session(state, id)
	return session, state, err
}

// Session returns the session of s that an ID identifies: by its ID, or by the name of an
// imported session in the program that wrote it.
func Session(s *calls.State, id string) (calls.Session, error) {
	return pick("session", id, sessionCandidates(s))
}

// Turn returns the turn that an ID identifies among the turns of sessions. The ID @last
// identifies the last turn of the last session.
func Turn(s *staleness.State, sessions []calls.Session, id string) (staleness.TurnOffer, error) {
	return pick("turn", id, turnCandidates(s, sessions))
}

// Process returns the process that an ID identifies among the processes in started.
func Process(started []events.ProcessStarted, id string) (events.ProcessStarted, error) {
	return pick("process", id, processCandidates(started))
}

// OrLast returns the first argument, or @last if there are no arguments.
func OrLast(args []string) string { return append(args, Last)[0] }
