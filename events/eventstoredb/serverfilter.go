package eventstoredb

import (
	"regexp"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// searchWindow is the number of excluded records after which the server sends a
// checkpoint. After a broken connection the server therefore filters at most this
// number of records a second time.
const searchWindow = 512

// serverFilter returns a filter of the server that passes every record of f, and
// possibly others. A server accepts one condition, on the stream name or on the event
// type, so serverFilter uses the kinds, else the prefixes, else the categories, else
// the namespace. The caller applies f to the result.
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

// alternatives returns a regular expression that matches any of texts literally.
func alternatives(texts []string) string {
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = regexp.QuoteMeta(t)
	}
	return strings.Join(quoted, "|")
}
