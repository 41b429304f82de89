package web

import "golang.org/x/net/html"

// maxPart is the maximum weight of the parts in which a page is converted. The converter
// takes quadratic time for some pages. With parts of bounded weight the time is linear.
const maxPart = 2048

// minPart is the minimum limit of a part, however heavy the elements around it are.
const minPart = maxPart / 4

// weigh returns the weight of a node without its children: 1, and 1 more for every 32
// bytes of text.
func weigh(n *html.Node) int {
	bytes := len(n.Data)
	for _, a := range n.Attr {
		bytes += len(a.Val)
	}
	return 1 + bytes/32
}

// weighTree stores the weight of each node with its children in weights.
func weighTree(n *html.Node, weights map[*html.Node]int) int {
	weight := weigh(n)
	for child := n.FirstChild; child != nil; child = child.NextSibling {
		weight += weighTree(child, weights)
	}
	weights[n] = weight
	return weight
}

// splitTree returns the parts of a tree in order. The weight of a part is about maxPart at
// most, except for a single node that is heavier. If an element is split, each of its
// parts contains a copy of the element with some of its children. splitTree takes n apart.
func splitTree(n *html.Node) []*html.Node {
	weights := map[*html.Node]int{}
	weighTree(n, weights)
	return splitNode(n, maxPart, weights)
}

// splitNode splits a node as splitTree does. limit is maxPart less the weight of the
// elements around the node.
func splitNode(n *html.Node, limit int, weights map[*html.Node]int) []*html.Node {
	if weights[n] <= limit || n.FirstChild == nil {
		return []*html.Node{n}
	}
	own := weigh(n)
	var parts []*html.Node
	part, weight := emptyCopy(n), own
	for child := n.FirstChild; child != nil; child = n.FirstChild {
		n.RemoveChild(child)
		for _, piece := range splitNode(child, max(limit-own, minPart), weights) {
			heavy := min(weights[child], limit)
			if weight+heavy > limit && part.FirstChild != nil {
				parts = append(parts, part)
				part, weight = emptyCopy(n), own
			}
			part.AppendChild(piece)
			weight += heavy
		}
	}
	return append(parts, part)
}

// emptyCopy returns a copy of a node without parent, siblings and children.
func emptyCopy(n *html.Node) *html.Node {
	return &html.Node{Type: n.Type, DataAtom: n.DataAtom, Data: n.Data, Attr: n.Attr}
}
