package web

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// The limits of a tree.
const (
	// maxDepth is the maximum depth. Deeper elements become children of the element at
	// this depth.
	maxDepth = 128
	// maxNodes is the maximum number of elements and texts.
	maxNodes = 400_000
	// maxSpans is how many columns and rows the cells of a page may span in all.
	maxSpans = 1000
)

// errTooManyNodes is the reason for a page over maxNodes.
var errTooManyNodes = fmt.Errorf("the page has more than %d elements, too many for Markdown: use the format text", maxNodes)

// A treeBuilder makes the tree of an HTML page for the conversion to Markdown. It takes
// time and memory in proportion to the page, which the parser of golang.org/x/net/html
// does not: a page with many open formatting elements makes that parser repeat all of them
// in each paragraph. In return the tree follows the standard for correct HTML only.
type treeBuilder struct {
	open     []*html.Node // the open elements, outermost first; the first is the root
	overflow int          // how many open elements are not in the tree because of maxDepth
	nodes    int
	spans    int    // what is left of maxSpans
	base     string // the URL to which links are relative
}

// buildTree returns the tree of an HTML page without elements that hold no text, and the
// URL to which its links are relative. It returns errTooManyNodes, or the cause of ctx.
func buildTree(ctx context.Context, page, pageURL string) (*html.Node, string, error) {
	root := &html.Node{Type: html.DocumentNode}
	b := treeBuilder{open: []*html.Node{root}, spans: maxSpans, base: pageURL}
	err := eachToken(ctx, page, b.add)
	return root, b.base, err
}

// eachToken calls yield with each tag and text of an HTML page, except in elements without
// text for a reader. It returns the error of yield, or the cause of ctx.
func eachToken(ctx context.Context, page string, yield func(html.Token) error) error {
	tokenizer := html.NewTokenizer(strings.NewReader(page))
	var skipped atom.Atom // the element that is skipped; zero: none
	depth := 0            // how many elements of this name are open in it
	for n := 0; ; n++ {
		kind := tokenizer.Next()
		if kind == html.ErrorToken {
			return nil // the end: a text has no other error
		}
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		token := tokenizer.Token()
		switch {
		case skipped != 0:
			switch {
			case token.DataAtom != skipped:
			case kind == html.StartTagToken:
				depth++
			case kind == html.EndTagToken:
				if depth--; depth == 0 {
					skipped = 0
				}
			}
		case skippedElements[token.DataAtom] && (kind == html.StartTagToken || kind == html.SelfClosingTagToken):
			if kind == html.StartTagToken || !foreignElements[token.DataAtom] {
				skipped, depth = token.DataAtom, 1
			}
		default:
			if err := yield(token); err != nil {
				return err
			}
		}
	}
}

// add adds a token to the tree.
func (b *treeBuilder) add(token html.Token) error {
	switch token.Type {
	case html.TextToken:
		return b.appendNode(&html.Node{Type: html.TextNode, Data: token.Data})
	case html.StartTagToken, html.SelfClosingTagToken:
		return b.start(token)
	case html.EndTagToken:
		b.end(token.DataAtom, token.Data)
	}
	return nil
}

// appendNode appends a node to the innermost open element.
func (b *treeBuilder) appendNode(n *html.Node) error {
	if b.nodes++; b.nodes > maxNodes {
		return errTooManyNodes
	}
	b.open[len(b.open)-1].AppendChild(n)
	return nil
}

// start adds an element, and ends the elements that its start tag ends.
func (b *treeBuilder) start(token html.Token) error {
	switch token.DataAtom {
	case atom.Html, atom.Head, atom.Body, atom.Meta, atom.Link:
		return nil
	case atom.Base:
		b.setBase(token)
		return nil
	}
	b.endImplied(token.DataAtom)
	element := &html.Node{Type: html.ElementNode, DataAtom: token.DataAtom, Data: token.Data, Attr: b.attributes(token)}
	hasContent := token.Type == html.StartTagToken && !voidElements[token.DataAtom]
	if hasContent && len(b.open) > maxDepth {
		b.overflow++
		return nil
	}
	if err := b.appendNode(element); err != nil {
		return err
	}
	if hasContent {
		b.open = append(b.open, element)
	}
	return nil
}

// setBase sets the URL of links from a base element.
func (b *treeBuilder) setBase(token html.Token) {
	page, err := url.Parse(b.base)
	if err != nil {
		return
	}
	for _, a := range token.Attr {
		if to, err := page.Parse(a.Val); a.Key == "href" && err == nil && to.Host != "" && to.User == nil {
			b.base = to.String()
		}
	}
}

// attributes returns the attributes of a tag that the conversion reads. It leaves out
// addresses that hold data or programs, and the spans of cells beyond maxSpans.
func (b *treeBuilder) attributes(token html.Token) []html.Attribute {
	var kept []html.Attribute
	for _, a := range token.Attr {
		switch a.Key {
		case "href", "src":
			scheme, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(a.Val)), ":")
			if scheme == "data" || scheme == "javascript" || scheme == "vbscript" {
				continue
			}
		case "colspan", "rowspan":
			n, err := strconv.Atoi(a.Val)
			if err != nil || n < 1 || n > b.spans {
				continue
			}
			b.spans -= n
		case "alt", "title", "class", "start", "align", "role":
		default:
			continue
		}
		kept = append(kept, a)
	}
	return kept
}

// endImplied ends the open elements that a start tag ends.
func (b *treeBuilder) endImplied(name atom.Atom) {
	if implied, ok := impliedEnds[name]; ok {
		b.endFirst(func(open atom.Atom) bool { return implied.ends[open] }, func(open atom.Atom) bool { return implied.within[open] })
	}
	if blockElements[name] {
		b.endFirst(func(open atom.Atom) bool { return open == atom.P }, func(open atom.Atom) bool { return blockElements[open] || cellElements[open] })
	}
}

// endFirst searches the open elements from the innermost on. It ends the first element for
// which ends returns true, with all elements in it. It stops at an element for which
// within returns true.
func (b *treeBuilder) endFirst(ends, within func(atom.Atom) bool) {
	for i := len(b.open) - 1; i > 0; i-- {
		if name := b.open[i].DataAtom; ends(name) {
			b.open, b.overflow = b.open[:i], 0
			return
		} else if within(name) {
			return
		}
	}
}

// end ends the innermost open element of a name. An end tag without a start tag has no
// effect. An end tag in a cell ends no element outside the cell, unless it is the end tag
// of one of tableElements.
func (b *treeBuilder) end(name atom.Atom, data string) {
	if b.overflow > 0 {
		b.overflow--
		return
	}
	for i := len(b.open) - 1; i > 0; i-- {
		if b.open[i].Data == data {
			b.open = b.open[:i]
			return
		}
		if cellElements[b.open[i].DataAtom] && !tableElements[name] {
			return
		}
	}
}
