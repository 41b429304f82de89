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

// A filter selects the entries of $all that are sent, by their stream name or
// their event type. A nil filter selects all. It is immutable.
type filter struct {
	// byKind compares the event type. Otherwise the filter compares the stream
	// name.
	byKind bool
	// Exactly one of prefixes and regex is set.
	prefixes []string
	regex    *regexp.Regexp
	// interval is the number of entries examined between two checkpoints: the
	// window times the multiplier of the request. A bounded read sends no
	// checkpoints and ignores it.
	interval uint64
}

// A filterClause is the condition that the filters of all requests have in
// common: a regular expression or prefixes.
type filterClause interface {
	GetRegex() string
	GetPrefix() []string
}

// filterOf validates the filter of a read. A subscription must name the interval
// of its checkpoints, which may not be 0. It returns INVALID_ARGUMENT for an
// invalid filter.
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

// newFilter validates a clause, which must have either an RE2 regular
// expression or at least one prefix. It returns INVALID_ARGUMENT for a clause
// with both or neither, and for an expression that does not compile.
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

// matches reports whether the filter selects an entry. A regular expression is
// not anchored: it may match anywhere in the text.
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

// pushdown returns a filter by which the store excludes entries with its index
// of streams or kinds. It matches every entry that f matches, and possibly
// more; the caller applies f to the result. A regular expression without a
// fixed beginning gives the zero filter, which excludes no entry. A regular
// expression for kinds is used only if it matches a fixed set of texts, since
// an events.Filter has no prefixes of kinds.
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
