package builtins

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// A script is the set of resources and effects of a command line, as far as the parser can
// read it.
type script struct {
	resources []string            // to ask about: at least one
	spellings map[string][]string // further texts of a resource, for rules that ask or deny
	saves     []string            // the patterns that an answer for always allows
	paths     []string            // literal words that are absolute paths
}

// maxLine is the longest command line that is parsed, in bytes. Linux passes
// no longer argument to a program.
const maxLine = 128 << 10

// analyse reads a command line as the shell does. The shell is a result of
// dialect; environment is the environment that the shell gets, as KEY=VALUE. A
// line that the parser and the shell may read differently is unread: the whole
// line is a resource, besides the commands that the parser found in it, under
// a name that no pattern for one of its commands matches.
func analyse(line, shell string, environment ...string) script {
	a := newAnalysis(environment)
	if ambiguous(line) {
		a.unread = true
	}
	languages := variants(shell)
	if languages == nil {
		a.unread, languages = true, posix // its commands serve rules that deny
	}
	a.read(line, languages)
	whole := strings.TrimSpace(line)
	if a.opaque || a.unread || len(a.script.resources) == 0 {
		a.exactly(whole)
	}
	if a.unread {
		unread := shell + " -c " + whole
		a.exactly(unread)
		a.spell(unread, segments(line)...)
		a.script.saves = nil
		for _, resource := range a.script.resources {
			a.script.saves = append(a.script.saves, literally(resource))
		}
	}
	return a.script
}

// ambiguous reports whether a line holds text that shells, parsers and people
// read differently: control characters other than tab and line feed, text that
// is not UTF-8, and characters that no terminal shows, such as Unicode spaces
// and changes of direction.
func ambiguous(line string) bool {
	if len(line) > maxLine || !utf8.ValidString(line) {
		return true
	}
	if continued.MatchString(line) || swallowed.MatchString(line) {
		return true
	}
	return strings.ContainsFunc(line, func(r rune) bool {
		return r != '\n' && r != '\t' && !unicode.IsPrint(r)
	})
}

// continued matches what may be a comment that ends in a backslash. A shell
// ends the comment there; the parser reads on.
//
// swallowed matches a character outside ASCII before one that a shell in a
// locale such as Shift JIS takes for its second byte, and thus not for a quote.
var (
	continued = regexp.MustCompile(`#[^\n]*\\\n`)
	swallowed = regexp.MustCompile("[^\\x00-\\x7f][\\\\`]")
)

// maxSegments is how many spellings are derived from one unread text.
const maxSegments = 4096

// maxResources is how many bytes the resources of a line may have together.
// Commands nested in commands would take the square of its length.
const maxResources = 1 << 20

// segments returns the texts in a line that may be commands, for rules that
// ask or deny: every text after a separator, a keyword or an assignment, with
// the base name of its program, as it is and without quotes.
func segments(line string) []string {
	var texts []string
	for _, text := range []string{line, strings.NewReplacer(`\`, "", `"`, "", "'", "").Replace(line)} {
		for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(";&|(){}`<>\r\n\"'", r) }) {
			fields := strings.Fields(part)
			for len(fields) > 1 && (strings.Contains(fields[0], "=") || slices.Contains(keywords, fields[0])) {
				fields = fields[1:]
			}
			if len(fields) == 0 || len(texts) == maxSegments {
				continue
			}
			fields[0] = base(fields[0])
			texts = append(texts, strings.Join(fields, " "))
		}
	}
	return texts
}

var keywords = strings.Fields("! do elif else if then time until while")

// base returns the text after the last slash.
func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// dialect returns the name under which analyse knows the shell at a path: bash
// for a program called bash that is one, sh for any other shell of the POSIX
// family, and otherwise the name of the program, which analyse does not read.
func dialect(path string) string {
	called := filepath.Base(path)
	if found, err := exec.LookPath(path); err == nil {
		path = found
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	program := filepath.Base(path)
	if program == "bash" && called == "bash" {
		return "bash"
	}
	if variants(program) != nil {
		return "sh"
	}
	return program
}

// variants returns the languages in which a shell may read a line. A shell
// under the name sh can be one of several, so that a line must read the same
// in both.
func variants(shell string) []syntax.LangVariant {
	switch shell {
	case "bash":
		return []syntax.LangVariant{syntax.LangBash}
	case "sh", "dash", "ash", "busybox":
		return posix
	}
	return nil
}

var posix = []syntax.LangVariant{syntax.LangPOSIX, syntax.LangBash}

// An analysis collects the commands of a script.
type analysis struct {
	script      script
	seen        map[string]bool // the resources
	environment map[string]bool // names of variables
	opaque      bool            // a command in it is another than its words say
	unread      bool            // the shell may run what the parser does not see
	depth       int             // of scripts and commands within commands
	size        int             // of the resources, in bytes
}

func newAnalysis(environment []string) *analysis {
	a := &analysis{seen: map[string]bool{}, environment: map[string]bool{}}
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		a.environment[name] = true
	}
	return a
}

// maxDepth is how deep scripts and commands within commands are read.
const maxDepth = 8

// enter counts one level of commands within commands. It reports false where
// there are too many.
func (a *analysis) enter() bool {
	if a.depth == maxDepth {
		a.unread = true
		return false
	}
	a.depth++
	return true
}

// read adds the commands of a text. Variants that disagree leave it unread.
func (a *analysis) read(line string, in []syntax.LangVariant) {
	if len(line) > maxLine || !a.enter() {
		a.unread = true
		return
	}
	defer func() { a.depth-- }()
	var found []string
	for i, variant := range in {
		file, err := syntax.NewParser(syntax.Variant(variant)).Parse(strings.NewReader(line), "")
		if err != nil {
			a.unread = true
			continue
		}
		one := &analysis{seen: map[string]bool{}, environment: a.environment, depth: a.depth}
		syntax.Walk(file, (&visit{one, variant}).node)
		if i > 0 && !slices.Equal(found, one.script.resources) {
			a.unread = true
		}
		found = one.script.resources
		a.merge(one)
	}
}

func (a *analysis) merge(b *analysis) {
	for _, resource := range b.script.resources {
		if !a.seen[resource] {
			a.size += len(resource)
			a.seen[resource] = true
			a.script.resources = append(a.script.resources, resource)
		}
		a.spell(resource, b.script.spellings[resource]...)
	}
	for _, save := range b.script.saves {
		if !slices.Contains(a.script.saves, save) {
			a.script.saves = append(a.script.saves, save)
		}
	}
	for _, path := range b.script.paths {
		a.path(path)
	}
	a.opaque, a.unread = a.opaque || b.opaque, a.unread || b.unread
}

func (a *analysis) add(resource, save string) {
	if resource == "" || a.seen[resource] {
		return
	}
	a.size += len(resource)
	a.seen[resource] = true
	a.script.resources = append(a.script.resources, resource)
	if !slices.Contains(a.script.saves, save) {
		a.script.saves = append(a.script.saves, save)
	}
}

// exactly adds a resource that is saved as it is.
func (a *analysis) exactly(resource string) { a.add(resource, literally(resource)) }

// spell adds further spellings of a resource.
func (a *analysis) spell(resource string, texts ...string) {
	for _, text := range texts {
		if text == "" || text == resource || slices.Contains(a.script.spellings[resource], text) {
			continue
		}
		if a.script.spellings == nil {
			a.script.spellings = map[string][]string{}
		}
		a.script.spellings[resource] = append(a.script.spellings[resource], text)
	}
}

// path adds an absolute path that the script names.
func (a *analysis) path(value string) {
	if strings.HasPrefix(value, "/") && value != "/dev/null" && !slices.Contains(a.script.paths, value) {
		a.script.paths = append(a.script.paths, value)
	}
}

// private reports whether a variable belongs to the script alone: no program inherits it and
// the shell gives it no meaning. These are variables in lower case that the environment does
// not hold.
func (a *analysis) private(name string) bool {
	return name != "" && !a.environment[name] && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == "" && name[0] >= 'a'
}

// A visit walks over one parsed script.
type visit struct {
	*analysis
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

// A shellWord is one of a command.
type shellWord struct {
	text    string // as it is shown
	value   string // its meaning, where it is literal
	literal bool
	expands bool // it is literal, and the shell may replace it by other words
}

// plain reports whether a word means itself alone.
func (w shellWord) plain() bool { return w.literal && !w.expands }

func texts(words []shellWord) []string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.text
	}
	return texts
}

func (v *visit) words(args []*syntax.Word) []shellWord {
	words := make([]shellWord, len(args))
	for i, arg := range args {
		words[i] = v.word(arg)
	}
	return words
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

// word reads a word. It removes redundant quotes, so that a rule sees the same text however
// the word is quoted.
func (v *visit) word(w *syntax.Word) shellWord {
	read, quoted, ok := literal(w.Parts)
	if !ok {
		return shellWord{text: v.source(w)}
	}
	read.text, read.literal = read.value, true
	if quoted {
		read.text = quote(read.value)
	}
	return read
}

// quote returns a text that the shell reads as one word. All variants get the
// same.
func quote(value string) string {
	harmless := func(r rune) bool {
		return r >= utf8.RuneSelf || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_@%+=:,./-", r)
	}
	if value != "" && !strings.ContainsFunc(value, func(r rune) bool { return !harmless(r) }) {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}

// literal returns the meaning of literal parts, and whether any of it is
// quoted.
func literal(parts []syntax.WordPart) (w shellWord, quoted, ok bool) {
	var b, bare strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			text, escaped := unescape(part.Value, func(byte) bool { return true })
			b.WriteString(text)
			bare.WriteString(part.Value)
			quoted = quoted || escaped
		case *syntax.SglQuoted:
			if part.Dollar {
				return shellWord{}, false, false
			}
			b.WriteString(part.Value)
			quoted = true
		case *syntax.DblQuoted:
			text, ok := double(part)
			if !ok {
				return shellWord{}, false, false
			}
			b.WriteString(text)
			quoted = true
		default:
			return shellWord{}, false, false
		}
	}
	return shellWord{value: b.String(), expands: expands(bare.String())}, quoted, true
}

// expands reports whether a shell may replace a literal that is not quoted, by
// the names of files, by several words, or by a directory.
func expands(lit string) bool {
	return strings.ContainsAny(lit, "*?[") && lit != "[" && lit != "[[" || strings.HasPrefix(lit, "~") ||
		strings.Contains(lit, "{") && (strings.Contains(lit, ",") || strings.Contains(lit, ".."))
}

// double returns the meaning of literal text in double quotes.
func double(q *syntax.DblQuoted) (string, bool) {
	var b strings.Builder
	for _, part := range q.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok || q.Dollar {
			return "", false
		}
		text, _ := unescape(lit.Value, func(c byte) bool { return strings.IndexByte("$`\"\\\n", c) >= 0 })
		b.WriteString(text)
	}
	return b.String(), true
}

// unescape removes the backslash before each byte that it quotes, and both
// where that is a line end. It reports whether there was one.
func unescape(text string, quotes func(byte) bool) (string, bool) {
	var b strings.Builder
	escaped := false
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && quotes(text[i+1]) {
			escaped = true
			if i++; text[i] == '\n' {
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String(), escaped
}
