//lint:file-ignore SA1019 old clients use what is deprecated

package server_test

import (
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"

	"github.com/settlement-ledger/ledger/events/eventstest"
)

// The server reads stream, revision and strategy from the deprecated fields
// that the Node client sets.
func TestGroupNamedAsByTheNodeClient(t *testing.T) {
	t.Parallel()
	address := serve(t, eventstest.NewSlice(), everything)
	c := connect(t, address)
	mustAppend(t, c, "s-1", esdb.NoStream{}, many("A", 3)...)
	_, err := persistent.NewPersistentSubscriptionsClient(raw(t, address)).Create(t.Context(), &persistent.CreateReq{Options: &persistent.CreateReq_Options{
		StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("s-1")}, GroupName: "g",
		Settings: &persistent.CreateReq_Settings{
			Revision: 1, LiveBufferSize: 10, ReadBatchSize: 10, HistoryBufferSize: 10, MaxCheckpointCount: 1, MaxRetryCount: 1,
			NamedConsumerStrategy: persistent.CreateReq_Pinned,
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	sub, err := c.SubscribeToPersistentSubscription(t.Context(), "s-1", "g", esdb.SubscribeToPersistentSubscriptionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	first, second := sub.Recv().EventAppeared, sub.Recv().EventAppeared
	if first == nil || second == nil || first.Event.Event.EventNumber != 1 || second.Event.Event.EventNumber != 2 || first.RetryCount != 0 {
		t.Fatalf("received %+v and %+v, want revisions 1 and 2", first, second)
	}
	if err := sub.Nack("because", esdb.NackActionRetry, first.Event); err != nil {
		t.Fatal(err)
	}
	if again := sub.Recv().EventAppeared; again == nil || again.Event.Event.EventNumber != 1 || again.RetryCount != 1 {
		t.Fatalf("received %+v, want revision 1 again", again)
	}
	info, err := c.GetPersistentSubscriptionInfo(t.Context(), "s-1", "g", esdb.GetPersistentSubscriptionOptions{})
	if err != nil || info.Settings.ConsumerStrategyName != esdb.ConsumerStrategyPinned || info.Settings.StartFrom != esdb.Revision(1) {
		t.Errorf("the group is %+v, %v, want one that is pinned from revision 1", info, err)
	}
}
