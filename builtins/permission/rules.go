package permission

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
)

// ErrBadRule says that a line is not a valid rule.
var ErrBadRule = errors.New("not a rule")

// maxRule is the maximum length of a line in bytes.
const maxRule = 64 << 10

// ParseRules reads rules in the form that the package documents. Each rule
// has the Source "name:line". It returns an ErrBadRule for each line that is
// not a rule, all of them joined, and then no rules.
func ParseRules(name string, r io.Reader) (domain.Rules, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // expand refuses the rules that need it
	}
	return parser{name, home}.parse(r)
}

// A parser reads the rules of one file.
type parser struct {
	name string // the file, for Source and error texts
	home string // the home directory; empty: not known
}

// parse reads all lines and joins the errors of invalid ones.
func (p parser) parse(r io.Reader) (domain.Rules, error) {
	rules := domain.Rules{}
	var errs []error
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxRule)
	n := 0
	for lines.Scan() {
		n++
		line := lines.Bytes()
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		rule, ok, err := p.line(string(line))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w: %w", p.name, n, ErrBadRule, err))
		} else if ok {
			rule.Source = fmt.Sprintf("%s:%d", p.name, n)
			rules = append(rules, rule)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		errs = append(errs, fmt.Errorf("%s:%d: %w: the line is longer than %d bytes: split it", p.name, n+1, ErrBadRule, maxRule))
	case err != nil:
		errs = append(errs, fmt.Errorf("read rules %s: %w", p.name, err))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return rules, nil
}

// ruleSyntax ends the error text of an invalid rule.
const ruleSyntax = "write EFFECT ACTION RESOURCE, as in: deny bash rm *"

// line parses one line. It returns true and the rule for a valid rule, false and an
// error for an invalid rule, and false without an error for a blank line or a comment.
func (p parser) line(line string) (domain.Rule, bool, error) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return domain.Rule{}, false, nil
	}
	if !utf8.ValidString(line) || strings.ContainsRune(line, 0) {
		return domain.Rule{}, false, errors.New("it is not UTF-8 text: save the file as UTF-8")
	}
	word, rest := cutWord(line)
	var effect domain.Effect
	if err := effect.UnmarshalText([]byte(word)); err != nil || effect == 0 {
		return domain.Rule{}, false, fmt.Errorf("effect %q is not allow, ask or deny: %s", word, ruleSyntax)
	}
	action, resource := cutWord(rest)
	if action == "" {
		return domain.Rule{}, false, fmt.Errorf("there is no action: %s", ruleSyntax)
	}
	if resource == "" {
		return domain.Rule{}, false, fmt.Errorf("there is no resource: %s; * is any resource", ruleSyntax)
	}
	resource, err := p.expand(resource)
	return domain.Rule{Action: action, Resource: resource, Effect: effect}, err == nil, err
}

// cutWord splits text after its first word.
func cutWord(text string) (word, rest string) {
	at := strings.IndexAny(text, " \t")
	if at < 0 {
		return text, ""
	}
	return text[:at], strings.TrimLeft(text[at:], " \t")
}

// expand returns resource with the home directory in place of ~ or $HOME at its
// beginning.
func (p parser) expand(resource string) (string, error) {
	for _, mark := range []string{"~", "$HOME"} {
		rest, ok := strings.CutPrefix(resource, mark)
		if !ok || rest != "" && rest[0] != '/' {
			continue
		}
		if p.home == "" {
			return "", fmt.Errorf("resource %q needs a home directory and there is none: set HOME or write the path", resource)
		}
		return strings.TrimSuffix(p.home, "/") + rest, nil
	}
	return resource, nil
}
