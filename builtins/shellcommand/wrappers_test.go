package shellcommand

import (
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// decided returns the decision of rules about a line. Deny takes precedence over ask,
// and ask over allow.
func decided(rules domain.Rules, line, shell string) domain.Effect {
	effect := domain.Allow
	read := Analyze(line, shell)
	for _, resource := range read.Resources {
		rule, _ := rules.EvaluateSpelled("bash", resource, read.Spellings[resource])
		effect = max(effect, rule.Effect)
	}
	return effect
}

func rulesOf(t *testing.T, lines ...string) domain.Rules {
	t.Helper()
	var rules domain.Rules
	for _, line := range lines {
		effect, resource, _ := strings.Cut(line, " ")
		rule := domain.Rule{Action: "bash", Resource: resource}
		if err := rule.Effect.UnmarshalText([]byte(effect)); err != nil {
			t.Fatal(err)
		}
		rules = append(rules, rule)
	}
	return rules
}

func TestDenyRuleSeesTheCommandBehindOtherSpellings(t *testing.T) {
	t.Parallel()
	rules := rulesOf(t, "allow *", "deny rm *")
	for _, line := range []string{
		"rm x", `\rm x`, `'rm' x`, `r"m" x`, "/bin/rm x", "./rm x", "../../bin/rm x", "busybox rm x", "/bin/busybox rm x", "FOO=1 rm x", "! rm x", "x | rm", "(rm x)", "$(rm x)", "a $(rm x)", "a < <(rm x)", "if rm x; then a; fi",
		"env rm x", "env -u A rm x", "env -uA rm x", "env --unset=A rm", "env --unset A rm", "env - A=b rm x", "env -i -- A=b rm x", "env -S 'rm x'", "env -S'rm x'", "env --split-string='rm x'", "env -iS 'A=b rm x'", "env -vS 'rm x'", "/usr/bin/env rm x",
		"xargs rm", "xargs -I {} rm {}", "xargs -I{} rm {}", "xargs -0 -n 1 -P4 rm", "xargs -i rm {}", "xargs --max-args=1 rm", "xargs --max-args 1 rm", "xargs --unknown 1 rm", "xargs -a f rm", "xargs sh -c 'rm x'", "xargs env rm",
		"timeout 5 rm x", "timeout -s KILL 5 rm x", "timeout -sKILL 5 rm", "timeout --signal=KILL 5s rm", "timeout --signal KILL -k 1 5 rm", "timeout --kill 1 5 rm x",
		"nice rm x", "nice -n 5 rm", "nice -5 rm", "nice --adjustment=5 rm", "ionice -c 3 rm", "ionice -c3 -n 0 rm", "nohup rm x", "setsid -w rm x", "stdbuf -o L rm x", "stdbuf -oL rm", "stdbuf --output=L rm", "stdbuf --output L rm",
		"flock f rm x", "flock -n f rm", "flock -w 5 f rm", "flock f -c 'rm x'", "flock --wait 5 f --command 'rm x'", "time rm x", "time -p rm x", "/usr/bin/time -f x rm", "sudo rm x", "sudo -n -u root rm", "sudo -uroot rm", "sudo A=b rm", "sudo --user=root rm", "sudo --user root rm x", "sudo -- rm x", "sudo -i rm x", "sudo -s rm x", "doas -u root rm",
		"chroot / rm x", "chroot --userspec=a:b / rm", "unshare -r rm", "unshare --map-root-user rm", "unshare --mount=f rm x", "nsenter -t 1 -m rm x", "nsenter -t 1 -a rm", "strace -f -o f rm x", "watch rm x", "watch -n 1 'rm x'", "watch -x rm x",
		"parallel rm ::: x", "parallel -j 4 rm {} ::: x", "find . -exec rm {} \\;", "find . -execdir rm {} +", "find . -ok rm {} \\;", "find . -okdir /bin/rm {} \\;", "find . -exec sh -c 'rm x' \\;", "fd -x rm", "fd --exec rm",
		"command rm x", "command -p rm x", "builtin command rm x", "exec rm x", "exec -a a rm x", "exec -c rm", "eval rm x", "eval 'rm x'", "eval \"rm\" x", "sh -c 'rm x'", "bash -c 'a; rm x'", "bash -lc 'rm x'", "sh -ec 'rm x'", "sh -e -c 'rm x'", "bash -o pipefail -c 'rm x'", "bash -euo pipefail -c 'rm x'", "bash --norc -c 'rm x'", "bash --rcfile f -c 'rm x'", "sh -c -- 'rm x'", "sh -c -e 'rm x'", "bash -c -- '/bin/rm x'", `sh -c '"$@"' a rm x`, `sh -c 'sh -c "rm x"'`, "dash -c 'rm x'", "zsh -c 'rm x'", "fish -c 'rm x'", "/bin/sh -c 'rm x'",
		"ssh host rm x", "ssh -p 22 host 'rm x'", "ssh host -- rm x", "trap 'rm x' EXIT", "trap -- 'rm x' 0", "alias a='rm x'", "alias a=rm\na x", "taskset -c 0 rm", "taskset 1 rm", "chrt -f 1 rm", "su -c 'rm x'", "su root -c 'rm x'", "systemd-run rm x", "script -c 'rm x'", "runuser -u a -- rm x", "setpriv --reuid=1 rm x", "firejail rm x",
		"git -c alias.x='!rm x' x", "git bisect run rm x", "git submodule foreach 'rm x'", "git submodule foreach --recursive rm x", "git rebase --exec 'rm x' main", "git rebase -x 'rm x'", "git rebase -x'rm x'", "git config alias.x '!rm x'",
		"$X rm x", "$EMPTY rm x", "timeout 5 $X rm x", "env $X rm x", "timeout {-k,1} 5 rm x", "nohup nice -n 1 timeout 5 /bin/rm x", "git --version\r#\nrm x", "a\v; rm x", "echo 'open; rm x", "f() { rm x; }; f", "rm() { a; }; rm x", "coproc rm x", "rm<f", "rm>f", ">f rm x", "{ rm x; }", "cat <<E\n$(rm x)\nE",
	} {
		for _, shell := range []string{"sh", "bash", "zsh"} {
			if got := decided(rules, line, shell); got != domain.Deny {
				t.Errorf("deny rm * decides %v on %q in %s; it is asked about as %q, spelled %q", got, line, shell, Analyze(line, shell).Resources, Analyze(line, shell).Spellings)
			}
		}
	}
	for _, line := range []string{"ls rm", "echo rm x", "echo 'rm x'", "git rm x", "npm run rm x", "grep 'rm x' f", "timeout 5 echo rm x", "env A=rm ls", "xargs -I rm echo x", "sudo -u rm ls", "find . -name rm", "command -v rm", "> rm", "cat <<'E'\nrm x\nE", "rmdir x", "/bin/rmdir x", "bash rm", "sh -c 'echo rm x'"} {
		if got := decided(rules, line, "sh"); got != domain.Allow {
			t.Errorf("deny rm * decides %v on %q; it is asked about as %q, spelled %q", got, line, Analyze(line, "sh").Resources, Analyze(line, "sh").Spellings)
		}
	}
	if got := decided(rulesOf(t, "allow *", "deny git push *"), "git -C x --no-pager -c color.ui=never push", "sh"); got != domain.Deny {
		t.Errorf("deny git push * decides %v behind the options of git", got)
	}
	if got := decided(rulesOf(t, "allow *", "deny > /etc/*"), "a >>/etc/x", "sh"); got != domain.Deny {
		t.Errorf("deny > /etc/* decides %v on >>", got)
	}
}

func TestAllowRuleIsNotWidenedBySpellings(t *testing.T) {
	t.Parallel()
	for rule, lines := range map[string][]string{
		"rm *": {"/tmp/evil/rm x", "./rm x", "sudo rm x", "busybox rm x", "env rm x", "FOO=1 rm x", "sh -c 'rm x'", "rm x > f"},
		"git *": {"git --version\r#; touch x", "git log \\\r\ntouch x", "for HOME in e; do git log; done", "for PATH in e; do git log; done", "git log $((HOME=5))", "git log ${HOME:=x}", "git log ${PAGER=x}", "git log; read PATH", "git bisect run x",
			"git -c alias.x='!x' x", "git -c core.pager=x log", "git submodule foreach x", "git --exec-path=/e log", "git rebase -x x", "git log \u00a0", "git() { x; }; git log", "git log # \\\ntouch x", "git log \"${y:-'$(touch x)'}\"", "git filter-branch x", "git rebase --ex=x main", "git rebase -ix x main", "git grep -Ox y", "git grep -nO x", "git grep --open-files=x y", "git fetch --upload-pack=x .", "git clone -u x . y", "git clone -qu x . y", "git clone -c core.pager=x . y", "git clone --config=core.pager=x . y",
			"git clone --template=x . y", "git clone 'ext::sh -c x' y", "git push --receive-pack=x .", "git archive --exec=x --remote=.", "git config core.pager x", "git config --global core.sshcommand x", "git config set core.pager x", "git config --file user.name core.pager x", "git merge-index x -a", "git shell -c x", "git daemon --access-hook=x", "git send-email --sendmail-cmd=x y",
			"git instaweb --httpd=x", "git diff --output=f", "git log --outp f", "for x in --output=f; do git log $x; done", "git -c safe.directory=* status", "git log Ä\\;touch x", "git log \\\n\r\n touch x"},
		"xargs *": {"xargs rm", "xargs sh", "xargs -I rm rm", "xargs --unknown"}, "find *": {"find . -exec x \\;", "find $X", "find *", "find . {-exec,rm,x,\\;}", "find . -exec {} \\;"},
		"printf *": {"printf -v HOME x; printf a"}, "timeout *": {"timeout 5 x", "timeout $X"}, "test *": {"test -v 'a[$(x)]'"}, "read *": {"read HOME", "read PATH", "read 'a[$(x)]'", "read -a x", "read \"$x\""}, "set *": {"set -a", "set -k", "set -o allexport", "set -o posix"},
		"echo *": {"echo $((x))", "echo $((a[1]))", "echo ${x@P}", "echo ${!x}", "echo $[x]", "echo ${x[y]}", "echo ${x:y}", "echo $(( $(x) ))", "echo ${ x; }"},
	} {
		for _, line := range lines {
			for _, shell := range []string{"sh", "bash"} {
				if got := decided(rulesOf(t, "allow "+rule), line, shell); got == domain.Allow {
					t.Errorf("allow %s allows %q in %s; it is asked about as %q", rule, line, shell, Analyze(line, shell).Resources)
				}
			}
		}
	}
	for rule, lines := range map[string][]string{
		"git *":  {"git commit -m 'a\n\nb'", "git log | git shortlog -s", "git log \\\n  --oneline", "git log 2>&1 >/dev/null", "git -c color.ui=never log", "git -C sub status", "git add *.go", "git commit -m \"it's é\"", "git config user.name me", "git config --global user.email a@b", "git config --get core.pager", "git config --list", "git config core.pager", "git config get core.pager", "git rebase -i main", "git clone x y", "git grep -n x", "git log --oneline --color=always", "git commit -c HEAD", "git fetch -u origin", "for f in a b; do git add \"$f\"; done", "git log -n $((1+2))", "git rm x"},
		"echo *": {"echo $x ${x:-y} \"${x%.go}\" ${#x}", "echo a # b", "echo $? $# $@", "if [ 1 = 1 ]; then echo x; fi"},
	} {
		for _, line := range lines {
			for _, shell := range []string{"sh", "bash"} {
				if got := decided(rulesOf(t, "allow [ *", "allow "+rule), line, shell); got != domain.Allow {
					t.Errorf("allow %s decides %v on %q in %s; it is asked about as %q", rule, got, line, shell, Analyze(line, shell).Resources)
				}
			}
		}
	}
	if got := decided(rulesOf(t, "deny *", "allow /opt/bin/tool *"), "/opt/bin/tool x", "sh"); got != domain.Allow {
		t.Errorf("allow /opt/bin/tool * decides %v behind deny *", got)
	}
}

func TestRiskyCommandIsSavedWhole(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"docker run --rm x", "docker exec x y", "podman run x", "kubectl exec x -- y", "python3 -c x", "python3.12 x.py", "python x", "perl -e x", "node x.js", "ruby x", "awk x f", "curl http://x", "wget x", "ssh host x", "scp a b",
		"npm run dev x", "npm exec x", "npx x y", "yarn run x y", "pnpm x y", "bun x y", "go run ./x", "go test ./...", "make all x", "cargo run x", "uv run x y", "pip install x", "poetry run x y", "bundle exec x y", "mvn x y", "gradle x",
		"./x y", "/bin/ls x", "~/x y", "../x y", "sh x.sh y", "bash -x y", "sudo ls x", "env ls x", "xargs ls x", "timeout 5 ls x", "find . -name x", "find . -exec ls {} +", "nice ls x", "eval ls x", "git config a b", "git -c a=b log", "git clone a b", "git rebase x y", "git push origin x", "$X y",
		"read x y", "export X=y", "FOO=1 ls x", "ls > x", "set -e x", "tar xf x", "sed -n x f", "vim x", "rm x", "rm -rf x", "rmdir x y", "mv a b", "cp a b", "dd if=x", "chmod +x f", "chown a b", "chgrp a b", "ln -s a b", "kill -9 1", "killall x", "pkill x", "shred x", "truncate -s 0 x", "tee x", "mkfs.ext4 x", "unlink x", "git reset --hard x", "git clean -fd", "git restore x", "git rm x", "git branch -D x", "git stash drop x", "tmux new x", "terraform apply x", "aws s3 rm x", "gh api x y", "systemctl stop x", "xargs -n 1 git add", "echo 'open", "ls\r; rm x",
	} {
		for _, save := range Analyze(line, "sh").SavePatterns {
			if strings.HasSuffix(save, " *") || save == "*" {
				t.Errorf("%q saves %q", line, save)
			}
		}
	}
	for line, want := range map[string][]string{"ls -l x": {"ls *"}, "git checkout main": {"git checkout *"}, "grep -r x .": {"grep *"}} {
		if got := Analyze(line, "sh").SavePatterns; !slices.Equal(got, want) {
			t.Errorf("%q saves %q, want %q", line, got, want)
		}
	}
}
