package events_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
)

func ExampleLedger() {
	now := func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }
	ledger := events.NewLedger(eventstest.NewSlice(), domain.NewMint(now, rand.NewChaCha8([32]byte{1})), now)
	ctx := context.Background()

	session := ledger.Mint().Session()
	stream := events.SessionStream(session)
	opened := ledger.Draft(events.SessionOpened{Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}}, domain.EventID{})
	asked := ledger.Draft(events.PromptAdmitted{Message: ledger.Mint().Message(), Text: "mend the test"}, opened.ID)
	if _, err := ledger.Append(ctx, stream, 0, opened, asked); err != nil {
		fmt.Println(err)
		return
	}
	_, err := ledger.Append(ctx, stream, 1, ledger.Draft(events.SessionClosed{Reason: "done"}, asked.ID))
	fmt.Println("a stale append:", err != nil)

	for v, err := range ledger.Read(ctx, stream, 0) {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch e := v.Event.(type) {
		case events.SessionOpened:
			fmt.Println(v.Revision, "opened for", e.Agent)
		case events.PromptAdmitted:
			fmt.Println(v.Revision, "asked to", e.Text, "by the event before:", v.Causation == opened.ID)
		}
	}
	// Output:
	// a stale append: true
	// 1 opened for build
	// 2 asked to mend the test by the event before: true
}
