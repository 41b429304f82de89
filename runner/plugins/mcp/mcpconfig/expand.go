package mcpconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/builtins"
)

// variable matches ${NAME} and ${NAME:-default}.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}`)

// An expander replaces variables in the texts of one entry.
type expander struct {
	environ []string
	// used are the names of the variables that were replaced.
	used []string
	// secrets are the values of the replaced variables.
	secrets []string
}

// lookup returns the value of a variable. The last definition of a name counts.
func (e *expander) lookup(name string) (string, bool) {
	for _, v := range slices.Backward(e.environ) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// expand replaces each variable of a text. A variable that is not set, or is empty, takes
// its default. expand returns an error that names a variable without a value.
func (e *expander) expand(text string) (string, error) {
	var missing string
	expanded := variable.ReplaceAllStringFunc(text, func(match string) string {
		parts := variable.FindStringSubmatch(match)
		value, set := e.lookup(parts[1])
		hasDefault := strings.Contains(match, ":-")
		if !slices.Contains(e.used, parts[1]) {
			e.used = append(e.used, parts[1])
		}
		switch {
		case set && (value != "" || !hasDefault):
			if !isPublic(parts[1]) {
				e.secrets = append(e.secrets, value)
			}
			return value
		case hasDefault:
			return parts[2]
		}
		if missing == "" {
			missing = parts[1]
		}
		return ""
	})
	if missing != "" {
		return "", fmt.Errorf("the variable %s is not set: set it, or write ${%s:-default}", missing, missing)
	}
	return expanded, nil
}

// isPublic reports whether every command inherits a variable, so that its value is no
// secret.
func isPublic(name string) bool {
	return len(builtins.FilterEnvironment([]string{name + "="})) > 0
}
