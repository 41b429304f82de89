package shellcommand

import (
	"slices"
	"strings"
)

// A wrapperSpec describes a program that runs the command in its arguments, such as env or
// sudo.
type wrapperSpec struct {
	flags    string // short options without an argument
	takes    string // short options with one
	long     string // long options, separated by spaces; one that takes an argument ends in "="
	operands int    // words before the command
	assigns  bool   // NAME=VALUE may precede the command
	needed   bool   // without a command it runs something else, such as a shell
}

// runners are the programs whose options Analyze knows. An option that is not
// here leaves a script unread.
var runners = map[string]wrapperSpec{
	"builtin": {},
	"busybox": {}, "toybox": {},
	"chroot":  {long: "userspec= groups= skip-chdir", operands: 1, needed: true},
	"chrt":    {flags: "abfiorRdv", takes: "TPD", long: "all-tasks batch fifo idle other rr reset-on-fork", operands: 1},
	"command": {flags: "p"},
	"doas":    {flags: "nL", takes: "Cu", needed: true},
	"env":     {flags: "i0v", takes: "uC", long: "ignore-environment null debug unset= chdir=", assigns: true},
	"exec":    {flags: "cl", takes: "a"},
	"flock":   {flags: "esxunoFv", takes: "wE", long: "shared exclusive unlock nonblock nb no-fork close verbose wait= timeout= conflict-exit-code=", operands: 1},
	"ionice":  {flags: "t", takes: "cn", long: "ignore class= classdata="},
	"nice":    {flags: "0123456789", takes: "n", long: "adjustment="},
	"nohup":   {},
	"nsenter": {flags: "aF", takes: "t", long: "all no-fork target=", needed: true},
	"setsid":  {flags: "cfw", long: "ctty fork wait"},
	"stdbuf":  {takes: "ioe", long: "input= output= error="},
	"strace":  {flags: "cCdDfFhiknNqrtTvVwxyYzZ", takes: "abeEIoOpPsSuUX"},
	"sudo":    {flags: "AbEHknPSN", takes: "CDghpRrTtuU", long: "user= group= non-interactive preserve-env askpass background set-home stdin", assigns: true, needed: true},
	"taskset": {flags: "ac", long: "all-tasks cpu-list", operands: 1},
	"time":    {flags: "apvq", takes: "of", long: "append portability verbose quiet output= format="},
	"timeout": {flags: "vfp", takes: "ks", long: "foreground preserve-status verbose kill-after= signal=", operands: 1},
	"unshare": {flags: "muinpUCTfrc", long: "mount uts ipc net pid user cgroup time fork map-root-user map-current-user", needed: true},
	"watch":   {flags: "bcdegptwrC", takes: "nq", long: "beep color differences errexit chgexit no-title no-wrap precise interval= equexit=", needed: true},
	"xargs":   {flags: "0rtxpo", takes: "adEILnPs", long: "null no-run-if-empty verbose exit interactive open-tty arg-file= delimiter= max-lines= max-args= max-procs= max-chars= replace="},
}

// unknown are programs that run a command in a way that Analyze does not
// follow.
var unknown = strings.Fields("at batch bwrap catchsegv cgexec coproc dbus-run-session entr expect fakechroot fakeroot firejail gdb ltrace numactl parallel " +
	"perf pkexec prlimit proot runuser rlwrap script select setpriv ssh start-stop-daemon su systemd-run unbuffer valgrind xvfb-run")

// shells are programs that run a text.
var shells = strings.Fields("ash bash dash fish ksh ksh93 mksh rbash sh tcsh csh yash zsh")

// runs adds the commands that a program is known to run, and reports whether
// it is a program that runs others. Its own command is then whole.
func (v *visit) runs(program, whole string, words []shellWord) bool {
	rest := words[1:]
	switch {
	case slices.Contains(shells, program):
		v.require(variants(program) != nil)
		v.shell(whole, rest)
	case program == "eval":
		v.joined(whole, rest)
	case program == "trap":
		v.trap(whole, rest)
	case program == "alias":
		v.alias(rest)
	case program == "." || program == "source":
	case slices.Contains(unknown, program):
		v.lose(whole, rest)
	case program == "git":
		return v.git(whole, words)
	case program == "find":
		v.found(whole, words, "-exec", "-execdir", "-ok", "-okdir")
		return false
	case program == "fd" || program == "fdfind":
		v.found(whole, words, "-x", "-X", "--exec", "--exec-batch")
		return false
	default:
		r, known := runners[program]
		if !known {
			return false
		}
		v.runner(r, program, whole, words)
	}
	v.opaque = true
	return true
}

// lose leaves a script unread because of a command whose words it does not
// understand. Rules that ask or deny see every command that the words may be.
func (v *visit) lose(whole string, words []shellWord) {
	v.unread = true
	v.guess(whole, words)
}

// maxGuesses is how many words of a command may be the beginning of another.
const maxGuesses = 64

// guess adds a spelling for every command that begins at one of some words.
func (v *visit) guess(whole string, words []shellWord) {
	var fields []string
	for _, w := range words {
		if !w.literal {
			fields = append(fields, w.text)
			continue
		}
		v.spell(whole, segments(w.value)...)
		fields = append(fields, strings.Fields(w.value)...)
	}
	for i := range fields[:min(len(fields), maxGuesses)] {
		v.spell(whole, strings.Join(append([]string{base(fields[i])}, fields[i+1:]...), " "))
	}
}

// runner adds the command of a runner.
func (v *visit) runner(r wrapperSpec, program, whole string, words []shellWord) {
	rest, ok := r.command(words)
	switch {
	case !ok && program == "command" && len(words) > 1 && (words[1].value == "-v" || words[1].value == "-V"): // it prints
	case !ok || len(rest) == 0 && r.needed:
		v.lose(whole, words[1:])
	case len(rest) == 0:
	case program == "flock" && (rest[0].value == "-c" || rest[0].value == "--command"):
		v.joined(whole, rest[1:])
	case program == "watch":
		v.joined(whole, rest)
	case program == "xargs":
		v.fed(whole, rest)
		if rest[0].plain() && slices.ContainsFunc(words[1:len(words)-len(rest)], func(w shellWord) bool {
			name := strings.TrimPrefix(strings.TrimPrefix(w.value, "-I"), "--replace=")
			return name != "" && strings.Contains(rest[0].value, name)
		}) {
			v.lose(whole, rest)
		}
	default:
		v.command(rest, exactly)
	}
}

// fed adds a command that gets further words from a file or a search. Where it
// runs another command, these can say which.
func (v *visit) fed(whole string, words []shellWord) {
	if len(words) == 0 {
		return
	}
	program := base(words[0].value)
	_, runs := runners[program]
	if runs || program == "eval" || slices.Contains(shells, program) || slices.Contains(unknown, program) || strings.Contains(words[0].value, "{}") {
		v.lose(whole, words)
	}
	v.command(words, exactly)
}

// command returns the words after the options and operands. It reports false
// where an option is not known, or the shell may put other words there.
func (r wrapperSpec) command(words []shellWord) (rest []shellWord, ok bool) {
	i := 1
	for ; i < len(words) && words[i].plain(); i++ {
		text := words[i].value
		if text == "--" {
			i++
			break
		}
		switch {
		case r.assigns && (text == "-" || strings.IndexByte(text, '=') > 0 && text[0] != '-'):
			continue
		case len(text) < 2 || text[0] != '-':
			return r.after(words, i)
		}
		more, known := r.option(text)
		if !known || more && (i+1 == len(words) || !words[i+1].plain()) {
			return nil, false
		}
		if more {
			i++
		}
	}
	return r.after(words, i)
}

// after skips assignments and operands.
func (r wrapperSpec) after(words []shellWord, i int) ([]shellWord, bool) {
	for r.assigns && i < len(words) && words[i].plain() && strings.IndexByte(words[i].value, '=') > 0 {
		i++
	}
	for range r.operands {
		if i == len(words) || !words[i].plain() {
			return nil, false
		}
		i++
	}
	if i < len(words) && !words[i].plain() {
		return nil, false // it can be an option, or no word at all
	}
	return words[i:], true
}

// option reports whether an option is known, and whether its argument is the
// next word.
func (r wrapperSpec) option(text string) (more, known bool) {
	if long, ok := strings.CutPrefix(text, "--"); ok {
		name, _, given := strings.Cut(long, "=")
		for option := range strings.FieldsSeq(r.long) {
			if bare, takes := strings.CutSuffix(option, "="); bare == name && (takes || !given) {
				return takes && !given, true
			}
		}
		return false, false
	}
	for i, letter := range text[1:] {
		switch {
		case strings.ContainsRune(r.takes, letter):
			return i+2 == len(text), true
		case !strings.ContainsRune(r.flags, letter):
			return false, false
		}
	}
	return false, true
}

// shell adds the commands of the text that a shell is given by -c.
func (v *visit) shell(whole string, words []shellWord) {
	given := false
	for i := 0; i < len(words); i++ {
		w := words[i]
		option := w.plain() && len(w.value) > 1 && strings.ContainsRune("-+", rune(w.value[0]))
		switch {
		case given && w.literal && !option && w.value != "-":
			v.read(w.value, posix)
			v.guess(whole, words[i+1:]) // the text has these as parameters
			return
		case given && w.value == "--":
		case given && !option, !w.plain():
			v.lose(whole, words)
			return
		case !option, w.value == "--":
			return // a file, which the words name, or the input
		case strings.HasPrefix(w.value, "--"):
			if w.value == "--rcfile" || w.value == "--init-file" {
				i++
			} else if !slices.Contains([]string{"--norc", "--noprofile", "--posix", "--login", "--restricted", "--verbose"}, w.value) {
				v.lose(whole, words)
				return
			}
		default:
			given = given || w.value[0] == '-' && strings.Contains(w.value, "c")
			if strings.ContainsAny(w.value, "oO") {
				i++
			}
		}
	}
	if given {
		v.lose(whole, words)
	}
}

// joined adds the commands of the text that some words are together.
func (v *visit) joined(whole string, words []shellWord) {
	values := make([]string, len(words))
	for i, w := range words {
		if !w.plain() {
			v.lose(whole, words)
			return
		}
		values[i] = w.value
	}
	v.read(strings.Join(values, " "), posix)
}

// trap adds the commands that are run at a signal.
func (v *visit) trap(whole string, words []shellWord) {
	if len(words) > 0 && words[0].value == "--" {
		words = words[1:]
	}
	switch {
	case len(words) == 0:
	case !words[0].plain():
		v.lose(whole, words)
	case !strings.HasPrefix(words[0].value, "-"):
		v.read(words[0].value, posix)
	}
}

// alias adds the commands that an alias defines, and marks the script as unread: the alias
// changes the meaning of later commands.
func (v *visit) alias(words []shellWord) {
	v.unread = true
	for _, w := range words {
		if _, text, ok := strings.Cut(w.value, "="); ok {
			v.read(text, posix)
		}
	}
}

// found adds the commands that find or fd runs for the files that it finds.
func (v *visit) found(whole string, words []shellWord, options ...string) {
	for i, w := range words {
		if !w.literal || w.expands && strings.IndexAny(w.value, "*?[{") == 0 {
			v.unread = true // it can be such an option
		}
		if i == 0 || !slices.Contains(options, w.value) {
			continue
		}
		run := words[i+1:]
		if end := slices.IndexFunc(run, func(w shellWord) bool { return w.value == ";" || w.value == "+" }); end >= 0 {
			run = run[:end]
		}
		v.fed(whole, run)
	}
}
