package protocol_test

import (
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/google/go-cmp/cmp"
)

func TestAStreamIsReadBothWays(t *testing.T) {
	t.Parallel()
	_, c := pair(t)
	mustAppend(t, c, "s-1", esdb.NoStream{}, many("A", 3)...)
	mustAppend(t, c, "s-2", esdb.NoStream{}, many("B", 1)...)
	mustAppend(t, c, "s-1", esdb.Revision(2), many("C", 2)...)
	for _, test := range []struct {
		direction esdb.Direction
		from      esdb.StreamPosition
		count     uint64
		want      []uint64
	}{
		{esdb.Forwards, esdb.Start{}, 10, []uint64{0, 1, 2, 3, 4}},
		{esdb.Forwards, esdb.Start{}, 2, []uint64{0, 1}},
		{esdb.Forwards, esdb.Revision(3), 10, []uint64{3, 4}},
		{esdb.Forwards, esdb.Revision(5), 10, nil},
		{esdb.Forwards, esdb.End{}, 10, nil},
		{esdb.Backwards, esdb.End{}, 10, []uint64{4, 3, 2, 1, 0}},
		{esdb.Backwards, esdb.End{}, 1, []uint64{4}},
		{esdb.Backwards, esdb.Revision(2), 2, []uint64{2, 1}},
		{esdb.Backwards, esdb.Revision(99), 1, []uint64{4}},
		{esdb.Backwards, esdb.Start{}, 10, []uint64{0}},
	} {
		stream, err := c.ReadStream(t.Context(), "s-1", esdb.ReadStreamOptions{Direction: test.direction, From: test.from}, test.count)
		if diff := cmp.Diff(numbers(collect(t, stream, err)), test.want); diff != "" {
			t.Errorf("read %v from %v, %d of them: got − want +\n%s", test.direction, test.from, test.count, diff)
		}
	}
}
