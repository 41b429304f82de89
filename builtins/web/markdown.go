package web

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/marker"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
)

// maxMarkdown is the maximum size of a converted page in bytes. Nested lists and
// quotations repeat a prefix in each line, so a page may grow.
const maxMarkdown = 2 * maxPage

// errNoConversion is the reason if the conversion of a page panics.
var errNoConversion = errors.New("the page cannot be converted to Markdown: use the format text or html")

// newMarkdownConverter returns a converter for [toMarkdown]. It is safe for concurrent
// use.
func newMarkdownConverter() *converter.Converter {
	c := converter.NewConverter(converter.WithPlugins(
		base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(),
		table.NewTablePlugin(table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal)),
	))
	// The converter ignores its context, so this renderer ends the work on a part once the
	// context has ended.
	c.Register.Renderer(func(ctx converter.Context, _ converter.Writer, _ *html.Node) converter.RenderStatus {
		if ctx.Err() != nil {
			return converter.RenderSuccess
		}
		return converter.RenderTryNext
	}, converter.PriorityEarly)
	c.Register.TextTransformer(unmarkEscapes, converter.PriorityLate+100)
	return c
}

// unmarkEscapes removes the marks that the converter puts before each character with a
// meaning in Markdown, except before # and |, which headings and tables need. The
// converter later decides for each mark whether the character needs a backslash, in time
// quadratic in the length of a line. A reader of plain text needs no backslashes.
func unmarkEscapes(_ converter.Context, text string) string {
	parts := strings.Split(text, string(marker.MarkerEscaping))
	var b strings.Builder
	b.Grow(len(text))
	for i, part := range parts {
		if i > 0 && (strings.HasPrefix(part, "#") || strings.HasPrefix(part, "|")) {
			b.WriteRune(marker.MarkerEscaping)
		}
		b.WriteString(part)
	}
	return b.String()
}

// toMarkdown converts an HTML page to Markdown with absolute links. It takes time and
// memory in proportion to the page. It returns errTooManyNodes, errNoConversion, an error
// for Markdown over maxMarkdown, or the cause of ctx.
func toMarkdown(ctx context.Context, c *converter.Converter, page, pageURL string) (string, error) {
	root, links, err := buildTree(ctx, page, pageURL)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, part := range splitTree(root) {
		text, err := convertPart(ctx, c, part, links)
		if err != nil {
			return "", err
		}
		if b.Len() > 0 && len(text) > 0 {
			b.WriteString("\n\n")
		}
		b.Write(text)
		if b.Len() > maxMarkdown {
			return "", fmt.Errorf("the Markdown of the page is larger than %d MiB: use the format text", maxMarkdown>>20)
		}
	}
	return strings.ToValidUTF8(b.String(), "\ufffd"), nil
}

// convertPart converts one part of a page. It changes the part. It returns
// errNoConversion if the converter panics or fails, and the cause of an ended context.
func convertPart(ctx context.Context, c *converter.Converter, part *html.Node, links string) (text []byte, err error) {
	defer func() {
		if recover() != nil {
			text, err = nil, errNoConversion
		}
	}()
	text, err = c.ConvertNode(part, converter.WithContext(ctx), converter.WithDomain(links))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, errNoConversion
	}
	return text, nil
}
