package registrytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/settlement-ledger/ledger/registry"
)

// A Law is a promise about tools, calls or the log as a whole.
type Law struct {
	Name     string // a few words
	Sentence string // what holds
	limits   registry.Limits
	check    func(context.Context, *Subject) error
	sabotage func(*Subject) // breaks this law
}

// Check returns nil if a Subject keeps the law, and else an error that quotes
// the sentence. The Subject is fresh, has the limits of the law, and is of no
// further use.
func (l Law) Check(ctx context.Context, s *Subject) error {
	if err := l.check(ctx, s); err != nil {
		return fmt.Errorf("law %q: %s: %w", l.Name, l.Sentence, err)
	}
	return nil
}

// Limits are those that a Subject must have for the law.
func (l Law) Limits() registry.Limits { return l.limits }

// small are limits over which every output of a check's large tool is.
var small = registry.Limits{Lines: 8, Bytes: 256, Media: 256}

// Laws returns every law. A Law is named once.
func Laws() []Law {
	return []Law{
		{"single executor", "A call invokes the executor that its tool was made with, once, and nothing else.", registry.Limits{}, singleExecutor, runTwice},
		{"codec boundary", "An executor sees only an input that fits, and an output that does not fit never succeeds.", registry.Limits{}, codecBoundary, mendInputs},
		{"durable identity", "An executor sees exactly the session, agent, message and call that the runner supplied.", registry.Limits{}, durableIdentity, otherAgent},
		{"scoped registration", "Closing a scope removes exactly its registrations and puts back what they hid.", registry.Limits{}, scopedRegistration, closeNothing},
		{"captured execution", "Registering, replacing and closing do not touch a call that has begun.", registry.Limits{}, capturedExecution, closeCancels},
		{"stale rejection", "A call never runs a registration other than the one that its turn offered.", registry.Limits{}, staleRejection, offerAfresh},
		{"storage encapsulation", "What a tool returned is kept whole whatever the limits, and they change nothing else of it.", small, storageEncapsulation, keepLess},
		{"presentation is pure", "A settlement read back from the log reads as it did when it was returned.", registry.Limits{}, presentationIsPure, readOtherwise},
		{"begins at most once", "A call begins at most once, however often and from wherever it is settled.", registry.Limits{}, beginsAtMostOnce, forget},
		{"ends exactly once", "A call that was settled has one end on record.", registry.Limits{}, endsExactlyOnce, endTwice},
		{"start before run", "A call never runs before its start is on record.", registry.Limits{}, startBeforeRun, hideBeginFault},
		{"end before answer", "A call is never answered before its end is on record.", registry.Limits{}, endBeforeAnswer, hideSettleFault},
		{"begun is on record", "A call that began is not on record as one that never ran.", registry.Limits{}, begunIsOnRecord, denyBegun},
		{"runs what was offered", "A call runs only under the registration that it was offered.", registry.Limits{}, runsWhatWasOffered, startUnderAnother},
		{"open or ended once", "Every call in the log is open or has one end; what was answered has one.", registry.Limits{}, openOrEndedOnce, loseEnds},
		{"references resolve", "Every reference in the log resolves to the bytes that its settlement names.", small, referencesResolve, keepNothing},
		{"settlements name their turn", "Every settlement names a materialization, and that registrations that were live.", registry.Limits{}, settlementsNameTheirTurn, anotherTurn},
	}
}

// Test checks every law against the real registry.
func Test(t *testing.T) {
	for _, law := range Laws() {
		t.Run(law.Name, func(t *testing.T) {
			t.Parallel()
			s, err := Open(t.Context(), law.Limits())
			if err != nil {
				t.Fatal(err)
			}
			if err := law.Check(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
}

// Report checks every law against the real registry and against its saboteur,
// and writes a line for each law. It returns an error if a law fails the first
// or passes the second.
func Report(ctx context.Context, w io.Writer) error {
	var faults []error
	for _, law := range Laws() {
		verdict := "saboteur caught"
		if err := trial(ctx, law); err != nil {
			verdict = err.Error()
			faults = append(faults, err)
		}
		if _, err := fmt.Fprintf(w, "law %s: %s — %s\n", law.Name, law.Sentence, verdict); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	return errors.Join(faults...)
}

// trial returns nil if law passes the real registry and fails its saboteur.
func trial(ctx context.Context, law Law) error {
	honest, err := Open(ctx, law.limits)
	if err != nil {
		return err
	}
	if err := law.Check(ctx, honest); err != nil {
		return fmt.Errorf("the registry is refused: %w", err)
	}
	saboteur, err := Open(ctx, law.limits)
	if err != nil {
		return err
	}
	law.sabotage(saboteur)
	if err := law.Check(ctx, saboteur); err == nil {
		return fmt.Errorf("law %q: saboteur not caught", law.Name)
	}
	return nil
}
