package builtins

import (
	"slices"
	"strings"
)

// InheritedVariables lists the environment variables that a command gets from this
// process: the user, the language, the terminal, and the locations of toolchains. It
// lists no credentials, no variables that make programs run other programs, and no
// variables of the ledger. A name that ends in * matches every name with that prefix.
var InheritedVariables = strings.Fields("HOME LOGNAME PATH SHELL USER " +
	"COLORTERM LANG LANGUAGE LC_* NO_COLOR TERM TZ " +
	"TEMP TMP TMPDIR XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR XDG_STATE_HOME " +
	"CARGO_HOME CGO_ENABLED GOARCH GOBIN GOCACHE GOFLAGS GOMODCACHE GOOS GOPATH GOROOT GOTOOLCHAIN JAVA_HOME RUSTUP_HOME VIRTUAL_ENV")

// FilterEnvironment filters an environment, given as KEY=VALUE. It returns the
// variables that InheritedVariables or names lists, in the same order.
func FilterEnvironment(environ []string, names ...string) []string {
	kept := []string{}
	for _, variable := range environ {
		if name, _, ok := strings.Cut(variable, "="); ok && (isInherited(name) || slices.Contains(names, name)) {
			kept = append(kept, variable)
		}
	}
	return kept
}

// isInherited reports whether InheritedVariables includes a variable.
func isInherited(name string) bool {
	return slices.ContainsFunc(InheritedVariables, func(pattern string) bool {
		beginning, open := strings.CutSuffix(pattern, "*")
		return name == pattern || open && strings.HasPrefix(name, beginning)
	})
}
