package shellcommand

import (
	"slices"
	"strings"
)

// A wrapperSpec describes the options of a program that runs the command in its
// arguments, such as env or sudo.
type wrapperSpec struct {
	flags             string // short options without an argument
	flagsWithArgument string // short options with one
	long              string // long options, separated by spaces; one that takes an argument ends in "="
	operands          int    // words before the command
	assigns           bool   // NAME=VALUE may precede the command
	needed            bool   // without a command it runs something else, such as a shell
}

// wrappers are the wrapper programs by name. An option that is not listed makes the line
// uncertain.
var wrappers = map[string]wrapperSpec{
	"builtin": {},
	"busybox": {}, "toybox": {},
	"chroot":  {long: "userspec= groups= skip-chdir", operands: 1, needed: true},
	"chrt":    {flags: "abfiorRdv", flagsWithArgument: "TPD", long: "all-tasks batch fifo idle other rr reset-on-fork", operands: 1},
	"command": {flags: "p"},
	"doas":    {flags: "nL", flagsWithArgument: "Cu", needed: true},
	"env":     {flags: "i0v", flagsWithArgument: "uC", long: "ignore-environment null debug unset= chdir=", assigns: true},
	"exec":    {flags: "cl", flagsWithArgument: "a"},
	"flock":   {flags: "esxunoFv", flagsWithArgument: "wE", long: "shared exclusive unlock nonblock nb no-fork close verbose wait= timeout= conflict-exit-code=", operands: 1},
	"ionice":  {flags: "t", flagsWithArgument: "cn", long: "ignore class= classdata="},
	"nice":    {flags: "0123456789", flagsWithArgument: "n", long: "adjustment="},
	"nohup":   {},
	"nsenter": {flags: "aF", flagsWithArgument: "t", long: "all no-fork target=", needed: true},
	"setsid":  {flags: "cfw", long: "ctty fork wait"},
	"stdbuf":  {flagsWithArgument: "ioe", long: "input= output= error="},
	"strace":  {flags: "cCdDfFhiknNqrtTvVwxyYzZ", flagsWithArgument: "abeEIoOpPsSuUX"},
	"sudo":    {flags: "AbEHknPSN", flagsWithArgument: "CDghpRrTtuU", long: "user= group= non-interactive preserve-env askpass background set-home stdin", assigns: true, needed: true},
	"taskset": {flags: "ac", long: "all-tasks cpu-list", operands: 1},
	"time":    {flags: "apvq", flagsWithArgument: "of", long: "append portability verbose quiet output= format="},
	"timeout": {flags: "vfp", flagsWithArgument: "ks", long: "foreground preserve-status verbose kill-after= signal=", operands: 1},
	"unshare": {flags: "muinpUCTfrc", long: "mount uts ipc net pid user cgroup time fork map-root-user map-current-user", needed: true},
	"watch":   {flags: "bcdegptwrC", flagsWithArgument: "nq", long: "beep color differences errexit chgexit no-title no-wrap precise interval= equexit=", needed: true},
	"xargs":   {flags: "0rtxpo", flagsWithArgument: "adEILnPs", long: "null no-run-if-empty verbose exit interactive open-tty arg-file= delimiter= max-lines= max-args= max-procs= max-chars= replace="},
}

// unknownWrappers are programs that run a command in a form that the package does not
// parse.
var unknownWrappers = strings.Fields("at batch bwrap catchsegv cgexec coproc dbus-run-session entr expect fakechroot fakeroot firejail gdb ltrace numactl parallel " +
	"perf pkexec prlimit proot runuser rlwrap script select setpriv ssh start-stop-daemon su systemd-run unbuffer valgrind xvfb-run")

// shellPrograms are the programs that run a text given after -c.
var shellPrograms = strings.Fields("ash bash dash fish ksh ksh93 mksh rbash sh tcsh csh yash zsh")

// addWrapped adds the commands that a program runs. It returns true if the program is a
// wrapper.
func (v *walker) addWrapped(program, whole string, words []shellWord) bool {
	rest := words[1:]
	switch {
	case slices.Contains(shellPrograms, program):
		v.requireCertain(languages(program) != nil)
		v.addShellText(whole, rest)
	case program == "eval":
		v.addJoinedText(whole, rest)
	case program == "trap":
		v.addTrap(whole, rest)
	case program == "alias":
		v.addAliases(rest)
	case program == "." || program == "source":
	case slices.Contains(unknownWrappers, program):
		v.markUncertain(whole, rest)
	case program == "git":
		return v.addGit(whole, words)
	case program == "find":
		v.addFindCommands(whole, words, "-exec", "-execdir", "-ok", "-okdir")
		return false
	case program == "fd" || program == "fdfind":
		v.addFindCommands(whole, words, "-x", "-X", "--exec", "--exec-batch")
		return false
	default:
		r, known := wrappers[program]
		if !known {
			return false
		}
		v.addWrapperCommand(r, program, whole, words)
	}
	v.indirect = true
	return true
}

// markUncertain marks the line uncertain because the package cannot parse the words of a
// command. It adds as spellings all commands that the words may contain.
func (v *walker) markUncertain(whole string, words []shellWord) {
	v.uncertain = true
	v.addGuesses(whole, words)
}

// maxGuesses is the maximum number of words of a command at which addGuesses assumes the
// beginning of another command.
const maxGuesses = 64

// addGuesses adds spellings to the resource whole. Each spelling is the command that
// would begin at one of the words.
func (v *walker) addGuesses(whole string, words []shellWord) {
	var fields []string
	for _, w := range words {
		if !w.literal {
			fields = append(fields, w.text)
			continue
		}
		v.addSpellings(whole, possibleCommands(w.value)...)
		fields = append(fields, strings.Fields(w.value)...)
	}
	for i := range fields[:min(len(fields), maxGuesses)] {
		v.addSpellings(whole, strings.Join(append([]string{baseName(fields[i])}, fields[i+1:]...), " "))
	}
}

// addWrapperCommand adds the command in the arguments of a wrapper.
func (v *walker) addWrapperCommand(r wrapperSpec, program, whole string, words []shellWord) {
	rest, ok := r.commandWords(words)
	switch {
	case !ok && program == "command" && len(words) > 1 && (words[1].value == "-v" || words[1].value == "-V"): // it prints
	case !ok || len(rest) == 0 && r.needed:
		v.markUncertain(whole, words[1:])
	case len(rest) == 0:
	case program == "flock" && (rest[0].value == "-c" || rest[0].value == "--command"):
		v.addJoinedText(whole, rest[1:])
	case program == "watch":
		v.addJoinedText(whole, rest)
	case program == "xargs":
		v.addFedCommand(whole, rest)
		if rest[0].plain() && slices.ContainsFunc(words[1:len(words)-len(rest)], func(w shellWord) bool {
			name := strings.TrimPrefix(strings.TrimPrefix(w.value, "-I"), "--replace=")
			return name != "" && strings.Contains(rest[0].value, name)
		}) {
			v.markUncertain(whole, rest)
		}
	default:
		v.addCommand(rest, exactPattern)
	}
}

// addFedCommand adds a command to which its wrapper appends words from a file or a
// search. If the arguments of the command name another program to run, the appended
// words can name any program. addFedCommand then marks the line uncertain.
func (v *walker) addFedCommand(whole string, words []shellWord) {
	if len(words) == 0 {
		return
	}
	program := baseName(words[0].value)
	_, runs := wrappers[program]
	if runs || program == "eval" || slices.Contains(shellPrograms, program) || slices.Contains(unknownWrappers, program) || strings.Contains(words[0].value, "{}") {
		v.markUncertain(whole, words)
	}
	v.addCommand(words, exactPattern)
}

// commandWords returns the words of the wrapped command: all words after the options
// and operands of the wrapper. ok is false if an option is unknown, or if the shell may
// replace an argument of an option or an operand.
func (r wrapperSpec) commandWords(words []shellWord) (rest []shellWord, ok bool) {
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
			return r.skipOperands(words, i)
		}
		more, known := r.parseOption(text)
		if !known || more && (i+1 == len(words) || !words[i+1].plain()) {
			return nil, false
		}
		if more {
			i++
		}
	}
	return r.skipOperands(words, i)
}

// skipOperands returns the words after the assignments and operands that begin at index
// i.
func (r wrapperSpec) skipOperands(words []shellWord, i int) ([]shellWord, bool) {
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

// parseOption parses the text of one option. known is true if the wrapper has the
// option, and more is true if the next word is the argument of the option.
func (r wrapperSpec) parseOption(text string) (more, known bool) {
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
		case strings.ContainsRune(r.flagsWithArgument, letter):
			return i+2 == len(text), true
		case !strings.ContainsRune(r.flags, letter):
			return false, false
		}
	}
	return false, true
}

// addShellText adds the commands in the script that a shell receives after -c.
func (v *walker) addShellText(whole string, words []shellWord) {
	given := false
	for i := 0; i < len(words); i++ {
		w := words[i]
		option := w.plain() && len(w.value) > 1 && strings.ContainsRune("-+", rune(w.value[0]))
		switch {
		case given && w.literal && !option && w.value != "-":
			v.parseText(w.value, posixLanguages)
			v.addGuesses(whole, words[i+1:]) // the text has these as parameters
			return
		case given && w.value == "--":
		case given && !option, !w.plain():
			v.markUncertain(whole, words)
			return
		case !option, w.value == "--":
			return // a file, which the words name, or the input
		case strings.HasPrefix(w.value, "--"):
			if w.value == "--rcfile" || w.value == "--init-file" {
				i++
			} else if !slices.Contains([]string{"--norc", "--noprofile", "--posix", "--login", "--restricted", "--verbose"}, w.value) {
				v.markUncertain(whole, words)
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
		v.markUncertain(whole, words)
	}
}

// addJoinedText joins the words with spaces, as eval does, and adds the commands of the
// joined text.
func (v *walker) addJoinedText(whole string, words []shellWord) {
	values := make([]string, len(words))
	for i, w := range words {
		if !w.plain() {
			v.markUncertain(whole, words)
			return
		}
		values[i] = w.value
	}
	v.parseText(strings.Join(values, " "), posixLanguages)
}

// addTrap adds the commands of a trap.
func (v *walker) addTrap(whole string, words []shellWord) {
	if len(words) > 0 && words[0].value == "--" {
		words = words[1:]
	}
	switch {
	case len(words) == 0:
	case !words[0].plain():
		v.markUncertain(whole, words)
	case !strings.HasPrefix(words[0].value, "-"):
		v.parseText(words[0].value, posixLanguages)
	}
}

// addAliases adds the commands of alias definitions and marks the line uncertain,
// because an alias changes later commands.
func (v *walker) addAliases(words []shellWord) {
	v.uncertain = true
	for _, w := range words {
		if _, text, ok := strings.Cut(w.value, "="); ok {
			v.parseText(text, posixLanguages)
		}
	}
}

// addFindCommands adds the commands that find or fd runs. Each of them follows one of
// the given options.
func (v *walker) addFindCommands(whole string, words []shellWord, options ...string) {
	for i, w := range words {
		if !w.literal || w.expands && strings.IndexAny(w.value, "*?[{") == 0 {
			v.uncertain = true // it can be such an option
		}
		if i == 0 || !slices.Contains(options, w.value) {
			continue
		}
		run := words[i+1:]
		if end := slices.IndexFunc(run, func(w shellWord) bool { return w.value == ";" || w.value == "+" }); end >= 0 {
			run = run[:end]
		}
		v.addFedCommand(whole, run)
	}
}
