package lsp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// publications are the diagnostics that the server published for the documents of calls.
type publications struct {
	sync.Mutex
	of      map[string]*publication // by URI, of the documents that a call waits for
	changed chan struct{}           // closed and replaced at each publication
}

// A publication is the latest publication for one document.
type publication struct {
	published publishedDiagnostics
	count     int // publications so far
	waiting   int // calls that wait for one
}

// want stores the publications for a document from now on, and returns the number of
// publications so far. The caller calls unwant.
func (p *publications) want(uri string) (count int) {
	p.Lock()
	defer p.Unlock()
	if p.of[uri] == nil {
		p.of[uri] = &publication{}
	}
	p.of[uri].waiting++
	return p.of[uri].count
}

// unwant ends one want. The last unwant of a document deletes its publications.
func (p *publications) unwant(uri string) {
	p.Lock()
	defer p.Unlock()
	if p.of[uri].waiting--; p.of[uri].waiting == 0 {
		delete(p.of, uri)
	}
}

// add stores a publication for a wanted document. It ignores an invalid publication.
func (p *publications) add(params json.RawMessage) {
	var published publishedDiagnostics
	if json.Unmarshal(params, &published) != nil {
		return
	}
	p.Lock()
	defer p.Unlock()
	if wanted := p.of[published.URI]; wanted != nil {
		wanted.published = published
		wanted.count++
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// latest returns the diagnostics of a wanted document, the number of its publications, and
// a channel that is closed at the next publication. ok is true if the server has published
// more than after times and its last publication is for this version or a later one. A
// publication without a version counts for every version.
func (p *publications) latest(uri string, version, after int) (found []protocolDiagnostic, count int, changed <-chan struct{}, ok bool) {
	p.Lock()
	defer p.Unlock()
	last := p.of[uri]
	ok = last.count > after && (last.published.Version == nil || *last.published.Version >= version)
	return last.published.Diagnostics, last.count, p.changed, ok
}

// settleTime is how long a server must publish nothing further about a document before its
// diagnostics count as complete.
const settleTime = 500 * time.Millisecond

// awaitPublished waits until latest reports ok and the server has then published nothing
// further for settleTime. It returns the diagnostics.
func (s *languageServer) awaitPublished(ctx context.Context, uri string, version, after int) ([]protocolDiagnostic, error) {
	timeout, settled := time.NewTimer(s.timeout), time.NewTimer(settleTime)
	defer timeout.Stop()
	defer settled.Stop()
	for seen := after; ; {
		found, count, changed, ok := s.published.latest(uri, version, after)
		var quiet <-chan time.Time
		if ok {
			if count != seen {
				seen = count
				settled.Reset(settleTime)
			}
			quiet = settled.C
		}
		select {
		case <-quiet:
			return found, nil
		case <-changed:
		case <-timeout.C:
			return nil, domain.Fail("%s published no diagnostics within %v", s.program.name, s.timeout)
		case <-s.ended:
			return nil, s.fault
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// diagnose returns the diagnostics of a file. It requests the diagnostics from a server
// that supports such requests. For any other server it sends the document and waits for
// the publication.
func diagnose(ctx context.Context, s *languageServer, q query) ([]rawResult, error) {
	uri := fileURI(q.file.path)
	var found []protocolDiagnostic
	if s.supports("diagnosticProvider") {
		if _, err := s.sync(ctx, q.file, sendChanged); err != nil {
			return nil, err
		}
		var report struct {
			Items []protocolDiagnostic `json:"items"`
		}
		if err := s.requestInto(ctx, "textDocument/diagnostic", documentParams{documentID{URI: uri}}, &report); err != nil {
			return nil, err
		}
		found = report.Items
	} else {
		after := s.published.want(uri)
		defer s.published.unwant(uri)
		version, err := s.sync(ctx, q.file, sendAlways)
		if err != nil {
			return nil, err
		}
		if found, err = s.awaitPublished(ctx, uri, version, after); err != nil {
			return nil, err
		}
	}
	results := make([]rawResult, len(found))
	for i, d := range found {
		results[i] = rawResult{uri: uri, at: d.Range, kind: nameAt(severities, d.Severity), name: d.source(), text: d.Message}
	}
	return results, nil
}

// source returns the origin and the code of a diagnostic, such as "compiler UnusedVar".
func (d protocolDiagnostic) source() string {
	code := strings.Trim(string(d.Code), `"`)
	if code == "null" {
		code = ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s", d.Source, code))
}
