package shellcommand

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A collector collects the resources of one command line.
type collector struct {
	analysis    Analysis
	seen        map[string]bool // the resources so far
	environment map[string]bool // names of the variables that the shell inherits
	indirect    bool            // a command runs a command that its own words do not show
	uncertain   bool            // the shell may run a command that the parser does not see
	depth       int             // nesting of scripts and commands
	size        int             // of all resources, in bytes
}

func newCollector(environment []string) *collector {
	a := &collector{seen: map[string]bool{}, environment: map[string]bool{}}
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		a.environment[name] = true
	}
	return a
}

// maxDepth is the maximum nesting of scripts and commands within commands that is parsed.
const maxDepth = 8

// enterNested counts one level of nesting. It returns false and marks the line uncertain
// beyond maxDepth.
func (a *collector) enterNested() bool {
	if a.depth == maxDepth {
		a.uncertain = true
		return false
	}
	a.depth++
	return true
}

// parseText parses a text in each of the languages and adds its commands. It marks the
// line uncertain if the text is invalid in one language, or if two languages find
// different commands in it.
func (a *collector) parseText(line string, in []syntax.LangVariant) {
	if len(line) > maxLineBytes || !a.enterNested() {
		a.uncertain = true
		return
	}
	defer func() { a.depth-- }()
	var found []string
	for i, variant := range in {
		file, err := syntax.NewParser(syntax.Variant(variant)).Parse(strings.NewReader(line), "")
		if err != nil {
			a.uncertain = true
			continue
		}
		one := &collector{seen: map[string]bool{}, environment: a.environment, depth: a.depth}
		syntax.Walk(file, (&walker{one, variant}).visit)
		if i > 0 && !slices.Equal(found, one.analysis.Resources) {
			a.uncertain = true
		}
		found = one.analysis.Resources
		a.merge(one)
	}
}

// merge adds the resources, spellings, save patterns, paths and flags of b to a.
func (a *collector) merge(b *collector) {
	for _, resource := range b.analysis.Resources {
		if !a.seen[resource] {
			a.size += len(resource)
			a.seen[resource] = true
			a.analysis.Resources = append(a.analysis.Resources, resource)
		}
		a.addSpellings(resource, b.analysis.Spellings[resource]...)
	}
	for _, save := range b.analysis.SavePatterns {
		if !slices.Contains(a.analysis.SavePatterns, save) {
			a.analysis.SavePatterns = append(a.analysis.SavePatterns, save)
		}
	}
	for _, path := range b.analysis.Paths {
		a.addPath(path)
	}
	a.indirect, a.uncertain = a.indirect || b.indirect, a.uncertain || b.uncertain
}

// add adds a resource and its save pattern. It has no effect for a known resource.
func (a *collector) add(resource, save string) {
	if resource == "" || a.seen[resource] {
		return
	}
	a.size += len(resource)
	a.seen[resource] = true
	a.analysis.Resources = append(a.analysis.Resources, resource)
	if !slices.Contains(a.analysis.SavePatterns, save) {
		a.analysis.SavePatterns = append(a.analysis.SavePatterns, save)
	}
}

// addExact adds a resource whose save pattern matches only itself.
func (a *collector) addExact(resource string) { a.add(resource, LiteralPattern(resource)) }

// addSpellings adds further texts of a resource for rules that ask or deny.
func (a *collector) addSpellings(resource string, texts ...string) {
	for _, text := range texts {
		if text == "" || text == resource || slices.Contains(a.analysis.Spellings[resource], text) {
			continue
		}
		if a.analysis.Spellings == nil {
			a.analysis.Spellings = map[string][]string{}
		}
		a.analysis.Spellings[resource] = append(a.analysis.Spellings[resource], text)
	}
}

// addPath adds value to the paths of the analysis if it is an absolute path. It adds
// each path only once, and never adds /dev/null.
func (a *collector) addPath(value string) {
	if strings.HasPrefix(value, "/") && value != "/dev/null" && !slices.Contains(a.analysis.Paths, value) {
		a.analysis.Paths = append(a.analysis.Paths, value)
	}
}

// isPrivate reports whether a variable belongs to the script alone, so that no program
// inherits it and the shell gives it no meaning. Such a variable has a name in lower
// case and is not in the environment.
func (a *collector) isPrivate(name string) bool {
	return name != "" && !a.environment[name] && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == "" && name[0] >= 'a'
}
