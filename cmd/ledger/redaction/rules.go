package redaction

import "strings"

// A Rule finds one kind of secret.
type Rule struct {
	// Name is the name in the mark.
	Name string
	// Hides describes the texts that the rule hides.
	Hides string
}

// The names of the rules that are not tokens with a prefix.
const (
	pemKey      = "private-key"
	jwt         = "jwt"
	bearer      = "bearer-token"
	urlPassword = "url-password"
	assigned    = "assigned-secret"
	homeFolder  = "home-folder"
	userName    = "user-name"
	hostName    = "host-name"
)

// Rules returns all rules, in the order of docs/redaction.md.
func Rules() []Rule {
	rules := make([]Rule, 0, len(tokens)+8)
	for _, t := range tokens {
		rules = append(rules, Rule{t.rule, t.hides})
	}
	return append(rules,
		Rule{jwt, "JSON Web Tokens: three base64url parts, of which the first begins with eyJ"},
		Rule{pemKey, "PEM blocks of private keys, from BEGIN to END"},
		Rule{bearer, "the token after Bearer, and after Authorization: Basic or Authorization: Token"},
		Rule{urlPassword, "the password of a URL such as https://USER:PASSWORD@HOST"},
		Rule{assigned, "the value that =, : or a JSON member gives to a name that ends in password, passphrase, secret, token, credentials, api key, access key, private key and the like"},
		Rule{homeFolder, "/home/USER, /Users/USER and C:\\Users\\USER, which become ~"},
		Rule{userName, "the OS user who decided, approved or answered, in the fields that record it"},
		Rule{hostName, "the name of a machine, in the fields that record it"},
	)
}

// A token is a kind of secret that is a prefix and a run of characters.
type token struct {
	rule, hides string
	prefixes    []string
	class       *class // of the characters after the prefix
	min, max    int    // number of these characters; max 0: unlimited
	digit       bool   // one of the characters must be a digit
}

// tokens are the secrets with a prefix. Of two that fit, the earlier one counts.
var tokens = []token{
	{rule: "anthropic-key", hides: "sk-ant-… of Anthropic", prefixes: []string{"sk-ant-"}, class: wordOrDash, min: 20},
	{rule: "openrouter-key", hides: "sk-or-v1-… of OpenRouter", prefixes: []string{"sk-or-v1-"}, class: alnum, min: 32},
	{rule: "openai-key", hides: "sk-proj-…, sk-svcacct-… and sk-admin-… of OpenAI", prefixes: []string{"sk-proj-", "sk-svcacct-", "sk-admin-"}, class: wordOrDash, min: 20},
	{rule: "secret-key", hides: "sk-… of OpenAI and of servers with its interface", prefixes: []string{"sk-"}, class: alnum, min: 20, digit: true},
	{rule: "google-key", hides: "AIza… of Google", prefixes: []string{"AIza"}, class: wordOrDash, min: 35, max: 35},
	{rule: "google-oauth", hides: "ya29.… and GOCSPX-… of Google", prefixes: []string{"ya29.", "GOCSPX-"}, class: wordOrDash, min: 20},
	{rule: "model-key", hides: "gsk_… of Groq, xai-… of xAI, r8_… of Replicate, pplx-… of Perplexity", prefixes: []string{"gsk_", "xai-", "r8_", "pplx-"}, class: alnum, min: 32},
	{rule: "huggingface-token", hides: "hf_… of Hugging Face", prefixes: []string{"hf_"}, class: alnum, min: 30},
	{rule: "aws-key-id", hides: "AKIA…, ASIA…, ABIA… and ACCA… of AWS", prefixes: []string{"AKIA", "ASIA", "ABIA", "ACCA"}, class: upper, min: 16, max: 16, digit: true},
	{rule: "github-token", hides: "ghp_…, gho_…, ghu_…, ghs_…, ghr_… and github_pat_… of GitHub",
		prefixes: []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"}, class: word, min: 22},
	{rule: "gitlab-token", hides: "glpat-… and the other gl…- tokens of GitLab",
		prefixes: []string{"glpat-", "glptt-", "gldt-", "glrt-", "glcbt-", "glft-", "glsoat-", "glimt-", "glagent-"}, class: wordOrDash, min: 20},
	{rule: "slack-token", hides: "xoxb-…, xoxp-…, xoxa-…, xoxr-…, xoxs-…, xoxe-… and xapp-… of Slack",
		prefixes: []string{"xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xapp-"}, class: wordOrDash, min: 10, digit: true},
	{rule: "slack-webhook", hides: "hooks.slack.com/services/…", prefixes: []string{"hooks.slack.com/services/"}, class: path, min: 20},
	{rule: "npm-token", hides: "npm_… of npm", prefixes: []string{"npm_"}, class: alnum, min: 36},
	{rule: "pypi-token", hides: "pypi-… of PyPI", prefixes: []string{"pypi-"}, class: wordOrDash, min: 50},
	{rule: "stripe-key", hides: "sk_live_…, sk_test_…, rk_live_…, rk_test_… and whsec_… of Stripe",
		prefixes: []string{"sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"}, class: alnum, min: 16},
	{rule: "sendgrid-key", hides: "SG.… of SendGrid", prefixes: []string{"SG."}, class: dotted, min: 40},
	{rule: "digitalocean-token", hides: "dop_v1_…, doo_v1_… and dor_v1_… of DigitalOcean", prefixes: []string{"dop_v1_", "doo_v1_", "dor_v1_"}, class: alnum, min: 40},
	{rule: "docker-token", hides: "dckr_pat_… of Docker", prefixes: []string{"dckr_pat_"}, class: wordOrDash, min: 20},
	{rule: "vault-token", hides: "hvs.… and hvb.… of Vault", prefixes: []string{"hvs.", "hvb."}, class: wordOrDash, min: 20},
	{rule: "age-key", hides: "AGE-SECRET-KEY-1… of age", prefixes: []string{"AGE-SECRET-KEY-1"}, class: upper, min: 50},
}

// A class is a set of ASCII characters.
type class [256]bool

// The classes of the characters of secrets.
var (
	upper      = newClass("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
	alnum      = newClass("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdefghijklmnopqrstuvwxyz")
	word       = alnum.with("_")
	wordOrDash = word.with("-")
	dotted     = wordOrDash.with(".")
	path       = wordOrDash.with("/")
	base64     = dotted.with("~+/=")
	digits     = newClass("0123456789")
)

// newClass returns the class of the characters of a text.
func newClass(characters string) *class { return new(class).with(characters) }

// with returns a class with further characters.
func (c *class) with(characters string) *class {
	more := *c
	for i := range len(characters) {
		more[characters[i]] = true
	}
	return &more
}

// run returns the number of characters of the class at the beginning of text, at most
// window.
func (c *class) run(text string) int {
	n := 0
	for n < len(text) && n < window && c[text[n]] {
		n++
	}
	return n
}

// length returns the length of the token at the beginning of text, or 0.
func (t *token) length(text string) int {
	for _, prefix := range t.prefixes {
		if !strings.HasPrefix(text, prefix) {
			continue
		}
		rest := text[len(prefix):]
		n := t.class.run(rest)
		if n < t.min || t.max > 0 && n > t.max || t.digit && !strings.ContainsAny(rest[:n], "0123456789") {
			continue
		}
		return len(prefix) + n
	}
	return 0
}

// byFirst has the tokens by the first characters of their prefixes, and beginnings the
// characters at which a rule may find something.
var byFirst, beginnings = indexRules()

// indexRules fills byFirst and beginnings.
func indexRules() (first [256][]*token, all class) {
	for i := range tokens {
		for _, prefix := range tokens[i].prefixes {
			c := prefix[0]
			if n := len(first[c]); n == 0 || first[c][n-1] != &tokens[i] {
				first[c] = append(first[c], &tokens[i])
			}
			all[c] = true
		}
	}
	// eyJ, -----BEGIN, Bearer, Authorization, ://, NAME=, /home, /Users, C:\Users
	return first, *all.with("e-BbAa:=/ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
}
