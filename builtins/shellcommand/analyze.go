package shellcommand

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

// An Analysis lists the commands and files of a command line, as permission rules see
// them.
type Analysis struct {
	Resources    []string            // commands and files to ask about; at least one
	Spellings    map[string][]string // further texts of a resource, for rules that ask or deny
	SavePatterns []string            // patterns that the answer "always" allows
	Paths        []string            // absolute paths among the literal words
}

// maxLineBytes is the longest command line that is parsed, in bytes. Linux passes
// no longer argument to a program.
const maxLineBytes = 128 << 10

// Analyze parses a command line as the shell would. shell is a result of [Dialect];
// environment holds the variables of the shell as KEY=VALUE. If the parser and the
// shell may read the line differently, the line is uncertain, and Analyze adds the
// resource "SHELL -c LINE". No pattern for a single command of the line matches that
// resource.
func Analyze(line, shell string, environment ...string) Analysis {
	a := newCollector(environment)
	if isAmbiguous(line) {
		a.uncertain = true
	}
	variants := languages(shell)
	if variants == nil {
		a.uncertain, variants = true, posixLanguages // its commands serve rules that deny
	}
	a.parseText(line, variants)
	whole := strings.TrimSpace(line)
	if a.indirect || a.uncertain || len(a.analysis.Resources) == 0 {
		a.addExact(whole)
	}
	if a.uncertain {
		unread := shell + " -c " + whole
		a.addExact(unread)
		a.addSpellings(unread, possibleCommands(line)...)
		a.analysis.SavePatterns = nil
		for _, resource := range a.analysis.Resources {
			a.analysis.SavePatterns = append(a.analysis.SavePatterns, LiteralPattern(resource))
		}
	}
	return a.analysis
}

// isAmbiguous reports whether shells, parsers and people can read a line differently: it
// is too long, not UTF-8, or holds control characters other than tab and line feed, or
// characters that a terminal does not show.
func isAmbiguous(line string) bool {
	if len(line) > maxLineBytes || !utf8.ValidString(line) {
		return true
	}
	if continuedComment.MatchString(line) || multibyteQuote.MatchString(line) {
		return true
	}
	return strings.ContainsFunc(line, func(r rune) bool {
		return r != '\n' && r != '\t' && !unicode.IsPrint(r)
	})
}

// continuedComment matches text that may be a comment which ends in a backslash. A shell
// ends the comment at the line end; the parser continues it on the next line.
//
// multibyteQuote matches a backslash or a backquote after a byte outside ASCII. In a
// locale such as Shift JIS a shell reads both bytes as one character, and no quote.
var (
	continuedComment = regexp.MustCompile(`#[^\n]*\\\n`)
	multibyteQuote   = regexp.MustCompile("[^\\x00-\\x7f][\\\\`]")
)

// maxSegments is the maximum number of texts that possibleCommands returns for one line.
const maxSegments = 4096

// maxResourceBytes is the maximum size of all resources of a line together, in bytes.
// Without this limit, the resources of nested commands would take memory quadratic in
// the length of the line.
const maxResourceBytes = 1 << 20

// possibleCommands returns every part of a line that may be a command, for rules that
// ask or deny. A part begins after a separator. possibleCommands removes the keywords
// and assignments at its beginning, and reduces its program to the base name. It splits
// the line once with its quotes and once without.
func possibleCommands(line string) []string {
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
			fields[0] = baseName(fields[0])
			texts = append(texts, strings.Join(fields, " "))
		}
	}
	return texts
}

// keywords are the reserved words before a command.
var keywords = strings.Fields("! do elif else if then time until while")

// baseName returns the text after the last slash.
func baseName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// Dialect returns the shell name to pass to [Analyze] for the program at path. It
// follows symbolic links. The result is bash if path and the program that it leads to
// are both named bash, and sh for any other shell of the POSIX family. For any other
// program it is the name of the program; Analyze then treats every line as uncertain.
func Dialect(path string) string {
	name := filepath.Base(path)
	if found, err := exec.LookPath(path); err == nil {
		path = found
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	program := filepath.Base(path)
	if program == "bash" && name == "bash" {
		return "bash"
	}
	if languages(program) != nil {
		return "sh"
	}
	return program
}

// languages returns the parser languages of a shell, or nil for an unknown one. The
// program sh can be one of several shells, so a line must mean the same in both
// languages.
func languages(shell string) []syntax.LangVariant {
	switch shell {
	case "bash":
		return []syntax.LangVariant{syntax.LangBash}
	case "sh", "dash", "ash", "busybox":
		return posixLanguages
	}
	return nil
}

var posixLanguages = []syntax.LangVariant{syntax.LangPOSIX, syntax.LangBash}

// Argument returns a line as the argument of -c. It puts a space before a line that the
// shell would read as an option.
func Argument(line string) string {
	if strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") {
		return " " + line
	}
	return line
}
