package builtins

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A script is what a command line does, as far as it can be read.
type script struct {
	resources []string // to ask about: at least one
	saves     []string // the patterns that an answer for always allows
	paths     []string // literal words that are absolute paths
}

// analyse reads a command line as a shell does. What the shell could take in
// another way is added to the resources, never left out.
func analyse(line, shell string) script {
	a := &analysis{}
	a.read(line, variants(shell))
	whole := strings.TrimSpace(line)
	if a.opaque || a.unread || len(a.script.resources) == 0 {
		a.add(whole, literally(whole))
	}
	if a.unread { // a pattern for its first command would fit the line
		a.add(shell+" -c "+whole, literally(shell+" -c "+whole))
	}
	return a.script
}

// variants are the languages in which a shell may read a line. The languages
// of sh are two, as it is often another shell. A shell that is not known reads
// what nobody can tell.
func variants(shell string) []syntax.LangVariant {
	switch shell {
	case "bash":
		return []syntax.LangVariant{syntax.LangBash}
	case "sh", "dash", "ash", "busybox":
		return []syntax.LangVariant{syntax.LangPOSIX, syntax.LangBash}
	case "mksh":
		return []syntax.LangVariant{syntax.LangMirBSDKorn}
	case "zsh":
		return []syntax.LangVariant{syntax.LangZsh}
	}
	return nil
}

// An analysis collects what commands a script holds.
type analysis struct {
	script script
	opaque bool // a command in it is another than its words say
	unread bool // it is no script of the language
	depth  int  // of scripts within scripts
}

// maxDepth is how deep scripts within scripts are read.
const maxDepth = 8

func (a *analysis) read(line string, in []syntax.LangVariant) {
	if len(in) == 0 || a.depth == maxDepth {
		a.unread = true
		return
	}
	a.depth++
	defer func() { a.depth-- }()
	for _, variant := range in {
		file, err := syntax.NewParser(syntax.Variant(variant)).Parse(strings.NewReader(line), "")
		if err != nil {
			a.unread = true
			continue
		}
		v := &visit{a, variant}
		syntax.Walk(file, v.node)
	}
}

func (a *analysis) add(resource, save string) {
	if resource == "" || slices.Contains(a.script.resources, resource) {
		return
	}
	a.script.resources = append(a.script.resources, resource)
	if !slices.Contains(a.script.saves, save) {
		a.script.saves = append(a.script.saves, save)
	}
}

// A visit walks over one parsed script.
type visit struct {
	*analysis
	variant syntax.LangVariant
}

// node sees each node, those within substitutions too.
func (v *visit) node(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.CallExpr:
		v.call(n)
	case *syntax.DeclClause, *syntax.LetClause:
		v.exactly(v.source(n))
	case *syntax.Redirect:
		v.redirect(n)
	case *syntax.FuncDecl:
		v.opaque = true // what its name means from here on is another command
	}
	return true
}

// exactly adds a resource that is saved as it is.
func (v *visit) exactly(resource string) { v.add(resource, literally(resource)) }

// source returns the text of a node on one line.
func (v *visit) source(n syntax.Node) string {
	var b strings.Builder
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&b, n); err != nil {
		v.opaque = true
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
	if len(sets) > 0 {
		texts := sets
		for _, w := range words {
			texts = append(texts, w.text)
		}
		v.exactly(strings.Join(texts, " "))
	}
	v.command(words)
}

// A word is one of a command.
type word struct {
	text    string // as it is shown
	value   string // what it stands for, where it is literal
	literal bool
}

func (v *visit) words(args []*syntax.Word) []word {
	words := make([]word, len(args))
	for i, arg := range args {
		words[i] = v.word(arg)
	}
	return words
}

// command adds the command of some words, and those that it is known to run.
func (v *visit) command(words []word) {
	if len(words) == 0 {
		return
	}
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.text
		if i > 0 && w.literal && strings.HasPrefix(w.value, "/") && w.value != "/dev/null" && !slices.Contains(v.script.paths, w.value) {
			v.script.paths = append(v.script.paths, w.value)
		}
	}
	whole := strings.Join(texts, " ")
	name := words[0]
	if !name.literal || strings.ContainsAny(name.text, "*?[{~") {
		v.opaque = true
		v.exactly(whole)
		return
	}
	program := name.value[strings.LastIndexByte(name.value, '/')+1:]
	if runs, known := runners[program]; known {
		v.exactly(whole)
		v.inner(runs, words)
		return
	}
	v.add(whole, reusable(words))
	if program == "find" {
		v.found(words)
	}
}

// reusable returns the pattern that is saved for a command: its reusable prefix
// and anything after it.
func reusable(words []word) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.text
	}
	prefix := reusablePrefix(texts)
	for i := range prefix {
		if !words[i].literal || strings.HasPrefix(prefix[i], "-") {
			return literally(strings.Join(texts, " "))
		}
	}
	text := literally(strings.Join(prefix, " "))
	if len(prefix) < len(words) {
		text += " *"
	}
	return text
}

// A runner says how a command runs what its words name.
type runner uint8

const (
	runsText  runner = iota + 1 // a script that is among its words, or in a file or its input
	runsWords                   // the command that its later words are
)

// runners are commands that run another.
var runners = map[string]runner{
	".": runsText, "ash": runsText, "bash": runsText, "dash": runsText, "eval": runsText, "fish": runsText, "ksh": runsText, "mksh": runsText,
	"sh": runsText, "source": runsText, "trap": runsText, "zsh": runsText, "alias": runsText,
	"builtin": runsWords, "chroot": runsWords, "command": runsWords, "doas": runsWords, "env": runsWords, "exec": runsWords, "ionice": runsWords,
	"nice": runsWords, "nohup": runsWords, "setsid": runsWords, "stdbuf": runsWords, "sudo": runsWords, "time": runsWords, "timeout": runsWords,
	"unshare": runsWords, "watch": runsWords, "xargs": runsWords,
}

// inner adds what a command runs. The whole is asked about besides.
func (v *visit) inner(r runner, words []word) {
	v.opaque = true
	rest := words[1:]
	if r == runsWords {
		for len(rest) > 0 && (strings.HasPrefix(rest[0].text, "-") || strings.Contains(rest[0].text, "=") || number(rest[0].text)) {
			rest = rest[1:]
		}
		v.command(rest)
		return
	}
	for _, w := range rest {
		if w.literal && strings.ContainsAny(w.value, " \t\n;&|") {
			v.read(w.value, []syntax.LangVariant{syntax.LangPOSIX, syntax.LangBash})
		}
	}
	if words[0].value == "eval" {
		texts := make([]string, len(rest))
		for i, w := range rest {
			texts[i] = w.value
		}
		v.read(strings.Join(texts, " "), []syntax.LangVariant{syntax.LangPOSIX, syntax.LangBash})
	}
}

// number reports whether a word is a duration or a priority.
func number(text string) bool { return strings.Trim(text, "0123456789.smhd") == "" }

// found adds the commands that find runs.
func (v *visit) found(words []word) {
	for i, w := range words {
		if !slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, w.value) {
			continue
		}
		run := words[i+1:]
		if end := slices.IndexFunc(run, func(w word) bool { return w.value == ";" || w.value == "+" }); end >= 0 {
			run = run[:end]
		}
		v.command(run)
	}
}

// redirect adds a file that is read or written. A duplicate of a descriptor,
// text in the script, and /dev/null are no files.
func (v *visit) redirect(r *syntax.Redirect) {
	if r.Word == nil || r.Op == syntax.Hdoc || r.Op == syntax.DashHdoc || r.Op == syntax.WordHdoc {
		return
	}
	w := v.word(r.Word)
	if w.literal && w.value == "/dev/null" {
		return
	}
	if (r.Op == syntax.DplOut || r.Op == syntax.DplIn) && w.literal && strings.Trim(w.value, "0123456789-") == "" {
		return
	}
	if w.literal && strings.HasPrefix(w.value, "/") && !slices.Contains(v.script.paths, w.value) {
		v.script.paths = append(v.script.paths, w.value)
	}
	v.exactly(r.Op.String() + " " + w.text)
}

// word reads a word. Quotes that change nothing are left out of its text, so
// that a rule sees the same text however the word is quoted.
func (v *visit) word(w *syntax.Word) word {
	value, quoted, ok := v.value(w.Parts)
	if !ok {
		return word{text: v.source(w)}
	}
	if !quoted {
		return word{value, value, true}
	}
	text, err := syntax.Quote(value, v.variant)
	if err != nil {
		return word{text: v.source(w)}
	}
	return word{text, value, true}
}

// value returns what literal parts stand for, and whether any of it is quoted.
func (v *visit) value(parts []syntax.WordPart) (value string, quoted, ok bool) {
	var b strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			text, escaped := unescape(part.Value, func(byte) bool { return true })
			b.WriteString(text)
			quoted = quoted || escaped
		case *syntax.SglQuoted:
			if part.Dollar {
				return "", false, false
			}
			b.WriteString(part.Value)
			quoted = true
		case *syntax.DblQuoted:
			text, ok := double(part)
			if !ok {
				return "", false, false
			}
			b.WriteString(text)
			quoted = true
		default:
			return "", false, false
		}
	}
	return b.String(), quoted, true
}

// double returns what literal text in double quotes stands for.
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

// reusablePrefix returns the words of a command that say what it does: as many
// as the table gives for the longest prefix that is in it, and else the first.
func reusablePrefix(words []string) []string {
	for n := min(len(words), 3); n > 0; n-- {
		if arity, ok := arities[strings.Join(words[:n], " ")]; ok {
			return words[:min(arity, len(words))]
		}
	}
	return words[:min(1, len(words))]
}

// arities are how many words say what a command does, by its first words.
var arities = map[string]int{
	"apt": 2, "apt-get": 2, "aws": 3, "az": 3, "brew": 2, "bun": 2, "bun run": 3, "bundle": 2, "bundle exec": 3, "cargo": 2, "cargo run": 2,
	"composer": 2, "conda": 2, "deno": 2, "deno task": 3, "docker": 2, "docker builder": 3, "docker compose": 3, "docker container": 3,
	"docker image": 3, "docker network": 3, "docker volume": 3, "dotnet": 2, "flyctl": 2, "gcloud": 3, "gh": 3, "git": 2, "git bisect": 3,
	"git config": 3, "git notes": 3, "git remote": 3, "git stash": 3, "git submodule": 3, "git worktree": 3, "go": 2, "go mod": 3, "go tool": 3,
	"go work": 3, "gradle": 2, "helm": 2, "journalctl": 1, "kubectl": 2, "kubectl config": 3, "kubectl rollout": 3, "make": 2, "mvn": 2, "nix": 2,
	"npm": 2, "npm exec": 3, "npm run": 3, "npx": 2, "pip": 2, "pip3": 2, "pipenv": 2, "pnpm": 2, "pnpm exec": 3, "pnpm run": 3, "podman": 2,
	"podman container": 3, "poetry": 2, "poetry run": 3, "rustup": 2, "systemctl": 2, "terraform": 2, "terraform state": 3, "tmux": 2, "turbo": 2,
	"uv": 2, "uv run": 3, "vault": 2, "yarn": 2, "yarn run": 3,
}
