package eventstoredb

import (
	"regexp"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// searchWindow is how many records the server passes over before it tells where it
// is, which is also how many are looked at again after a connection broke.
const searchWindow = 512

// serverFilter returns what the server is asked to pass over. A server takes one
// condition, on the name of the stream or on the type of the event; it is
// asked for the narrowest one that lets all through that the filter does, and
// the rest is passed over here.
func (s *Store) serverFilter(f events.Filter) *esdb.SubscriptionFilter {
	switch {
	case len(f.Kinds) > 0:
		return &esdb.SubscriptionFilter{Type: esdb.EventFilterType, Regex: "^(?:" + alternatives(f.Kinds) + ")$"}
	case len(f.Prefixes) > 0:
		prefixes := make([]string, len(f.Prefixes))
		for i, p := range f.Prefixes {
			prefixes[i] = s.namespace + p
		}
		return &esdb.SubscriptionFilter{Type: esdb.StreamFilterType, Prefixes: prefixes}
	case len(f.Categories) > 0:
		return &esdb.SubscriptionFilter{Type: esdb.StreamFilterType, Regex: "^" + regexp.QuoteMeta(s.namespace) + "(?:" + alternatives(f.Categories) + ")(?:-|$)"}
	case s.namespace != "":
		return &esdb.SubscriptionFilter{Type: esdb.StreamFilterType, Prefixes: []string{s.namespace}}
	}
	return &esdb.SubscriptionFilter{Type: esdb.StreamFilterType, Regex: `^[^$]`}
}

// alternatives returns an expression for any of these texts.
func alternatives(texts []string) string {
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = regexp.QuoteMeta(t)
	}
	return strings.Join(quoted, "|")
}
