package calls_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// many is a number of calls that fill several pages, and several blocks of a
// checkpoint.
var many = repeats(3_300, 6_000)

// manyCalls returns the history of many calls of an import, and their keys. The calls
// end in another order than the replies ask for them. One in a hundred has no end,
// and one in a hundred has no reply.
func manyCalls() (envelopes []events.Envelope, keys []calls.Key) {
	log := projectionstest.NewLog(11)
	session := log.Mint.Session()
	stream := events.SessionStream(session)
	log.Add(stream, events.SessionOpened{Session: session, Agent: "a", Origin: events.Origin{Kind: events.Imported, Format: "claude-code"}})
	var ends []events.CallSettled
	for i := range many {
		key := calls.Key{Session: session, Message: log.Mint.Message(), Call: domain.CallID(fmt.Sprint("call_", i%7))}
		keys = append(keys, key)
		if i%100 != 0 {
			input := json.RawMessage(fmt.Sprintf(`{"n":%d,"text":%q}`, i, strings.Repeat(key.Message.String(), 6)))
			log.Add(stream, events.ReplyReceived{Message: key.Message, Calls: []domain.Call{{ID: key.Call, Name: "read", Input: input}}})
		}
		if i%100 != 1 {
			ends = append(ends, events.CallSettled{
				Message: key.Message, Call: key.Call, Tool: "read", Outcome: domain.Succeeded, Began: true,
				Content: domain.Contents{domain.Text(fmt.Sprint("the text of ", i))},
			})
		}
	}
	for i := range ends {
		log.Add(stream, ends[i*7919%len(ends)])
	}
	return log.Envelopes(), keys
}

// Every call is found by its key and listed once, folded and from a checkpoint, also
// by two readers at the same time.
func TestEveryCallIsFoundAndListedOnce(t *testing.T) {
	t.Parallel()
	envelopes, keys := manyCalls()
	s := fold(envelopes)
	data, err := projections.Pack(s)
	if err != nil {
		t.Fatal(err)
	}
	again := calls.New()
	if err := again.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*calls.State{"folded": s, "from a checkpoint": again} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if repeated, err := projections.Pack(s); err != nil || string(repeated) != string(data) {
				t.Errorf("packed once more it is %d bytes, %v, want the same %d", len(repeated), err, len(data))
			}
			var readers sync.WaitGroup
			// Several goroutines may read a State.
			for range 2 {
				readers.Go(func() { checkMany(t, s, keys) })
			}
			readers.Wait()
		})
	}
}

// checkMany checks every call of manyCalls in s: found, listed, open, orphaned.
func checkMany(t *testing.T, s *calls.State, keys []calls.Key) {
	listed, orphans := map[calls.Key]calls.Call{}, []calls.Key(nil)
	for _, c := range s.Calls() {
		listed[c.Key()] = c
	}
	for _, c := range s.Orphans() {
		orphans = append(orphans, c.Key())
	}
	var alone []calls.Key
	open := 0
	for i, key := range keys {
		one, ok := s.Call(key)
		if !ok || one.Key() != key {
			t.Fatalf("call %d is not found", i)
		}
		switch asked := listed[key]; {
		case i%100 == 0:
			alone = append(alone, key)
			continue
		case i%100 == 1:
			open++
			if one.State != calls.Asked {
				t.Errorf("call %d is %s, want it open", i, one.State)
			}
		case one.State != calls.Settled || one.Preview != fmt.Sprint("the text of ", i):
			t.Errorf("call %d is %s with %q", i, one.State, one.Preview)
		case string(asked.Input) != string(one.Input) || asked.SettledAt != one.SettledAt || !strings.HasPrefix(string(one.Input), fmt.Sprintf(`{"n":%d,`, i)):
			t.Errorf("call %d is listed as %+v and found as %+v", i, asked, one)
		}
	}
	byMessage := func(a, b calls.Key) int { return strings.Compare(a.Message.String(), b.Message.String()) }
	if slices.SortFunc(orphans, byMessage); !slices.Equal(orphans, alone) {
		t.Errorf("%d calls are orphans, want the %d of which there is an end alone", len(orphans), len(alone))
	}
	laws := map[calls.Law]int{}
	for _, e := range slices.Concat(s.Exceptions(), s.Unfinished()) {
		laws[e.Law]++
	}
	if len(laws) != 1 || laws[calls.Open] != open {
		t.Errorf("the exceptions are %v, want %d open", laws, open)
	}
}

// A checkpoint of several blocks that is cut, or has a further byte, does not decode.
func TestACheckpointWithTruncatedBlocksIsAnError(t *testing.T) {
	t.Parallel()
	envelopes, _ := manyCalls()
	whole, err := projections.Pack(fold(envelopes))
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut < len(whole); cut += 1 + len(whole)/repeats(20, 60) {
		if err := calls.New().UnmarshalBinary(whole[:cut]); err == nil {
			t.Fatalf("%d of %d bytes are a state", cut, len(whole))
		}
	}
	if err := calls.New().UnmarshalBinary(append(slices.Clone(whole), 0)); err == nil {
		t.Error("a state with a byte behind it is a state")
	}
}
