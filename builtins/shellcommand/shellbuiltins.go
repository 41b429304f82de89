package shellcommand

import (
	"regexp"
	"slices"
	"strings"
)

// variableSetters are the builtins that set variables by name, with the number of words
// before the names.
var variableSetters = map[string]int{"read": 0, "readarray": 0, "mapfile": 0, "getopts": 1, "unset": 0}

// declarationBuiltins are the builtins whose words show which variables they set.
var declarationBuiltins = strings.Fields("declare export local readonly typeset")

// declaration matches the name of a declared variable.
var declaration = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(=|$)`)

// parsingBuiltins are the builtins that change how the shell parses later commands.
var parsingBuiltins = strings.Fields("bind compgen complete compopt enable fc history let shopt unalias")

// changesShell reports whether a command is a builtin that changes the shell. It marks
// the line uncertain if the change can affect later commands.
func (v *walker) changesShell(program string, words []shellWord) bool {
	rest := words[1:]
	switch {
	case slices.Contains(parsingBuiltins, program):
		v.uncertain = true
		return true
	case slices.Contains(declarationBuiltins, program):
		v.requireCertain(!slices.ContainsFunc(rest, func(w shellWord) bool { return !declaration.MatchString(w.text) }))
		return true
	case program == "set":
		v.requireCertain(!slices.ContainsFunc(rest, func(w shellWord) bool { return !w.literal }) && isHarmlessSet(rest))
		return true
	case program == "hash":
		v.requireCertain(!slices.ContainsFunc(rest, func(w shellWord) bool { return !w.plain() || strings.HasPrefix(w.value, "-") && w.value != "-r" }))
		return true
	case program == "printf" || program == "wait":
		v.requireCertain(len(rest) == 0 || rest[0].literal && !strings.HasPrefix(rest[0].value, "-"))
		return false
	case program == "test" || program == "[":
		v.requireCertain(!mayEvaluateSubscript(rest))
		return false
	}
	skip, ok := variableSetters[program]
	if !ok {
		return false
	}
	for i, w := range rest {
		name, _, _ := strings.Cut(w.value, "=")
		if i >= skip && !(w.plain() && (v.isPrivate(name) || i == 0 && (w.value == "-r" || w.value == "-t" && program != "read"))) {
			v.uncertain = true
		}
	}
	return true
}

// isHarmlessSet reports whether a set command changes only the positional parameters and error
// handling.
func isHarmlessSet(words []shellWord) bool {
	for i := 0; i < len(words); i++ {
		text := words[i].value
		switch {
		case text == "--" || text == "-" || text == "" || text[0] != '-' && text[0] != '+':
			return true
		case strings.Trim(text[1:], "eufxvC") == "":
		case strings.Trim(text[1:], "eufxvC") == "o" && i+1 < len(words):
			i++
			if !slices.Contains([]string{"errexit", "nounset", "noglob", "xtrace", "verbose", "noclobber", "pipefail"}, words[i].value) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// mayEvaluateSubscript reports whether a test command with these words may apply the
// operator -v or -R to a variable. Bash then evaluates the subscript in the variable's
// name, and runs the commands in the subscript. A word that is not literal may expand
// to such an operator. It is certain to be an operand if it is in double quotes and the
// next word is ], a comparison, or begins with a hyphen.
func mayEvaluateSubscript(words []shellWord) bool {
	for i, w := range words {
		if w.literal && (w.value == "-v" || w.value == "-R") {
			return true
		}
		if w.literal || i+1 == len(words) {
			continue
		}
		if next := words[i+1]; !strings.HasPrefix(w.text, `"`) || !next.literal || !(next.value == "]" || next.value == "=" || next.value == "!=" || next.value == "==" || strings.HasPrefix(next.value, "-")) {
			return true
		}
	}
	return false
}
