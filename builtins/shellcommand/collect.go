package shellcommand

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A collector collects the commands of a script.
type collector struct {
	script      Analysis
	seen        map[string]bool // the resources
	environment map[string]bool // names of variables
	opaque      bool            // a command in it is another than its words say
	unread      bool            // the shell may run what the parser does not see
	depth       int             // of scripts and commands within commands
	size        int             // of the resources, in bytes
}

func newCollector(environment []string) *collector {
	a := &collector{seen: map[string]bool{}, environment: map[string]bool{}}
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
func (a *collector) enter() bool {
	if a.depth == maxDepth {
		a.unread = true
		return false
	}
	a.depth++
	return true
}

// read adds the commands of a text. Variants that disagree leave it unread.
func (a *collector) read(line string, in []syntax.LangVariant) {
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
		one := &collector{seen: map[string]bool{}, environment: a.environment, depth: a.depth}
		syntax.Walk(file, (&visit{one, variant}).node)
		if i > 0 && !slices.Equal(found, one.script.Resources) {
			a.unread = true
		}
		found = one.script.Resources
		a.merge(one)
	}
}

func (a *collector) merge(b *collector) {
	for _, resource := range b.script.Resources {
		if !a.seen[resource] {
			a.size += len(resource)
			a.seen[resource] = true
			a.script.Resources = append(a.script.Resources, resource)
		}
		a.spell(resource, b.script.Spellings[resource]...)
	}
	for _, save := range b.script.SavePatterns {
		if !slices.Contains(a.script.SavePatterns, save) {
			a.script.SavePatterns = append(a.script.SavePatterns, save)
		}
	}
	for _, path := range b.script.Paths {
		a.path(path)
	}
	a.opaque, a.unread = a.opaque || b.opaque, a.unread || b.unread
}

func (a *collector) add(resource, save string) {
	if resource == "" || a.seen[resource] {
		return
	}
	a.size += len(resource)
	a.seen[resource] = true
	a.script.Resources = append(a.script.Resources, resource)
	if !slices.Contains(a.script.SavePatterns, save) {
		a.script.SavePatterns = append(a.script.SavePatterns, save)
	}
}

// exactly adds a resource that is saved as it is.
func (a *collector) exactly(resource string) { a.add(resource, LiteralPattern(resource)) }

// spell adds further spellings of a resource.
func (a *collector) spell(resource string, texts ...string) {
	for _, text := range texts {
		if text == "" || text == resource || slices.Contains(a.script.Spellings[resource], text) {
			continue
		}
		if a.script.Spellings == nil {
			a.script.Spellings = map[string][]string{}
		}
		a.script.Spellings[resource] = append(a.script.Spellings[resource], text)
	}
}

// path adds an absolute path that the script names.
func (a *collector) path(value string) {
	if strings.HasPrefix(value, "/") && value != "/dev/null" && !slices.Contains(a.script.Paths, value) {
		a.script.Paths = append(a.script.Paths, value)
	}
}

// private reports whether a variable belongs to the script alone: no program inherits it and
// the shell gives it no meaning. These are variables in lower case that the environment does
// not hold.
func (a *collector) private(name string) bool {
	return name != "" && !a.environment[name] && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == "" && name[0] >= 'a'
}
