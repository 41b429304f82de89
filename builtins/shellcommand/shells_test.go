//go:build linux

package shellcommand

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A sandbox runs command lines in a real shell whose PATH holds programs that
// only record how they were run.
type sandbox struct {
	shell, dir, log string        // paths
	timeout         time.Duration // of one line
}

// programs are the names of the recording programs. The program no fails.
var programs = []string{"a", "b", "git", "rm", "touch", "cat", "no", "xx", "timeout", "env", "xargs", "sudo", "find", "nice"}

// recordingScript records its name, its arguments and the variables by which a
// command could have been changed. It writes all of it at once, because the programs of a
// pipeline record at the same time.
const recordingScript = `#!/bin/dash
d=$(printf 'run'; printf '\037%%s' "$0" "$@"; printf '\036'; printf 'env\037%%s\037%%s\036' "$HOME" "$GIT_PAGER"); printf '%%s' "$d" >> %s
[ "${0##*/}" != no ]
`

// newSandbox makes a sandbox for a shell. It skips the test if the shell or dash is
// not installed.
func newSandbox(t testing.TB, shell string, timeout time.Duration) *sandbox {
	t.Helper()
	program, err := exec.LookPath(shell)
	if err != nil {
		t.Skipf("there is no %s: %v", shell, err)
	}
	if _, err := os.Stat("/bin/dash"); err != nil {
		t.Skipf("the recording programs need dash: %v", err)
	}
	s := &sandbox{shell: program, dir: t.TempDir(), timeout: timeout}
	s.log = filepath.Join(s.dir, "log")
	for _, dir := range []string{"bin", "evil"} {
		if err := os.Mkdir(filepath.Join(s.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range programs {
			if err := os.WriteFile(filepath.Join(s.dir, dir, name), fmt.Appendf(nil, recordingScript, s.log), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// A effect is a program that ran, or a file that appeared.
type effect struct {
	program string // with its directory, below the sandbox
	args    []string
	env     string // the variables, where they changed
	file    string
}

// run runs a line in the shell and returns its effects. It reports false if the line
// or a command that it left in the background was ended by the sandbox's timeout: its
// last record can be incomplete then.
func (s *sandbox) run(t testing.TB, line string) ([]effect, bool) {
	t.Helper()
	work := filepath.Join(s.dir, "work")
	if err := errors.Join(os.RemoveAll(work), os.RemoveAll(s.log), os.Mkdir(work, 0o755), os.WriteFile(filepath.Join(work, "f"), []byte("data\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.shell, "-c", Argument(line))
	cmd.Dir, cmd.Env = work, []string{"PATH=" + filepath.Join(s.dir, "bin"), "HOME=/home", "GIT_PAGER=pager"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 100 * time.Millisecond
	_ = cmd.Run() // the exit status does not matter
	if cmd.Process != nil {
		for syscall.Kill(-cmd.Process.Pid, 0) == nil && ctx.Err() == nil { // commands in the background
			time.Sleep(time.Millisecond)
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	return s.effects(t, work), ctx.Err() == nil
}

func (s *sandbox) effects(t testing.TB, work string) []effect {
	t.Helper()
	var deeds []effect
	data, err := os.ReadFile(s.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for record := range bytes.SplitSeq(data, []byte{'\036'}) {
		fields := strings.Split(string(record), "\037")
		switch {
		case fields[0] == "run" && len(fields) > 1:
			program, err := filepath.Rel(s.dir, fields[1])
			if err != nil {
				program = fields[1]
			}
			deeds = append(deeds, effect{program: program, args: fields[2:]})
		case fields[0] == "env" && len(fields) == 3 && (fields[1] != "/home" || fields[2] != "pager"):
			deeds = append(deeds, effect{env: fields[1] + " " + fields[2]})
		}
	}
	entries, err := os.ReadDir(work)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() != "f" || info.Size() != 5 {
			deeds = append(deeds, effect{file: e.Name()})
		}
	}
	return deeds
}

// uncovered returns the deeds of a line that no resource of it covers.
func (s *sandbox) uncovered(t testing.TB, line, shell string) []effect {
	t.Helper()
	if strings.ContainsRune(line, 0) {
		return nil // no shell is given one
	}
	read := Analyze(line, shell, "PATH=", "HOME=", "GIT_PAGER=")
	if slices.Contains(read.Resources, shell+" -c "+strings.TrimSpace(line)) {
		return nil // unread: the line is asked about as a whole
	}
	deeds, done := s.run(t, line)
	if !done {
		return nil
	}
	return slices.DeleteFunc(deeds, func(d effect) bool { return slices.ContainsFunc(read.Resources, d.coveredBy) })
}

// coveredBy reports whether a resource shows a deed.
func (d effect) coveredBy(resource string) bool {
	switch {
	case d.file != "":
		return strings.HasPrefix(resource, ">") || strings.HasPrefix(resource, "<>") || strings.HasPrefix(resource, "&>") || strings.HasPrefix(resource, "<&")
	case d.env != "":
		return strings.Contains(resource, "HOME") || strings.Contains(resource, "GIT_PAGER")
	}
	dir, name := filepath.Split(d.program)
	if dir == "evil/" {
		return strings.Contains(resource, "evil") || strings.Contains(resource, "PATH") || strings.HasPrefix(resource, "hash ")
	}
	first, rest, _ := strings.Cut(resource, " ")
	if strings.ContainsAny(first, "$`*?[{~(") {
		return true // the resource shows that its program is not certain
	}
	if baseName(strings.Trim(first, "'\"")) != name {
		return false
	}
	if strings.ContainsAny(rest, "$`*?[{~(<\"") {
		return true
	}
	words := make([]string, len(d.args))
	for i, arg := range d.args {
		words[i] = quote(arg)
	}
	return strings.ReplaceAll(rest, "'", "") == strings.ReplaceAll(strings.Join(words, " "), "'", "")
}

// tokens are the parts of the lines that are run. They name no file outside
// the working directory, and no program but the recording ones.
var tokens = []string{
	"a", "b", "git", "rm", "touch", "cat", "no", "xx", "git log", "rm x", "a b", " ", " ", " ", " ", "\n", "\n", ";", "; ", "&&", "||", "|", "|&", "&", "&>", "!", "! ",
	"(", ")", "((", "))", "{ ", "; }", "{", "}", "$(", "$((", "$[", "]", "`", "`", "$", "\"", "\"", "'", "'", "\\", "\\\n", "\\\r\n", "\r", "\r\n", "\t", "\v", "\f", "\x01", "\x7f", "\x85", "\u00a0", "\u2028", "\ufeff",
	"#", " #", "<<E\n", "<<-E\n", "<<'E'\n", "<<\"E\"\n", "<<\\E\n", "<<E ", "\nE\n", "\n\tE\n", "\nE", "E", "<<<", "<(", ">(", "< f", "> g", ">> g", ">| g", "<> g", ">&2", ">&", "2>", "2>&1", "&>> g", "{x}> g", "<&", "-",
	"if ", "; then ", "; else ", "; fi", "while ", "until ", "; do ", "; done", "for x in a b", "for HOME in /e", "for PATH in ../evil", "for x", "case a in a) ", "case ", " in ", "a) ", "*) ", ";; ", ";& ", ";;& ", "esac", "select x in a",
	"function ", "a() ", "rm()", "() ", "$'", "$\"", "\\'", "\\\"", "$x", "${x}", "${x:=", "${HOME:=", "${x:-", "${x#", "${x%%", "${x/", "${x@P}", "${!x}", "${#x}", "${x:1}", "$((1+2))", "$((HOME=5))", "$((x))", "${x[", "x=1", "x=rm", "HOME=/e", "PATH=../evil", "GIT_PAGER=e", "x=(", "x[0]=",
	"[[ ", " ]]", "[ ", " ]", " -eq ", " -v ", "test ", "{a,b}", "{rm,x}", "*", "?", "~", "[a]", "@(a|b)", "=", "eval ", "exec ", "command ", "builtin ", "env ", "timeout 5 ", "nice ", "sudo ", "xargs ", "find ", "-exec ", "trap ", " 0", "alias a=rm", "alias a=", "set -- rm", "set -a", "$1", "$@", "\"$@\"",
	"export ", "readonly ", "local ", "declare ", "read ", "read HOME", "unset ", "printf ", "printf -v HOME e", "echo ", "echo rm x", "true", "false", ":", ": ", "time ", "coproc ", "let HOME=5", "shopt -s expand_aliases", "hash -p ../evil/git git", "sh -c ", "$IFS", "${IFS}", "é", "ÁÂÃÄÅÆÇÈ", "Â", "Ä", "È", "ひ", "\xff", "%", "^", "!!", ",", "..",
}

// composeLine makes a line of the tokens that some bytes choose.
func composeLine(data []byte) string {
	var b strings.Builder
	for len(data) > 1 && b.Len() < 400 {
		b.WriteString(tokens[(int(data[0])<<8|int(data[1]))%len(tokens)])
		data = data[2:]
	}
	return b.String()
}

// shellLines are lines that a shell and a parser may read differently.
var shellLines = []string{
	"git --version\r#; touch pwned", "git log \\\r\ntouch pwned", "cat <<E\r\n$(touch x)\r\nE\r\ntouch y", "cat <<E\r\nx\nE\ntouch y\nE\r\n", "git log\v; touch x", "git\u00a0log; touch x",
	"for HOME in /e; do git log; done", "for PATH in ../evil; do git log; done", "echo $((HOME=5)); git log", "echo ${HOME:=5}; git log", "unset HOME; echo ${HOME:=5}; git log",
	"[[ x -eq 'a[$(touch x)]' ]]", "[[ 'HOME=5' -eq 1 ]]; git log", "((HOME=5)); git log", "((x))", "let HOME=5; git log", "echo $[HOME=5]; git log", "for x in 'a[$(touch x)]'; do echo $((x)); done",
	"for x in 'a[$(touch x)]'; do [[ $x -eq 1 ]]; done", "for ((HOME=5;HOME<6;HOME++)); do git log; done", "select HOME in /e; do git log; done <f", "read HOME <f; git log", "printf -v HOME e; git log", "printf -v 'a[$(touch x)]' e",
	"test -v 'a[$(touch x)]'", "[ -v 'a[$(touch x)]' ]", "unset 'a[$(touch x)]'", "declare 'a[$(touch x)]=1'", "read 'a[$(touch x)]' <f", "export HOME=/e; git log", "export PATH=../evil; git log", "readonly PATH=../evil; git log", "HOME=/e git log",
	"set -a; GIT_PAGER=e; git log", "set -k; git log GIT_PAGER=e", "hash -p ../evil/git git; git log", "alias git=touch\ngit x", "shopt -s expand_aliases\nalias git=touch\ngit x", "git() { touch x; }; git log", "function git { touch x; }; git log",
	"echo $'a\\'; touch x #'", "echo $\"a`touch x`\"", "{touch,x}", "$(echo touch) x", "`echo touch` x", "\\touch x", "t'ou'ch x", "echo `echo \\`touch x\\``", "echo \"`touch x`\"", "echo \"${y:-`touch x`}\"", "echo ${y:-\"$(touch x)\"}", "echo ${y:-'$(touch x)'}", "echo \"${y:-'$(touch x)'}\"",
	"cat <<E\n`touch x`\nE", "cat <<'E'\n`touch x`\nE", "cat <<\\E\n$(touch x)\nE", "cat <<-E\n\t$(touch x)\n\tE\ntouch y", "cat <<E\n\\$(touch x)\nE", "cat <<E\n\\\\$(touch x)\nE", "cat <<E\na\\\nE\ntouch x\nE", "cat <<E E\n$(touch x)\nE\n", "cat <<E; touch y\n$(touch x)\nE", "cat <<\"E F\"\n$(touch x)\nE F\ntouch y",
	"cat <<$(touch x)\n$(touch x)\n", "cat <<''\na\n\ntouch x\n", "cat << E && touch y\na\nE\ntouch z", "$(cat <<E\ntouch x\nE\n)", "git log # \\\ntouch x", "git log #\ntouch x", "git log 'a\n' touch x; touch y", "echo \\\ntouch x", "git l\\\nog; to\\\nuch x",
	"trap 'touch x' 0", "trap 'touch x' EXIT", "eval touch x", "eval 'git log;' touch x", "command touch x", "exec touch x", "builtin eval touch x", "echo <(touch x)", "cat < <(touch x)", "coproc touch x", "git log |& touch x", "git log &> g", "git log >& g", "git log {x}> g", "git log <> g",
	"case $(touch x) in *) git log;; esac", "case a in $(touch x)) b;; esac", "if touch x; then b; fi", "a=$(touch x)", "x[$(touch x)]=1", "x=([$(touch x)]=1)", "echo ${x[$(touch x)]}", "echo ${#x[$(touch x)]}", "echo ${f:$(touch x)}", "echo ${f/a/$(touch x)}", "echo ${f@P}", "x='$(touch x)'; echo ${x@P}",
	"echo $(( $(touch x) 1 ))", "echo $((`touch x`1))", "echo $((touch x) )", "$((touch x); (touch y))", "((touch x); touch y)", "( (touch x) )", "! touch x", "time touch x", "time -p touch x", "{ touch x; }", "touch() { a; }; touch x", "set -- touch; $1 x", "set -- touch x; \"$@\"", "\"touch\" x", "./../bin/touch x", "git log;touch x", "git log;#\ntouch x", "git log\\;touch x", "git log \\# ; touch x",
	"echo a#; touch x", "echo 'a'#; touch x", "echo $#; touch x", "echo ${#}; touch x", "echo \"#\"; touch x", "echo $(#)\ntouch x\n)", "echo $(case a in a) touch x;; esac)", "echo \"$(echo \")\"; touch x)\"", "echo `#`; touch x", "echo `touch x", "echo ~$(touch x)", "echo {a,$(touch x)}", "git log 2>&1; touch x", "git log 2>&1 > g", "> g", ">g git log", "2>g git log", "<f git log", "git log <&0 >&-", "git log >&2-", "a b <&-exec", "a b >&-touch x", "a b >&1-2", "a b <&-",
	"getopts ab HOME -a; git log", "mapfile -C 'touch x' -c 1 y <f", "mapfile HOME <f; git log", "readarray -t HOME <f; git log", "compgen -C 'touch x' a", "compgen -W '$(touch x)'", "complete -C 'touch x' a", "enable -n echo", "wait -n -p HOME; git log", "BASH_ENV=f a", "PS4='$(touch x)'; set -x; git log", "IFS=o; x=toouch; $x", "declare -n y=HOME; y=e; git log", "declare -i y; y='a[$(touch x)]'", "local HOME=/e", "typeset HOME=/e; git log",
	"-x", "--version", "+x", "- ", "a\x00b", "\xffgit log; touch x", "git log \xff; touch x", "a\x81; touch x", "a \u202e; touch x", "\ufeffgit log", "if a; then b\ntouch x\nfi", "a && \\\n touch x", "a |\n touch x", "a &&\n#\n touch x", "for x in a; { touch x; }", "for x do touch x; done", "for x in $(touch x); do a; done", "while touch x; no; do a; done",
	"sh -c 'touch x'", "env touch x", "xargs -I {} touch", "timeout -s KILL 5 touch x", "find f -exec touch {} \\;", "sudo -u root touch x", "nice -n 5 touch x", "a=b; touch x", "[ a = a ] && touch x", "test a; touch x", "a $(b $(touch x))", "a \"$(b \"$(touch x)\")\"", "a ${x:-${y:-$(touch x)}}", "cat <<E <<F\na\nE\n$(touch x)\nF\n", "cat <<E | touch x\na\nE\n",
}

func testShell(t *testing.T, name string) {
	t.Parallel()
	s := newSandbox(t, name, time.Minute) // no line runs for long, so that a busy machine has time
	shell := Dialect(s.shell)
	lines := slices.Clone(shellLines)
	random := rand.New(rand.NewPCG(1, 2))
	n := 60
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		n = 20_000
	}
	for range n {
		data := make([]byte, 2*(1+random.IntN(14)))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		lines = append(lines, composeLine(data))
	}
	for _, line := range lines {
		if deeds := s.uncovered(t, line, shell); len(deeds) > 0 {
			t.Errorf("%s runs %q, which does %+v; it is asked about as %q", name, line, deeds, Analyze(line, shell).Resources)
		}
	}
}

func TestShellRunsNothingThatWasNotAskedAbout(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sh", "bash"} {
		t.Run(name, func(t *testing.T) { testShell(t, name) })
	}
}

func FuzzShellRunsNothingThatWasNotAskedAbout(f *testing.F) {
	for i := range tokens {
		f.Add(true, []byte{byte(i >> 8), byte(i), 0, 15, byte(i >> 8), byte(i)})
	}
	shells := map[bool]string{true: "sh", false: "bash"}
	sandboxes := map[bool]*sandbox{true: newSandbox(f, "sh", time.Second), false: newSandbox(f, "bash", time.Second)} // loops without an end are ended
	f.Fuzz(func(t *testing.T, posix bool, data []byte) {
		line := composeLine(data)
		s := sandboxes[posix]
		shell := Dialect(s.shell)
		if deeds := s.uncovered(t, line, shell); len(deeds) > 0 {
			t.Errorf("%s runs %q, which does %+v; it is asked about as %q", shells[posix], line, deeds, Analyze(line, shell).Resources)
		}
	})
}
