package web

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// The limits of a fetch.
const (
	// maxPage is the maximum size of a page, compressed and decompressed, in bytes.
	maxPage = 5 << 20
	// maxRedirects is how many redirects are followed.
	maxRedirects = 10
	// maxHeader is the maximum size of the header of a response, in bytes.
	maxHeader = 256 << 10
)

// errTooLarge is the reason for a page over maxPage.
var errTooLarge = fmt.Errorf("the page is larger than %d MiB", maxPage>>20)

// A hop is one request of a fetch: the requested URL or the target of a redirect, with the
// addresses to which it may connect.
type hop struct {
	target    webTarget
	addresses []pinnedAddress
}

// A page is the body of a response with its type.
type page struct {
	target      webTarget
	contentType string // without parameters, in lower case
	header      string // the Content-Type header as the server sent it; empty: it sent none
	body        []byte // decompressed, not yet decoded
}

// follow sends the request of a hop, follows redirects, and reads the page. The permission
// for the requested URL covers the redirects. follow refuses a redirect that a rule denies,
// and a redirect to a private address unless rules or approvals allow the address.
func (w webfetchTool) follow(ctx context.Context, inv domain.Invocation, h hop, format pageFormat) (page, error) {
	for range maxRedirects + 1 {
		response, err := w.send(ctx, h, format)
		if err != nil {
			return page{}, err
		}
		location := response.Header.Get("Location")
		if !isRedirect(response.StatusCode) || location == "" {
			defer response.Body.Close()
			return readPage(h.target, response)
		}
		response.Body.Close()
		if h, err = w.redirected(ctx, inv, h.target, location); err != nil {
			return page{}, err
		}
	}
	return page{}, fmt.Errorf("there are more than %d redirects", maxRedirects)
}

// isRedirect reports whether a status means that Location has the page.
func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// redirected returns the hop of a redirect. A call that has sent a request asks no person
// any more, because it could not be started again without repeating the request: a
// redirect to a private address that rules and approvals leave open is refused, and the
// model may fetch that URL itself.
func (w webfetchTool) redirected(ctx context.Context, inv domain.Invocation, from webTarget, location string) (hop, error) {
	to, err := from.redirect(location)
	if err != nil {
		return hop{}, fmt.Errorf("the redirect cannot be followed: %w", err)
	}
	if ask := fetchAsk(to, fetchArgs{URL: to.String()}); w.Permission.Check(inv, ask).Effect == domain.Deny {
		return hop{}, w.ask(ctx, inv, ask)
	}
	addresses, err := w.resolve(ctx, to)
	if err != nil {
		return hop{}, fmt.Errorf("the redirect cannot be followed: %w", err)
	}
	if ask, private := privateAsk(to, addresses); private {
		if w.Permission.Check(inv, ask).Effect == domain.Ask {
			return hop{}, fmt.Errorf("it redirects to the private address %s: fetch %s itself to be asked for permission", ask.Resources[0], to)
		}
		if err := w.ask(ctx, inv, ask); err != nil {
			return hop{}, err
		}
	}
	return hop{to, addresses}, nil
}

// send sends the request of a hop. If the server answers with a challenge for browsers, it
// sends the request once more with the plain name of the program. The caller closes the
// body.
func (w webfetchTool) send(ctx context.Context, h hop, format pageFormat) (*http.Response, error) {
	response, err := w.roundTrip(ctx, h, format, "Mozilla/5.0 (compatible; "+w.UserAgent+")")
	if err != nil || response.StatusCode != http.StatusForbidden || response.Header.Get("Cf-Mitigated") != "challenge" {
		return response, err
	}
	response.Body.Close()
	return w.roundTrip(ctx, h, format, w.UserAgent)
}

// acceptHeaders are the Accept headers of the formats.
var acceptHeaders = map[pageFormat]string{
	formatMarkdown: "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.1",
	formatText:     "text/plain, text/markdown;q=0.9, text/html;q=0.8, application/xhtml+xml;q=0.8, */*;q=0.1",
	formatHTML:     "text/html, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.1",
}

// roundTrip sends one request over a connection of its own to one of the addresses of a
// hop. It uses no proxy of the environment, which would resolve the name itself, and no
// cookies. The caller closes the body.
func (w webfetchTool) roundTrip(ctx context.Context, h hop, format pageFormat, userAgent string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.target.String(), nil)
	if err != nil {
		return nil, errNoURL
	}
	request.Header.Set("User-Agent", userAgent)
	request.Header.Set("Accept", acceptHeaders[format])
	request.Header.Set("Accept-Language", "en-US,en;q=0.9,*;q=0.5")
	request.Header.Set("Accept-Encoding", "gzip") // set here, the transport leaves the body compressed
	transport := &http.Transport{
		DialContext: dialPinned(h.addresses), DisableKeepAlives: true,
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: maxHeader,
	}
	return transport.RoundTrip(request)
}

// readPage reads the body of a response. It refuses a status other than success, a type
// that is not text, and a body over maxPage.
func readPage(t webTarget, response *http.Response) (page, error) {
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return page{}, fmt.Errorf("the server answered with status %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	if response.ContentLength > maxPage {
		return page{}, errTooLarge
	}
	p := page{target: t, header: response.Header.Get("Content-Type")}
	if p.header != "" {
		if err := p.setContentType(p.header); err != nil {
			return page{}, err
		}
	}
	body, err := decompressed(response)
	if err != nil {
		return page{}, err
	}
	if p.body, err = readLimited(body); err != nil {
		return page{}, err
	}
	if p.header == "" {
		return p, p.setContentType(http.DetectContentType(p.body))
	}
	return p, nil
}

// decompressed returns the body of a response without its content encoding.
func decompressed(response *http.Response) (io.Reader, error) {
	body := http.MaxBytesReader(nil, response.Body, maxPage)
	switch encoding := response.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		unpacked, err := gzip.NewReader(body)
		if errors.Is(err, io.EOF) { // an empty body
			return body, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decompress the page: %w", err)
		}
		return unpacked, nil
	default:
		return nil, fmt.Errorf("the server sent the content encoding %.40q, which was not asked for", encoding)
	}
}

// readLimited reads everything, or returns errTooLarge once there are more than maxPage
// bytes before or after decompression.
func readLimited(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPage+1))
	if _, over := errors.AsType[*http.MaxBytesError](err); over || len(data) > maxPage {
		return nil, errTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	return data, nil
}
