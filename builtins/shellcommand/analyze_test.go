package shellcommand

import (
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

func TestEveryCommandIsAResource(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"git status; rm -rf /":                          {"git status", "rm -rf /"},
		"a && b || c | d & e":                           {"a", "b", "c", "d", "e"},
		"echo $(rm x) `rm y`":                           {"echo $(rm x) $(rm y)", "rm x", "rm y"},
		"(cd sub && make)":                              {"cd sub", "make"},
		"for f in *; do rm \"$f\"; done":                {`rm "$f"`},
		"if a; then b; else c; fi; while d; do e; done": {"a", "b", "c", "d", "e"},
		"! test -f x":                                   {"test -f x"},
		`r''m "-rf" 'x' \y`:                             {"rm -rf x y"},
		`echo 'a b' "*"`:                                {"echo 'a b' '*'"},
		"ls > out.txt 2>&1 < in":                        {"ls", "> out.txt", "< in"},
		"ls >> /etc/x 2> /dev/null":                     {"ls", ">> /etc/x"},
		"> out.txt":                                     {"> out.txt"},
		"FOO=1 make all":                                {"FOO=1 make all", "make all"},
		"PATH=/evil":                                    {"PATH=/evil"},
		"cat <<EOF\n$(rm x)\nEOF":                       {"cat", "rm x"},
		"echo ${x:-$(rm y)}":                            {"echo ${x:-$(rm y)}", "rm y"},
		"git diff --":                                   {"git diff --"},
		"export X=$(rm y)":                              {"export X=$(rm y)", "rm y"},
		"find . -name x -exec rm {} \\; -print":         {`find . -name x -exec rm {} ';' -print`, "rm {}"},
		// The resources of an unreadable line are its readable commands and the whole
		// line.
		"$CMD x; ls":               {"$CMD x", "ls", "$CMD x; ls"},
		"echo 'open":               {"echo 'open", "sh -c echo 'open"},
		"ls; echo 'open":           {"ls; echo 'open", "sh -c ls; echo 'open"},
		"# nothing":                {"# nothing"},
		"/bin/r? x":                {"/bin/r? x"},
		`bash -c "rm x; ls"`:       {"bash -c 'rm x; ls'", "rm x", "ls", `bash -c "rm x; ls"`},
		"eval rm x":                {"eval rm x", "rm x"},
		"sudo -n rm x":             {"sudo -n rm x", "rm x"},
		"timeout 5s xargs rm":      {"timeout 5s xargs rm", "xargs rm", "rm"},
		"env A=b /bin/sh -c 'x y'": {"env A=b /bin/sh -c 'x y'", "/bin/sh -c 'x y'", "x y"},
		"f() { rm x; }; f":         {"rm x", "f", "f() { rm x; }; f", "sh -c f() { rm x; }; f"},
	} {
		got := Analyze(line, "sh")
		for _, resource := range want {
			if !slices.Contains(got.Resources, resource) {
				t.Errorf("%q asks about %q, want %q in it", line, got.Resources, resource)
			}
		}
		if len(got.Resources) != len(want) {
			t.Errorf("%q asks about %q, want %q", line, got.Resources, want)
		}
	}
	// In bash the text is one word; a shell without such quotes runs rm.
	if got := Analyze(`echo $'a\'; rm x #'`, "sh").Resources; !slices.Contains(got, "rm x") {
		t.Errorf("sh asks about %q, want rm x in it", got)
	}
	if got := Analyze("ls", "fish").Resources; !slices.Equal(got, []string{"ls", "fish -c ls"}) {
		t.Errorf("a shell that is not known asks about %q", got)
	}
}

func TestRuleForOneCommandAllowsNoOther(t *testing.T) {
	t.Parallel()
	rules := domain.Rules{{Action: "bash", Resource: "git *", Effect: domain.Allow}}
	for line, want := range map[string]bool{
		"git status": true, "git log | git shortlog": true, `g''it status`: true,
		"git status; rm -rf /": false, "git log > /etc/passwd": false, "git log $(rm x)": false, "GIT_PAGER=rm git log": false, "git log < <(rm x)": false,
		"git log\nrm x": false, "git log & rm x": false, "git log `rm x`": false, "eval git log": false, "$GIT log": false, "git log 'open": false,
	} {
		allowed := true
		for _, resource := range Analyze(line, "sh").Resources {
			rule, _ := rules.Evaluate("bash", resource)
			allowed = allowed && rule.Effect == domain.Allow
		}
		if allowed != want {
			t.Errorf("git * allows %q: %v, want %v; it asks about %q", line, allowed, want, Analyze(line, "sh").Resources)
		}
	}
}

// Scenario 92.
func TestSavedPatternIsTheReusablePrefix(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"git checkout main": "git checkout", "npm run dev script": "npm run dev", "docker compose up service": "docker compose up",
		"unknown command here": "unknown", "": "", "git": "git", "npm run": "npm run",
	} {
		if got := strings.Join(reusablePrefix(strings.Fields(words)), " "); got != want {
			t.Errorf("the prefix of %q is %q, want %q", words, got, want)
		}
	}
	for line, want := range map[string][]string{
		"git checkout main": {"git checkout *"}, "npm run dev x": {"npm run dev x"}, "git status": {"git status"}, "ls": {"ls"},
		"rm *.o": {"rm ?.o"}, "git -C x status": {"git -C x status"}, "sudo rm x": {"rm x", "sudo rm x"}, "$X *": {"$X ?"}, "ls > *": {"ls", "> ?"},
	} {
		if got := Analyze(line, "sh").SavePatterns; !slices.Equal(got, want) {
			t.Errorf("%q saves %q, want %q", line, got, want)
		}
	}
}

func FuzzAnalyze(f *testing.F) {
	for _, seed := range []string{"ls", "a; b", "$(x)", "echo 'a", "<(x)", "a > b", "((1+2))", "[[ a ]]", "case x in a) b;; esac", "\\\n", "find -exec", "eval eval eval x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.TrimSpace(line) == "" {
			return
		}
		got := Analyze(line, "sh")
		if len(got.Resources) == 0 || len(got.SavePatterns) == 0 || slices.Contains(got.Resources, "") {
			t.Fatalf("Analyze(%q) = %+v", line, got)
		}
		for _, resource := range got.Resources {
			if !slices.ContainsFunc(got.SavePatterns, func(save string) bool { return domain.Match(save, resource) }) {
				t.Fatalf("Analyze(%q) = %q, of which %q is saved by none of %q", line, got.Resources, resource, got.SavePatterns)
			}
		}
	})
}
