package shellcommand

import (
	"slices"
	"strings"
)

// exactPattern returns the pattern that matches only the command of these words.
func exactPattern(words []shellWord) string {
	return LiteralPattern(strings.Join(wordTexts(words), " "))
}

// reusablePattern returns the save pattern of a command: the words that identify the
// command, followed by any text. If this pattern would allow more than the question
// shows, reusablePattern returns the pattern of the exact command instead.
func reusablePattern(words []shellWord) string {
	prefix := reusablePrefix(wordTexts(words))
	if exactOnly(words) {
		return exactPattern(words)
	}
	for i := range prefix {
		if !words[i].plain() || strings.HasPrefix(prefix[i], "-") {
			return exactPattern(words)
		}
	}
	text := LiteralPattern(strings.Join(prefix, " "))
	if len(prefix) < len(words) {
		text += " *"
	}
	return text
}

// exactOnly reports whether a command is saved only as a whole, because its prefix could
// run any program, reach another machine or destroy files.
func exactOnly(words []shellWord) bool {
	name := words[0].value
	if strings.Contains(name, "/") {
		return true
	}
	name = strings.TrimRight(name, "0123456789.")
	name, _, _ = strings.Cut(name, ".") // mkfs.ext
	if slices.Contains(exactOnlyPrograms, name) {
		return true
	}
	return name == "git" && len(words) > 1 && slices.Contains(exactOnlyGit, words[1].value)
}

// exactOnlyPrograms are the programs whose commands are approved as a whole only,
// because they run other programs, reach other machines, or destroy files. The list has
// the names without digits at their end.
var exactOnlyPrograms = strings.Fields(
	// interpreters, editors and other programs that run a text
	"ash awk bash bc busybox clj clojure csh dash dc deno ed elixir emacs erl ex expect fish gawk gdb ghci groovy guile irb java jjs jshell julia ksh ledger " +
		"lua luajit mawk mksh mysql nano nawk nc ncat netcat node nodejs nvim ocaml octave perl pg php psql pwsh py pypy python r raku rbash rscript ruby " +
		"runghc runhaskell sbcl scala scheme screen sed sh socat sqlite swift tclsh tcsh tmux toybox ts-node tsx vi view vim vimdiff wish yash zsh " +
		// programs that run others
		". alias at batch builtin bwrap chroot chrt command coproc crontab dbus-run-session doas entr env eval exec fakeroot fd fdfind find firejail flock ionice " +
		"less ltrace make gmake cmake ninja man more nice nohup nsenter parallel perf pkexec proot prlimit runuser script setpriv setsid source ssh sshpass " +
		"start-stop-daemon stdbuf strace su sudo systemd-run taskset tar time timeout toolbox trap unbuffer unshare valgrind watch xargs zip " +
		// build tools and package managers, which run commands of a file or a package
		"ant bazel bun bunx bundle cargo composer conda dotnet gem go gradle gradlew just lein mage mix mvn nix npm npx pip pipenv pipx pnpm pnpx poetry rake rustup sbt " +
		"task tox turbo uv uvx yarn " +
		// files, permissions and processes
		"chattr chgrp chmod chown cp fallocate fdisk halt kill killall ln mkfs mv parted pkill poweroff reboot rm rmdir setfacl shred shutdown skill tee truncate " +
		"umount unlink userdel wipefs " +
		// networks, machines and clouds
		"ansible aria aws az axel curl dd docker ftp gcloud gh helm install http https kubectl mount nerdctl podman rclone rsync scp sftp " +
		"systemctl telnet terraform vagrant vault wget")

// exactOnlyGit are the git subcommands that are approved as a whole only: some option of each runs
// a program, sends data elsewhere, or drops uncommitted work.
var exactOnlyGit = strings.Fields("archive bisect branch clean clone config daemon difftool fetch filter-branch grep ls-remote mergetool pull push rebase reflog remote reset " +
	"restore rm send-email stash submodule update-ref worktree")

// reusablePrefix returns the first words of a command, which identify it. It looks up
// in arities the longest listed prefix of up to three words, which gives the number of
// words to return. Without a listed prefix it returns the first word.
func reusablePrefix(words []string) []string {
	for n := min(len(words), 3); n > 0; n-- {
		if arity, ok := arities[strings.Join(words[:n], " ")]; ok {
			return words[:min(arity, len(words))]
		}
	}
	return words[:min(1, len(words))]
}

// arities maps the first words of a command to the number of words that identify it.
var arities = map[string]int{
	"apt": 2, "apt-get": 2, "aws": 3, "az": 3, "brew": 2, "bun": 2, "bun run": 3, "bundle": 2, "bundle exec": 3, "cargo": 2, "cargo run": 2,
	"composer": 2, "conda": 2, "deno": 2, "deno task": 3, "docker": 2, "docker builder": 3, "docker compose": 3, "docker container": 3,
	"docker image": 3, "docker network": 3, "docker volume": 3, "dotnet": 2, "flyctl": 2, "gcloud": 3, "gh": 3, "git": 2, "git bisect": 3,
	"git config": 3, "git notes": 3, "git remote": 3, "git stash": 3, "git submodule": 3, "git worktree": 3, "go": 2, "go mod": 3, "go tool": 3,
	"go work": 3, "gradle": 2, "helm": 2, "journalctl": 1, "kubectl": 2, "kubectl config": 3, "kubectl rollout": 3, "make": 2, "mvn": 2, "nix": 2,
	"npm": 2, "npm exec": 3, "npm run": 3, "npx": 2, "pip": 2, "pip3": 2, "pipenv": 2, "pnpm": 2, "pnpm exec": 3, "pnpm run": 3, "podman": 2,
	"podman container": 3, "poetry": 2, "poetry run": 3, "rustup": 2, "systemctl": 2, "terraform": 2, "terraform state": 3, "tmux": 2, "turbo": 2,
	"uv": 2, "uv run": 3, "vault": 2, "yarn": 2, "yarn run": 3,
}

// LiteralPattern returns the narrowest pattern that matches text. Patterns have no
// escape, so a star in text becomes ?, which matches any one rune.
func LiteralPattern(text string) string { return strings.ReplaceAll(text, "*", "?") }
