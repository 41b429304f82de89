package web

import "golang.org/x/net/html/atom"

// skippedElements are the elements whose content is no text for a reader.
var skippedElements = atomSet(atom.Script, atom.Style, atom.Template, atom.Svg, atom.Math, atom.Iframe, atom.Object, atom.Noembed, atom.Noframes,
	atom.Textarea, atom.Select, atom.Title, atom.Audio, atom.Video, atom.Canvas)

// foreignElements are the skipped elements that have no content if their start tag ends in
// a slash. In other elements the slash has no meaning.
var foreignElements = atomSet(atom.Svg, atom.Math)

// voidElements are the elements that have no content and no end tag.
var voidElements = atomSet(atom.Area, atom.Base, atom.Br, atom.Col, atom.Embed, atom.Hr, atom.Img, atom.Input, atom.Link, atom.Meta,
	atom.Param, atom.Source, atom.Track, atom.Wbr)

// blockElements are the elements that begin a line of their own. The start of one ends an
// open paragraph.
var blockElements = atomSet(atom.Address, atom.Article, atom.Aside, atom.Blockquote, atom.Body, atom.Center, atom.Details, atom.Dialog, atom.Dir,
	atom.Div, atom.Dl, atom.Dt, atom.Dd, atom.Fieldset, atom.Figcaption, atom.Figure, atom.Footer, atom.Form, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5,
	atom.H6, atom.Header, atom.Hgroup, atom.Hr, atom.Li, atom.Main, atom.Menu, atom.Nav, atom.Ol, atom.P, atom.Pre, atom.Search, atom.Section,
	atom.Summary, atom.Table, atom.Tbody, atom.Tfoot, atom.Thead, atom.Tr, atom.Ul)

// cellElements are the table cells. An end tag in a cell ends no element outside the cell,
// unless it is the end tag of one of tableElements.
var cellElements = atomSet(atom.Td, atom.Th, atom.Caption)

// tableElements are the elements of a table, whose end tags also end the cell around the
// tag.
var tableElements = atomSet(atom.Table, atom.Tbody, atom.Thead, atom.Tfoot, atom.Tr, atom.Td, atom.Th, atom.Caption)

// An impliedEnd says which open elements a start tag ends. The search for these elements
// stops at an element of within.
type impliedEnd struct{ ends, within map[atom.Atom]bool }

// impliedEnds maps a start tag to its implied end. It does not contain the end of a
// paragraph.
var impliedEnds = map[atom.Atom]impliedEnd{
	atom.Li:    {atomSet(atom.Li), atomSet(atom.Ul, atom.Ol, atom.Menu, atom.Dir, atom.Td, atom.Th)},
	atom.Dt:    {atomSet(atom.Dt, atom.Dd), atomSet(atom.Dl, atom.Td, atom.Th)},
	atom.Dd:    {atomSet(atom.Dt, atom.Dd), atomSet(atom.Dl, atom.Td, atom.Th)},
	atom.Td:    {cellElements, atomSet(atom.Table, atom.Tr)},
	atom.Th:    {cellElements, atomSet(atom.Table, atom.Tr)},
	atom.Tr:    {atomSet(atom.Tr, atom.Caption), atomSet(atom.Table)},
	atom.Tbody: {atomSet(atom.Tbody, atom.Thead, atom.Tfoot, atom.Caption), atomSet(atom.Table)},
	atom.Thead: {atomSet(atom.Tbody, atom.Thead, atom.Tfoot, atom.Caption), atomSet(atom.Table)},
	atom.Tfoot: {atomSet(atom.Tbody, atom.Thead, atom.Tfoot, atom.Caption), atomSet(atom.Table)},
}

// atomSet returns a set of element names.
func atomSet(names ...atom.Atom) map[atom.Atom]bool {
	set := make(map[atom.Atom]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}
