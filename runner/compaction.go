package runner

import (
	"cmp"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// The estimates of the size of a request in tokens. They are too high for most texts, so
// that a compaction comes early rather than late.
const (
	// bytesPerToken is the number of bytes of a text that make a token.
	bytesPerToken = 3
	// tokensPerMessage is what a message costs beside its content.
	tokensPerMessage = 8
	// tokensPerMedia is what an image costs at least.
	tokensPerMedia = 1_600
	// mediaBytesPerToken is the number of bytes of an image or a document that make a
	// token.
	mediaBytesPerToken = 200
	// minShortened is the size in bytes from which on the result of a call can be left
	// out.
	minShortened = 1_000
)

// A contextLimits is the size of the context of the next request's model.
type contextLimits struct {
	// model is the requested model.
	model string
	// window is the number of tokens of a request and its reply, and output the number of
	// them that is reserved for the reply. A window of zero is not known.
	window, output int64
}

// input returns the number of tokens that a request may have, or zero if it is not known.
func (l contextLimits) input() int64 {
	if l.window <= 0 {
		return 0
	}
	return max(l.window-l.output, l.window/2)
}

// A compaction is what requests shall leave out of a session.
type compaction struct {
	trigger string
	// before is the size of the next request in tokens, as far as it is known.
	before int64
	// after is the estimated size of the messages that stay.
	after int64
	// leftOut is the number of messages to leave out, from the first one of the session
	// on.
	leftOut int
	// shortened are the results to leave out of the messages that stay.
	shortened []events.ShortenedResult
}

// planCompaction returns the compaction that must come before the next request. It returns
// false if the request is within the limits, or if nothing more can be left out: the
// messages that the model has not read stay, and of these only results of calls are left
// out. It is a pure function of the recorded session and the limits.
//
// A compaction leaves out the messages at the beginning until those that stay fit into a
// quarter of the limit, so that the next compaction is many requests away. If the provider
// refused the last request as too large, they fit into half of their present size too.
func planCompaction(s *conversation.State, limits contextLimits) (compaction, bool) {
	input := limits.input()
	if exceeded := s.Exceeded && s.Turn.Model == limits.model; !exceeded && input == 0 {
		return compaction{}, false
	}
	sizes, preface := messageSizes(s)
	total := preface + sum(sizes)
	c := compaction{trigger: events.CompactedAuto, before: requestSize(s, sizes, total)}
	keep := input / 4
	switch {
	case s.Exceeded && s.Turn.Model == limits.model:
		c.trigger, c.before = events.CompactedExceeded, max(c.before, total)
		if keep = total / 2; input > 0 {
			keep = min(keep, input/4)
		}
	case c.before <= input:
		return c, false
	}
	visible := s.Visible()
	c.leftOut, c.after = s.Forgotten.Messages()+len(s.Messages)-len(visible), total-preface
	left, unread := 0, firstUnread(visible)
	shortens := c.shorten(s, visible[unread:], sum(sizes[unread:])-keep)
	for ; left < unread && c.after > keep; left++ {
		c.after -= sizes[left]
	}
	c.leftOut += left
	stays := func(r events.ShortenedResult) bool {
		return slices.ContainsFunc(visible[left:], func(m conversation.Message) bool { return m.ID == r.Message })
	}
	for _, r := range shortenedBefore(s) {
		if stays(r) {
			c.shortened = append(c.shortened, r)
		}
	}
	return c, left > 0 || shortens
}

func sum(sizes []int64) (total int64) {
	for _, size := range sizes {
		total += size
	}
	return total
}

// firstUnread returns the index of the first of the visible messages that the model has
// not read, or whose calls have results that it has not read.
func firstUnread(visible []conversation.Message) int {
	for i, m := range slices.Backward(visible) {
		switch {
		case m.Reply == nil:
		case len(m.Reply.Calls) > 0:
			return i
		default:
			return i + 1
		}
	}
	return 0
}

// shortenedBefore returns the results that requests leave out already.
func shortenedBefore(s *conversation.State) []events.ShortenedResult {
	if s.Compaction == nil {
		return nil
	}
	return s.Compaction.Compacted.Shortened
}

// shorten lists the largest results of unread messages until the messages have excess tokens
// less. It reports whether it listed one.
func (c *compaction) shorten(s *conversation.State, unread []conversation.Message, excess int64) (added bool) {
	type result struct {
		events.ShortenedResult
		tokens int64
	}
	var results []result
	for _, m := range unread {
		if m.Reply == nil {
			continue
		}
		for _, call := range m.Reply.Calls {
			r := events.ShortenedResult{Message: m.ID, Call: call.ID, Bytes: resultBytes(call.ToolResult())}
			isSame := func(o result) bool { return o.ShortenedResult == r }
			switch {
			case slices.ContainsFunc(results, isSame): // the model repeated the ID
			case slices.Contains(shortenedBefore(s), r):
			case call.Settlement != nil && call.Settlement.Outcome == domain.Succeeded && r.Bytes >= minShortened:
				results = append(results, result{r, resultTokens(call.ToolResult())})
			}
		}
	}
	slices.SortStableFunc(results, func(a, b result) int { return cmp.Compare(b.tokens, a.tokens) })
	for _, r := range results {
		if excess <= 0 {
			break
		}
		c.shortened = append(c.shortened, r.ShortenedResult)
		c.after -= r.tokens
		excess -= r.tokens
		added = true
	}
	return added
}

// requestSize returns the size of the next request in tokens: that of the last request and
// its reply as the provider counted it, with the estimated size of what follows. It is the
// estimate total if the provider did not count, or if a compaction followed.
func requestSize(s *conversation.State, sizes []int64, total int64) int64 {
	visible := s.Visible()
	var compacted domain.EventID
	if s.Compaction != nil {
		compacted = s.Compaction.Event
	}
	var follows int64
	for i, m := range slices.Backward(visible) {
		if m.Reply == nil {
			follows += sizes[i]
			continue
		}
		t := m.Reply.Tokens
		counted := t.Input + t.CacheRead + t.CacheWrite
		if counted == 0 || m.Reply.Compacted != compacted {
			break
		}
		for _, call := range m.Reply.Calls {
			follows += tokensPerMessage + resultTokens(call.ToolResult())
		}
		return counted + t.Output + follows
	}
	return total
}

// messageSizes returns the estimated number of tokens of each visible message of a
// session, as requests contain it, and that of the summary before them.
func messageSizes(s *conversation.State) (sizes []int64, preface int64) {
	visible := s.Visible()
	index := make(map[domain.MessageID]int, len(visible))
	for i, m := range visible {
		index[m.ID] = i
	}
	sizes = make([]int64, len(visible))
	for _, m := range s.ModelMessages() {
		size := int64(tokensPerMessage) + textTokens(int64(len(m.Text))) + mediaTokens(m.Media) + resultTokens(m.Reading)
		for _, call := range m.Calls {
			size += textTokens(int64(len(call.ID) + len(call.Name) + len(call.Input)))
		}
		for _, item := range m.Items {
			size += textTokens(int64(len(item.Data)))
		}
		if m.Message.IsZero() {
			preface += size
			continue
		}
		sizes[index[m.Message]] += size
	}
	return sizes, preface
}

// resultBytes returns the size of a result.
func resultBytes(r domain.ToolResult) int64 {
	size := int64(len(r.Error) + len(r.Text) + len(r.Structured))
	for _, part := range r.Content {
		switch part := part.(type) {
		case domain.Text:
			size += int64(len(part))
		case domain.Media:
			size += int64(len(part.Data))
		}
	}
	return size
}

// resultTokens returns the estimated number of tokens of a result.
func resultTokens(r domain.ToolResult) int64 {
	size := textTokens(int64(len(r.Error) + len(r.Text) + len(r.Structured)))
	for _, part := range r.Content {
		if text, ok := part.(domain.Text); ok {
			size += textTokens(int64(len(text)))
		}
	}
	return size + mediaTokens(r.Content)
}

func textTokens(bytes int64) int64 { return (bytes + bytesPerToken - 1) / bytesPerToken }

func mediaTokens(content domain.Contents) (size int64) {
	for _, part := range content.Media() {
		size += max(tokensPerMedia, int64(len(part.Data))/mediaBytesPerToken)
	}
	return size
}
