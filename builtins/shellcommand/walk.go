package shellcommand

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A visit walks over one parsed script.
type visit struct {
	*collector
	variant syntax.LangVariant
}

// node sees each node, those within substitutions too. Syntax that it does not
// name leaves the script unread, as does a variable that is set without an
// assignment and may reach a program, and arithmetic on anything but numbers:
// bash runs the commands that the value of a variable holds there.
func (v *visit) node(n syntax.Node) bool {
	if v.size > maxResources {
		v.unread = true
		return false
	}
	switch n := n.(type) {
	case nil, *syntax.File, *syntax.Comment, *syntax.Word, *syntax.Lit, *syntax.SglQuoted, *syntax.DblQuoted, *syntax.Block,
		*syntax.IfClause, *syntax.WhileClause, *syntax.BinaryCmd, *syntax.CaseItem, *syntax.ArrayExpr, *syntax.ProcSubst, *syntax.ExtGlob,
		*syntax.TimeClause, *syntax.TestClause, *syntax.ParenTest,
		*syntax.BinaryArithm, *syntax.UnaryArithm, *syntax.ParenArithm:
	case *syntax.Stmt:
		v.require(!n.Coprocess && !n.Disown)
	case *syntax.CallExpr:
		v.call(n)
	case *syntax.Redirect:
		v.redirect(n)
	case *syntax.Assign:
		v.require(constant(n.Index))
	case *syntax.ArrayElem:
		v.require(constant(n.Index))
	case *syntax.DeclClause:
		v.declare(n)
	case *syntax.LetClause:
		v.exactly(v.source(n))
		v.unread = true
	case *syntax.Subshell:
		v.require(!adjacent(n.Lparen, n.Stmts)) // (( begins arithmetic too
	case *syntax.CmdSubst:
		v.require(!n.TempFile && !n.ReplyVar && (n.Backquotes || !adjacent(n.Left, n.Stmts)))
	case *syntax.ParamExp:
		v.require(v.readable(n))
	case *syntax.ArithmExp:
		v.require(!n.Unsigned && !n.Bracket && constant(n.X))
	case *syntax.ArithmCmd:
		v.require(!n.Unsigned && constant(n.X))
	case *syntax.ForClause:
		loop, ok := n.Loop.(*syntax.WordIter)
		v.require(ok && !n.Select && !n.Braces && v.private(loop.Name.Value))
	case *syntax.WordIter: // a word that is an option can change the commands of the loop
		v.require(!slices.ContainsFunc(n.Items, func(w *syntax.Word) bool { return strings.HasPrefix(v.word(w).value, "-") }))
	case *syntax.CaseClause:
		v.require(!n.Braces)
	case *syntax.UnaryTest:
		v.require(n.Op != syntax.TsVarSet && n.Op != syntax.TsRefVar)
	case *syntax.BinaryTest:
		switch n.Op {
		case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
			v.require(number(n.X) && number(n.Y))
		}
	default: // functions and coprocesses among them
		v.unread = true
	}
	return true
}

// require leaves the script unread unless a condition holds.
func (v *visit) require(ok bool) { v.unread = v.unread || !ok }

// adjacent reports whether the first of some statements is a subshell right
// behind the parenthesis at a position.
func adjacent(open syntax.Pos, stmts []*syntax.Stmt) bool {
	if len(stmts) == 0 {
		return false
	}
	inner, ok := stmts[0].Cmd.(*syntax.Subshell)
	return ok && inner.Lparen.Offset() <= open.Offset()+2
}

// constant reports whether an arithmetic expression holds numbers alone.
func constant(x syntax.ArithmExpr) bool {
	switch x := x.(type) {
	case nil:
		return true
	case *syntax.Word:
		return digits(x)
	case *syntax.BinaryArithm:
		return constant(x.X) && constant(x.Y)
	case *syntax.UnaryArithm:
		return constant(x.X)
	case *syntax.ParenArithm:
		return constant(x.X)
	}
	return false
}

func number(x syntax.TestExpr) bool {
	w, ok := x.(*syntax.Word)
	return ok && digits(w)
}

func digits(w *syntax.Word) bool {
	text := w.Lit()
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// readable reports whether an expansion of a variable runs no command and sets no variable
// that a program may inherit.
func (v *visit) readable(p *syntax.ParamExp) bool {
	if p.Param == nil || p.Flags != nil || p.Excl || p.Width || p.IsSet || p.NestedParam != nil || p.Modifiers != nil || p.Names != 0 || p.Slice != nil ||
		p.Split+p.GlobSubst+p.RcExpand != 0 {
		return false
	}
	if w, ok := p.Index.(*syntax.Word); p.Index != nil && !constant(p.Index) && !(ok && (w.Lit() == "@" || w.Lit() == "*")) {
		return false
	}
	if p.Exp == nil {
		return p.Repl == nil || !apostrophe(p.Repl.Orig) && !apostrophe(p.Repl.With)
	}
	if apostrophe(p.Exp.Word) {
		return false
	}
	switch p.Exp.Op {
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		return v.private(p.Param.Value)
	case syntax.OtherParamOps, syntax.MatchEmpty, syntax.ArrayExclude, syntax.ArrayIntersect:
		return false
	}
	return true
}

// apostrophe reports whether a word holds single quotes. Within an expansion
// that is itself in double quotes, shells read them as text.
func apostrophe(w *syntax.Word) bool {
	found := false
	if w != nil {
		syntax.Walk(w, func(n syntax.Node) bool {
			_, single := n.(*syntax.SglQuoted)
			found = found || single
			return !found
		})
	}
	return found
}

// declare adds a declaration of variables.
func (v *visit) declare(d *syntax.DeclClause) {
	v.exactly(v.source(d))
	for _, arg := range d.Args {
		v.require(arg.Name != nil)
	}
}

// source returns the text of a node on one line.
func (v *visit) source(n syntax.Node) string {
	var b strings.Builder
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&b, n); err != nil {
		v.unread = true
		return ""
	}
	return strings.TrimSpace(b.String())
}

// call adds a simple command; with the variables that are set for it, if there
// are any, once more: they can make another command of it.
func (v *visit) call(c *syntax.CallExpr) {
	var sets []string
	for _, assign := range c.Assigns {
		sets = append(sets, v.source(assign))
	}
	words := v.words(c.Args)
	save := reusable
	if len(sets) > 0 {
		v.exactly(strings.Join(append(sets, texts(words)...), " "))
	}
	if len(sets) > 0 || v.depth > 1 { // the question is about more than this command
		save = exactly
	}
	v.command(words, save)
}

// command adds the command of some words, and the commands that it is known to
// run. The pattern that an answer for always saves is that of save.
func (v *visit) command(words []shellWord, save func([]shellWord) string) {
	if len(words) == 0 || !v.enter() {
		return
	}
	defer func() { v.depth-- }()
	for _, w := range words[1:] {
		if w.literal {
			v.path(w.value)
		}
	}
	whole := strings.Join(texts(words), " ")
	name := words[0]
	if !name.plain() || name.value == "" {
		v.opaque = true
		v.exactly(whole)
		v.guess(whole, words[1:]) // the name can be no word at all
		return
	}
	program := base(name.value)
	if program != name.value {
		v.spell(whole, strings.Join(append([]string{program}, texts(words[1:])...), " "))
	}
	if v.runs(program, whole, words) || v.sets(program, words) {
		v.exactly(whole)
		return
	}
	v.add(whole, save(words))
}

// redirect adds a file that is read or written. A duplicate of a descriptor,

// redirect adds a file that is read or written. A duplicate of a descriptor,
// text in the script, and /dev/null are no files.
func (v *visit) redirect(r *syntax.Redirect) {
	v.require(r.N == nil || strings.Trim(r.N.Value, "0123456789") == "")
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		v.require(r.Word != nil && delimiter(r.Word))
		return
	case syntax.WordHdoc:
		return
	}
	if r.Word == nil {
		return
	}
	w := v.word(r.Word)
	if w.plain() && w.value == "/dev/null" {
		return
	}
	if r.Op == syntax.DplOut || r.Op == syntax.DplIn {
		if w.literal && (w.value == "-" || strings.Trim(w.value, "0123456789") == "") {
			return
		}
		v.require(false) // bash ends the redirection after <&- and takes the rest for an argument
	}
	if w.literal {
		v.path(w.value)
	}
	resource := r.Op.String() + " " + w.text
	v.exactly(resource)
	if r.Op != syntax.RdrIn && r.Op != syntax.DplIn {
		v.spell(resource, "> "+w.text)
	}
}

// delimiter reports whether all shells find the end of a here-document at the
// same line: its delimiter is letters and digits, quoted whole or not at all.
func delimiter(w *syntax.Word) bool {
	text := w.Lit()
	if len(w.Parts) == 1 {
		switch part := w.Parts[0].(type) {
		case *syntax.SglQuoted:
			text = part.Value
		case *syntax.DblQuoted:
			if lit, ok := double(part); ok {
				text = lit
			}
		}
	}
	return text != "" && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}
