package shellcommand

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A walker walks the syntax tree of one script.
type walker struct {
	*collector
	variant syntax.LangVariant
}

// visit adds the commands of one node and returns whether to descend into the node. It
// marks the line uncertain for three kinds of nodes: syntax that visit does not know, a
// construct that sets a variable which a program may inherit, and arithmetic on
// variables, because bash runs commands in their values.
func (v *walker) visit(n syntax.Node) bool {
	if v.size > maxResourceBytes {
		v.uncertain = true
		return false
	}
	switch n := n.(type) {
	case nil, *syntax.File, *syntax.Comment, *syntax.Word, *syntax.Lit, *syntax.SglQuoted, *syntax.DblQuoted, *syntax.Block,
		*syntax.IfClause, *syntax.WhileClause, *syntax.BinaryCmd, *syntax.CaseItem, *syntax.ArrayExpr, *syntax.ProcSubst, *syntax.ExtGlob,
		*syntax.TimeClause, *syntax.TestClause, *syntax.ParenTest,
		*syntax.BinaryArithm, *syntax.UnaryArithm, *syntax.ParenArithm:
	case *syntax.Stmt:
		v.requireCertain(!n.Coprocess && !n.Disown)
	case *syntax.CallExpr:
		v.addCall(n)
	case *syntax.Redirect:
		v.addRedirect(n)
	case *syntax.Assign:
		v.requireCertain(isNumeric(n.Index))
	case *syntax.ArrayElem:
		v.requireCertain(isNumeric(n.Index))
	case *syntax.DeclClause:
		v.addDeclaration(n)
	case *syntax.LetClause:
		v.addExact(v.print(n))
		v.uncertain = true
	case *syntax.Subshell:
		v.requireCertain(!startsWithSubshell(n.Lparen, n.Stmts)) // (( begins arithmetic too
	case *syntax.CmdSubst:
		v.requireCertain(!n.TempFile && !n.ReplyVar && (n.Backquotes || !startsWithSubshell(n.Left, n.Stmts)))
	case *syntax.ParamExp:
		v.requireCertain(v.isSafeExpansion(n))
	case *syntax.ArithmExp:
		v.requireCertain(!n.Unsigned && !n.Bracket && isNumeric(n.X))
	case *syntax.ArithmCmd:
		v.requireCertain(!n.Unsigned && isNumeric(n.X))
	case *syntax.ForClause:
		loop, ok := n.Loop.(*syntax.WordIter)
		v.requireCertain(ok && !n.Select && !n.Braces && v.isPrivate(loop.Name.Value))
	case *syntax.WordIter: // a word that is an option can change the commands of the loop
		v.requireCertain(!slices.ContainsFunc(n.Items, func(w *syntax.Word) bool { return strings.HasPrefix(v.readWord(w).value, "-") }))
	case *syntax.CaseClause:
		v.requireCertain(!n.Braces)
	case *syntax.UnaryTest:
		v.requireCertain(n.Op != syntax.TsVarSet && n.Op != syntax.TsRefVar)
	case *syntax.BinaryTest:
		switch n.Op {
		case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
			v.requireCertain(isNumericWord(n.X) && isNumericWord(n.Y))
		}
	default: // functions and coprocesses among them
		v.uncertain = true
	}
	return true
}

// requireCertain marks the line uncertain unless ok is true.
func (v *walker) requireCertain(ok bool) { v.uncertain = v.uncertain || !ok }

// startsWithSubshell reports whether the first statement is a subshell whose
// parenthesis directly follows the parenthesis at the position open. Shells can read
// the two as the beginning of an arithmetic command.
func startsWithSubshell(open syntax.Pos, stmts []*syntax.Stmt) bool {
	if len(stmts) == 0 {
		return false
	}
	inner, ok := stmts[0].Cmd.(*syntax.Subshell)
	return ok && inner.Lparen.Offset() <= open.Offset()+2
}

// isNumeric reports whether an arithmetic expression contains only numbers.
func isNumeric(x syntax.ArithmExpr) bool {
	switch x := x.(type) {
	case nil:
		return true
	case *syntax.Word:
		return isDigits(x)
	case *syntax.BinaryArithm:
		return isNumeric(x.X) && isNumeric(x.Y)
	case *syntax.UnaryArithm:
		return isNumeric(x.X)
	case *syntax.ParenArithm:
		return isNumeric(x.X)
	}
	return false
}

// isNumericWord reports whether a test operand is a literal number.
func isNumericWord(x syntax.TestExpr) bool {
	w, ok := x.(*syntax.Word)
	return ok && isDigits(w)
}

// isDigits reports whether a word is a literal number.
func isDigits(w *syntax.Word) bool {
	text := w.Lit()
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// isSafeExpansion reports whether an expansion of a variable runs no command and sets no variable
// that a program may inherit.
func (v *walker) isSafeExpansion(p *syntax.ParamExp) bool {
	if p.Param == nil || p.Flags != nil || p.Excl || p.Width || p.IsSet || p.NestedParam != nil || p.Modifiers != nil || p.Names != 0 || p.Slice != nil ||
		p.Split+p.GlobSubst+p.RcExpand != 0 {
		return false
	}
	if w, ok := p.Index.(*syntax.Word); p.Index != nil && !isNumeric(p.Index) && !(ok && (w.Lit() == "@" || w.Lit() == "*")) {
		return false
	}
	if p.Exp == nil {
		return p.Repl == nil || !hasSingleQuotes(p.Repl.Orig) && !hasSingleQuotes(p.Repl.With)
	}
	if hasSingleQuotes(p.Exp.Word) {
		return false
	}
	switch p.Exp.Op {
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		return v.isPrivate(p.Param.Value)
	case syntax.OtherParamOps, syntax.MatchEmpty, syntax.ArrayExclude, syntax.ArrayIntersect:
		return false
	}
	return true
}

// hasSingleQuotes reports whether a word contains single quotes. Inside an expansion in
// double quotes, shells read single quotes as literal characters.
func hasSingleQuotes(w *syntax.Word) bool {
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

// addDeclaration adds a declaration of variables as a resource.
func (v *walker) addDeclaration(d *syntax.DeclClause) {
	v.addExact(v.print(d))
	for _, arg := range d.Args {
		v.requireCertain(arg.Name != nil)
	}
}

// print returns a node as text on one line.
func (v *walker) print(n syntax.Node) string {
	var b strings.Builder
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&b, n); err != nil {
		v.uncertain = true
		return ""
	}
	return strings.TrimSpace(b.String())
}

// addCall adds a simple command. If assignments precede the command, addCall also adds
// the assignments and the command as one resource, because the assignments can change
// the effect of the command.
func (v *walker) addCall(c *syntax.CallExpr) {
	var sets []string
	for _, assign := range c.Assigns {
		sets = append(sets, v.print(assign))
	}
	words := v.readWords(c.Args)
	save := reusablePattern
	if len(sets) > 0 {
		v.addExact(strings.Join(append(sets, wordTexts(words)...), " "))
	}
	if len(sets) > 0 || v.depth > 1 { // the question is about more than this command
		save = exactPattern
	}
	v.addCommand(words, save)
}

// addCommand adds a command, and the commands that this command is known to run. save
// returns the save pattern of the command.
func (v *walker) addCommand(words []shellWord, save func([]shellWord) string) {
	if len(words) == 0 || !v.enterNested() {
		return
	}
	defer func() { v.depth-- }()
	for _, w := range words[1:] {
		if w.literal {
			v.addPath(w.value)
		}
	}
	whole := strings.Join(wordTexts(words), " ")
	name := words[0]
	if !name.plain() || name.value == "" {
		v.indirect = true
		v.addExact(whole)
		v.addGuesses(whole, words[1:]) // the name can be no word at all
		return
	}
	program := baseName(name.value)
	if program != name.value {
		v.addSpellings(whole, strings.Join(append([]string{program}, wordTexts(words[1:])...), " "))
	}
	if v.addWrapped(program, whole, words) || v.changesShell(program, words) {
		v.addExact(whole)
		return
	}
	v.add(whole, save(words))
}

// addRedirect adds the file of a redirection. Duplicates of descriptors, here-documents
// and /dev/null are not files.
func (v *walker) addRedirect(r *syntax.Redirect) {
	v.requireCertain(r.N == nil || strings.Trim(r.N.Value, "0123456789") == "")
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		v.requireCertain(r.Word != nil && isPlainDelimiter(r.Word))
		return
	case syntax.WordHdoc:
		return
	}
	if r.Word == nil {
		return
	}
	w := v.readWord(r.Word)
	if w.plain() && w.value == "/dev/null" {
		return
	}
	if r.Op == syntax.DplOut || r.Op == syntax.DplIn {
		if w.literal && (w.value == "-" || strings.Trim(w.value, "0123456789") == "") {
			return
		}
		v.requireCertain(false) // bash ends the redirection after <&- and takes the rest for an argument
	}
	if w.literal {
		v.addPath(w.value)
	}
	resource := r.Op.String() + " " + w.text
	v.addExact(resource)
	if r.Op != syntax.RdrIn && r.Op != syntax.DplIn {
		v.addSpellings(resource, "> "+w.text)
	}
}

// isPlainDelimiter reports whether all shells agree on the line that ends a
// here-document: its delimiter consists of letters and digits, and is quoted as a whole
// or not at all.
func isPlainDelimiter(w *syntax.Word) bool {
	text := w.Lit()
	if len(w.Parts) == 1 {
		switch part := w.Parts[0].(type) {
		case *syntax.SglQuoted:
			text = part.Value
		case *syntax.DblQuoted:
			if lit, ok := doubleQuoted(part); ok {
				text = lit
			}
		}
	}
	return text != "" && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}
