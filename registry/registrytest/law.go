package registrytest

import (
	"context"
	"io"

	"github.com/settlement-ledger/ledger/domain/lawtest"
	"github.com/settlement-ledger/ledger/registry"
)

// A Law is a promise about tools, calls or the log as a whole, checked on a
// [Subject].
type Law = lawtest.Law[*Subject]

// law returns a Law. Its check runs on a Subject whose registry has the given limits.
// sabotage changes a correct Subject into one that breaks the law.
func law(name, sentence string, limits registry.Limits, check func(context.Context, *Subject) error, sabotage func(*Subject)) Law {
	return Law{
		Name: name, Sentence: sentence, Verify: check,
		Correct: func(ctx context.Context) (*Subject, error) { return Open(ctx, limits) },
		Saboteur: func(ctx context.Context) (*Subject, error) {
			s, err := Open(ctx, limits)
			if err == nil {
				sabotage(s)
			}
			return s, err
		},
	}
}

// small are limits that the text long in checks.go exceeds.
var small = registry.Limits{Lines: 8, Bytes: 256, Media: 256}

// Laws returns every law, each with its saboteur.
func Laws() []Law {
	return []Law{
		law("single executor", "A call invokes the executor that its tool was made with, once, and nothing else.", registry.Limits{}, singleExecutor, runTwice),
		law("codec boundary", "An executor sees only an input that fits, and an output that does not fit never succeeds.", registry.Limits{}, codecBoundary, repairInputs),
		law("durable identity", "An executor sees exactly the session, agent, message and call that the runner supplied.", registry.Limits{}, durableIdentity, otherAgent),
		law("scoped registration", "Closing a scope removes exactly its registrations and puts back what they hid.", registry.Limits{}, scopedRegistration, closeNothing),
		law("captured execution", "Registering, replacing and closing do not touch a call that has begun.", registry.Limits{}, capturedExecution, closeCancels),
		law("stale rejection", "A call never runs a registration other than the one that its turn offered.", registry.Limits{}, staleRejection, offerAfresh),
		law("storage encapsulation", "What a tool returned is kept whole whatever the limits, and they change nothing else of it.", small, storageEncapsulation, keepLess),
		law("presentation is pure", "A settlement read back from the log reads as it did when it was returned.", registry.Limits{}, presentationIsPure, readOtherwise),
		law("begins at most once", "A call begins at most once, however often and from wherever it is settled.", registry.Limits{}, beginsAtMostOnce, forget),
		law("ends exactly once", "A call that was settled has one end on record.", registry.Limits{}, endsExactlyOnce, endTwice),
		law("start before run", "A call never runs before its start is on record.", registry.Limits{}, startBeforeRun, hideBeginFault),
		law("end before answer", "A call is never answered before its end is on record.", registry.Limits{}, endBeforeAnswer, hideSettleFault),
		law("begun is on record", "A call that began is not on record as one that never ran.", registry.Limits{}, begunIsOnRecord, denyBegun),
		law("runs what was offered", "A call runs only under the registration that it was offered.", registry.Limits{}, runsWhatWasOffered, startUnderAnother),
		law("open or ended once", "Every call in the log is open or has one end; what was answered has one.", registry.Limits{}, openOrEndedOnce, loseEnds),
		law("references resolve", "Every reference in the log resolves to the bytes that its settlement names.", small, referencesResolve, keepNothing),
		law("settlements name their turn", "Every settlement names a materialization, and that registrations that were live.", registry.Limits{}, settlementsNameTheirTurn, anotherTurn),
	}
}

// Report writes one line for each law and its saboteur, as [lawtest.Report]
// does.
func Report(ctx context.Context, w io.Writer) error { return lawtest.Report(ctx, w, Laws()) }
