package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
)

// A lastProgress stores the last progress that a running call reported; earlier progress
// is dropped. It is safe for concurrent use.
type lastProgress struct {
	mu struct {
		sync.Mutex
		latest *domain.Progress
	}
}

// set replaces the stored progress by a deep copy of p, since the tool may reuse its
// buffers.
func (l *lastProgress) set(p domain.Progress) {
	p.Structured, p.Content = bytes.Clone(p.Structured), slices.Clone(p.Content)
	for i, c := range p.Content {
		if m, ok := c.(domain.Media); ok {
			m.Data = bytes.Clone(m.Data)
			p.Content[i] = m
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.latest = &p
}

// get returns the stored progress within the limits, or nil if the call reported no
// progress. It replaces progress that cannot be encoded by a text with the reason.
func (l *lastProgress) get(limits Limits) *domain.Progress {
	l.mu.Lock()
	latest := l.mu.latest
	l.mu.Unlock()
	if latest == nil {
		return nil
	}
	if _, err := json.Marshal(latest); err != nil {
		return &domain.Progress{Content: domain.Contents{domain.Text("Progress cannot be kept: " + err.Error())}}
	}
	return limits.cutProgress(*latest)
}

// cutProgress cuts progress to the limits. Progress is informational, so parts over the
// limits are cut or dropped and not retained; a text names each dropped part.
func (l Limits) cutProgress(p domain.Progress) *domain.Progress {
	var left []string
	if p.Structured != nil && !l.fits(indented(p.Structured)) {
		left = append(left, fmt.Sprintf("a value of %d bytes", len(p.Structured)))
		p.Structured = nil
	}
	content := readable(p.Content)
	if media := content.Media(); l.checkMedia(media) != nil {
		left = append(left, fmt.Sprintf("%d media", len(media)))
		content = slices.DeleteFunc(content, func(c domain.Content) bool { _, is := c.(domain.Media); return is })
	}
	if text := content.Text(); !l.fits(text) {
		content = withText(content, l.Cut(text))
	}
	for _, part := range left {
		content = append(content, domain.Text(fmt.Sprintf("\nProgress over the limits is not kept: %s.", part)))
	}
	p.Content = l.compact(content)
	return &p
}
