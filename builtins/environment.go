package builtins

import (
	"slices"
	"strings"
)

// Inherited are the environment variables that a command gets from this
// process: who and where the user is, the language and the terminal, and where
// toolchains keep their programs and caches. Credentials, variables that make
// programs run others, and the ledger's own variables are not among them. A
// name that ends in * stands for every name with that beginning.
var Inherited = strings.Fields("HOME LOGNAME PATH SHELL USER " +
	"COLORTERM LANG LANGUAGE LC_* NO_COLOR TERM TZ " +
	"TEMP TMP TMPDIR XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR XDG_STATE_HOME " +
	"CARGO_HOME CGO_ENABLED GOARCH GOBIN GOCACHE GOFLAGS GOMODCACHE GOOS GOPATH GOROOT GOTOOLCHAIN JAVA_HOME RUSTUP_HOME VIRTUAL_ENV")

// Environment returns the variables of an environment, given as KEY=VALUE,
// that a command gets: the Inherited ones and those of the given names.
func Environment(environ []string, names ...string) []string {
	kept := []string{}
	for _, variable := range environ {
		if name, _, ok := strings.Cut(variable, "="); ok && (inherited(name) || slices.Contains(names, name)) {
			kept = append(kept, variable)
		}
	}
	return kept
}

func inherited(name string) bool {
	return slices.ContainsFunc(Inherited, func(pattern string) bool {
		beginning, open := strings.CutSuffix(pattern, "*")
		return name == pattern || open && strings.HasPrefix(name, beginning)
	})
}
