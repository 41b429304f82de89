package shellcommand

import (
	"slices"
	"strings"
)

// gitOptions are the options of git before its subcommand.
var gitOptions = wrapperSpec{flags: "pP", flagsWithArgument: "Cc", long: "bare git-dir= work-tree= namespace= no-pager paginate no-replace-objects literal-pathspecs " +
	"no-optional-locks exec-path="}

// gitHarmlessSettings are the beginnings of settings for git -c that make git run no
// other program.
var gitHarmlessSettings = strings.Fields("advice. color. commit.gpgsign= core.quotepath= init.defaultbranch= user.email= user.name=")

// addGit adds the commands that git runs with these words. It returns true if git may
// run another program. If options precede the subcommand, addGit adds the git command
// without them as a spelling of whole, so that rules that ask or deny match the
// subcommand.
func (v *walker) addGit(whole string, words []shellWord) bool {
	rest, ok := gitOptions.commandWords(words)
	if !ok {
		v.markUncertain(whole, words[1:])
		return true
	}
	runs := false
	options := words[1 : len(words)-len(rest)]
	for i := 0; i < len(options); i++ {
		text := options[i].value
		setting, given := strings.CutPrefix(text, "-c")
		if text == "-c" || text == "-C" {
			i++
			setting = options[i].value
		}
		setting = strings.ToLower(setting)
		if strings.HasPrefix(text, "--exec-path") || given && !slices.ContainsFunc(gitHarmlessSettings, func(s string) bool { return strings.HasPrefix(setting, s) }) {
			v.uncertain, runs = true, true
		}
		if _, shell, ok := strings.Cut(options[i].value, "=!"); ok {
			v.parseText(shell, posixLanguages)
		}
	}
	if len(rest) == 0 {
		return runs
	}
	if len(rest) < len(words)-1 {
		v.addSpellings(whole, strings.Join(append([]string{"git"}, wordTexts(rest)...), " "))
	}
	return v.addGitSubcommand(whole, rest) || runs
}

// addGitSubcommand adds the commands that a subcommand of git runs, and reports whether
// the subcommand may run a command.
func (v *walker) addGitSubcommand(whole string, words []shellWord) bool {
	name, second := words[0].value, ""
	if len(words) > 1 {
		second = words[1].value
	}
	if slices.ContainsFunc(words[1:], func(w shellWord) bool { return gitOptionRuns(name, w.value) }) {
		v.markUncertain(whole, words[1:])
	}
	switch {
	case name == "bisect" && second == "run":
		v.addCommand(words[2:], exactPattern)
	case name == "submodule" && slices.ContainsFunc(words, func(w shellWord) bool { return w.value == "foreach" }):
		at := slices.IndexFunc(words, func(w shellWord) bool { return w.value == "foreach" }) + 1
		for at < len(words) && strings.HasPrefix(words[at].value, "-") {
			at++
		}
		v.addJoinedText(whole, words[at:])
	case name == "rebase":
		runs := false
		for i, w := range words {
			text, given := strings.CutPrefix(w.value, "--exec=")
			if !given && (w.value == "-x" || w.value == "--exec") && i+1 < len(words) {
				text, given = words[i+1].value, true
			} else if !given && strings.HasPrefix(w.value, "-x") {
				text, given = w.value[2:], true
			}
			if given {
				runs = true
				v.parseText(text, posixLanguages)
			}
		}
		return runs
	case slices.Contains(gitRunners, name):
		v.markUncertain(whole, words[1:])
	case name == "config":
		v.requireCertain(gitConfigReads(words[1:]) || gitConfigSetsHarmless(words[1:]))
		for _, w := range words {
			if shell, ok := strings.CutPrefix(w.value, "!"); ok {
				v.uncertain = true
				v.parseText(shell, posixLanguages)
			}
		}
	default:
		return false
	}
	return true
}

// gitRunners are the subcommands of git whose arguments can name programs, which git
// runs.
var gitRunners = strings.Fields("daemon difftool filter-branch instaweb merge-index mergetool send-email shell")

// gitUnsafeOptions are the long options of git's subcommands whose arguments are
// programs, settings, or files to write.
var gitUnsafeOptions = strings.Fields("config exec open-files-in-pager output receive-pack upload-pack")

// gitOptionRuns reports whether an argument of a git subcommand makes git run a program,
// or write a file that the command line does not show to a rule. It also recognizes an
// abbreviated long option, as git accepts one.
func gitOptionRuns(name, text string) bool {
	if strings.HasPrefix(text, "ext::") {
		return true
	}
	if long, ok := strings.CutPrefix(text, "--"); ok {
		option, _, _ := strings.Cut(long, "=")
		return option != "" && (slices.ContainsFunc(gitUnsafeOptions, func(p string) bool { return strings.HasPrefix(p, option) }) ||
			name == "clone" && strings.HasPrefix("template", option))
	}
	if len(text) < 2 || text[0] != '-' {
		return false
	}
	switch name {
	case "grep":
		return strings.Contains(text, "O")
	case "clone":
		return strings.ContainsAny(text, "uc")
	case "rebase":
		return strings.Contains(text, "x") && !strings.HasPrefix(text, "-x") // that one is read
	}
	return false
}

// gitConfigReads reports whether the words of git config read settings.
func gitConfigReads(words []shellWord) bool {
	if len(words) == 0 {
		return true
	}
	first := words[0].value
	return len(words) == 1 || first == "get" || first == "list" || first == "-l" || strings.HasPrefix(first, "--get") || first == "--list"
}

// gitConfigSetsHarmless reports whether the words of git config set a harmless setting.
func gitConfigSetsHarmless(words []shellWord) bool {
	if words[0].value == "--global" || words[0].value == "--local" {
		words = words[1:]
	}
	return len(words) > 0 && slices.ContainsFunc(gitHarmlessSettings, func(s string) bool { return strings.HasPrefix(strings.ToLower(words[0].value)+"=", s) })
}
