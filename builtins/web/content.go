package web

import (
	"bytes"
	"context"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

// textTypes are the media types outside text/ that are text.
var textTypes = map[string]bool{
	"application/json": true, "application/ld+json": true, "application/x-ndjson": true, "application/jsonl": true,
	"application/xml": true, "application/xhtml+xml": true, "application/javascript": true, "application/x-javascript": true,
	"application/ecmascript": true, "application/typescript": true, "application/yaml": true, "application/x-yaml": true,
	"application/toml": true, "application/sql": true, "application/graphql": true, "application/x-sh": true,
	"application/x-httpd-php": true, "application/x-tex": true, "application/rtf": true, "message/rfc822": true,
}

// setContentType sets the type of a page from a Content-Type header. It returns an error
// that names the type if the type is not text.
func (p *page) setContentType(header string) error {
	kind, _, err := mime.ParseMediaType(header)
	if kind == "" || err != nil {
		kind, _, _ = strings.Cut(header, ";") // a faulty parameter says nothing about the type
		kind = strings.ToLower(strings.TrimSpace(kind))
	}
	main, sub, _ := strings.Cut(kind, "/")
	isText := main == "text" || textTypes[kind] || main == "application" && (strings.HasSuffix(sub, "+json") || strings.HasSuffix(sub, "+xml") || strings.HasSuffix(sub, "+yaml"))
	if !isText {
		return fmt.Errorf("the content is %.80q: only text can be fetched, no image, PDF or other binary data", kind)
	}
	p.contentType = kind
	return nil
}

// isHTML reports whether the page is HTML.
func (p page) isHTML() bool {
	return p.contentType == "text/html" || p.contentType == "application/xhtml+xml"
}

// decoded returns the body as valid UTF-8. A byte order mark, the header or a meta element
// names the character set, in this order. If they name no character set, a valid body is
// UTF-8 and any other body is windows-1252.
func (p page) decoded() (string, error) {
	head := p.body[:min(len(p.body), 1024)]
	encoding, name, certain := charset.DetermineEncoding(head, p.header)
	text := p.body
	if name != "utf-8" && (certain || !utf8.Valid(p.body)) {
		var err error
		if text, err = encoding.NewDecoder().Bytes(p.body); err != nil {
			return "", fmt.Errorf("decode the page from %s: %w", name, err)
		}
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if bytes.IndexByte(text, 0) >= 0 {
		return "", fmt.Errorf("the content is binary data, although the server calls it %.80q", p.contentType)
	}
	return strings.ToValidUTF8(string(text), "\ufffd"), nil
}

// convert returns the text of a page in a format. Only HTML is converted: any other text
// is returned as it is.
func (w webfetchTool) convert(ctx context.Context, p page, format pageFormat) (string, error) {
	text, err := p.decoded()
	switch {
	case err != nil:
		return "", err
	case !p.isHTML() || format == formatHTML:
		return text, nil
	case format == formatText:
		return plainText(ctx, text)
	}
	return toMarkdown(ctx, w.markdown, text, p.target.String())
}
