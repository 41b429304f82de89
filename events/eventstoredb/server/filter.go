package server

import (
	"regexp"
	"slices"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events"
)

// defaultWindow is the number of entries examined between checkpoints where the
// caller sets no window. EventStoreDB and its clients have the same default.
const defaultWindow = 32

// A filter selects the entries of $all that are sent. A nil filter selects all.
type filter struct {
	byKind   bool // match the event type; otherwise the stream name
	prefixes []string
	regex    *regexp.Regexp
	interval uint64 // entries examined between two checkpoints
}

// A filterClause is the part that the filters of all requests have in common.
type filterClause interface {
	GetRegex() string
	GetPrefix() []string
}

// filterOf validates a filter. Only subscriptions have checkpoints.
func filterOf(o *streams.ReadReq_Options_FilterOptions, live bool) (*filter, error) {
	var expr filterClause
	var byKind bool
	switch f := o.GetFilter().(type) {
	case *streams.ReadReq_Options_FilterOptions_StreamIdentifier:
		expr = f.StreamIdentifier
	case *streams.ReadReq_Options_FilterOptions_EventType:
		expr, byKind = f.EventType, true
	default:
		return nil, missingField("a filter by stream or by type")
	}
	f, err := newFilter(byKind, expr)
	if err != nil {
		return nil, err
	}
	window := uint64(o.GetMax())
	if _, ok := o.GetWindow().(*streams.ReadReq_Options_FilterOptions_Max); ok && window == 0 {
		return nil, status.Error(codes.InvalidArgument, "read: the window of a filter must be at least 1")
	}
	if window == 0 {
		window = defaultWindow
	}
	if live && o.CheckpointIntervalMultiplier == 0 {
		return nil, missingField("a checkpointIntervalMultiplier above 0")
	}
	f.interval = window * uint64(o.CheckpointIntervalMultiplier)
	return f, nil
}

// newFilter validates a clause: an RE2 regular expression, or prefixes.
func newFilter(byKind bool, expr filterClause) (*filter, error) {
	f := &filter{byKind: byKind, prefixes: expr.GetPrefix()}
	switch {
	case expr.GetRegex() != "" && len(f.prefixes) > 0:
		return nil, status.Error(codes.InvalidArgument, "read: a filter has a regular expression or prefixes, not both")
	case expr.GetRegex() != "":
		regex, err := regexp.Compile(expr.GetRegex())
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "read: the filter is not a regular expression of RE2, which has no lookaround and no backreferences: %v", err)
		}
		f.regex = regex
	case len(f.prefixes) == 0:
		return nil, missingField("a regular expression or a prefix")
	}
	return f, nil
}

// matches reports whether the filter selects an entry.
func (f *filter) matches(h events.Header) bool {
	if f == nil {
		return true
	}
	text := string(h.Stream)
	if f.byKind {
		text = h.Kind
	}
	if f.regex != nil {
		return f.regex.MatchString(text)
	}
	return slices.ContainsFunc(f.prefixes, func(p string) bool { return strings.HasPrefix(text, p) })
}

// pushdown returns a filter that the store applies before entries leave it. It
// matches every entry that f matches, and possibly more.
func (f *filter) pushdown() events.Filter {
	if f == nil {
		return events.Filter{}
	}
	literals, exact := f.prefixes, false
	if f.regex != nil {
		literals, exact = regexPrefixes(f.regex)
	}
	switch {
	case len(literals) == 0 || slices.Contains(literals, ""):
		return events.Filter{}
	case !f.byKind:
		return events.Filter{Prefixes: literals}
	case exact:
		return events.Filter{Kinds: literals}
	}
	return events.Filter{}
}
