package projections_test

import (
	"context"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// A view folds the prompts of a ledger into their number.
func Example() {
	ctx := context.Background()
	count := projections.Projection[int]{
		Name: "count", Version: 1,
		Init: func() int { return 0 },
		Apply: func(n int, v events.Envelope) int {
			if _, ok := v.Event.(events.PromptAdmitted); ok {
				n++
			}
			return n
		},
	}
	mint := projectionstest.NewLog(1).Mint
	ledger := events.NewLedger(eventstest.NewSlice(), mint, time.Now)
	stream := events.SessionStream(mint.Session())
	prompt := ledger.Draft(events.PromptAdmitted{Message: mint.Message(), Text: "Mend the test."}, domain.EventID{})
	if _, err := ledger.Append(ctx, stream, 0, prompt); err != nil {
		fmt.Println(err)
		return
	}
	view := projections.NewView(count, ledger, nil)
	if err := view.Refresh(ctx); err != nil {
		fmt.Println(err)
		return
	}
	view.Read(func(n int) { fmt.Println("prompts:", n) })
	// Output: prompts: 1
}
