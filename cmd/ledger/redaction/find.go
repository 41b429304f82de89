package redaction

import (
	"strings"
)

// A finding is a secret in a text: text[from:to].
type finding struct {
	rule     string
	from, to int
}

// find returns the secret that a rule finds at a place of a text. The secret may begin
// after the place, as the password of a URL.
func find(text string, at int) (finding, bool) {
	switch text[at] {
	case '=', ':':
		if f, ok := findPassword(text, at); ok {
			return f, true
		}
		return findAssigned(text, at)
	case '/':
		return findHome(text, at)
	case '-':
		return findKey(text, at)
	}
	if !begins(text, at) {
		return finding{}, false
	}
	if rule, n := tokenAt(text[at:]); n > 0 {
		return finding{rule, at, at + n}, true
	}
	if f, ok := findBearer(text, at); ok {
		return f, true
	}
	return findWindowsHome(text, at)
}

// begins reports whether a secret can begin at a place: the character before it is not a
// part of a word, unless it ends an escape sequence of JSON, and no mark ends there.
func begins(text string, at int) bool {
	if at == 0 {
		return true
	}
	before := text[at-1]
	if before == '\\' && strings.IndexByte("nrtbfu/", text[at]) >= 0 {
		return false // it is the letter of an escape sequence itself
	}
	if before == ']' {
		return !endsMark(text[:at])
	}
	if before == '~' || before == '+' || before == '%' {
		return false
	}
	if !word[before] {
		return true
	}
	if at >= 2 && text[at-2] == '\\' && strings.IndexByte("nrtbf", before) >= 0 {
		return true
	}
	return at >= 6 && text[at-6] == '\\' && text[at-5] == 'u' && hexDigits.run(text[at-4:at]) == 4
}

// hexDigits are the digits of an escape sequence of JSON.
var hexDigits = digits.with("abcdefABCDEF")

// endsMark reports whether a text ends with a mark.
func endsMark(text string) bool {
	const longest = 64
	text = text[max(0, len(text)-longest):]
	i := strings.LastIndex(text, markStart)
	return i >= 0 && strings.IndexByte(text[i:], ']') == len(text)-i-1
}

// tokenAt returns the rule and the length of the token at the beginning of a text. The
// length is 0 if there is none.
func tokenAt(text string) (rule string, length int) {
	for _, t := range byFirst[text[0]] {
		if n := t.length(text); n > 0 {
			return t.rule, n
		}
	}
	return jwt, jwtLength(text)
}

// jwtLength returns the length of the JSON Web Token at the beginning of a text, or 0.
func jwtLength(text string) int {
	if !strings.HasPrefix(text, "eyJ") {
		return 0
	}
	const shortest = 8
	at := 0
	for part := range 3 {
		n := wordOrDash.run(text[at:])
		if n < shortest {
			return 0
		}
		if at += n; part < 2 {
			if at >= len(text) || text[at] != '.' {
				return 0
			}
			at++
		}
	}
	return at
}

// findKey finds the block of a private key that begins at a place.
func findKey(text string, at int) (finding, bool) {
	const begin, end, longestLabel = "-----BEGIN ", "-----END ", 40
	if !strings.HasPrefix(text[at:], begin) {
		return finding{}, false
	}
	rest := text[at:min(len(text), at+window)]
	label, _, ok := strings.Cut(rest[len(begin):min(len(rest), len(begin)+longestLabel)], "-----")
	if !ok || !strings.HasSuffix(label, "PRIVATE KEY") && label != "PGP PRIVATE KEY BLOCK" {
		return finding{}, false
	}
	n := len(begin) + len(label) + len("-----")
	n += keyBody(rest[n:])
	if closing := end + label + "-----"; strings.HasPrefix(rest[n:], closing) {
		n += len(closing)
	}
	return finding{pemKey, at, at + n}, true
}

// keyCharacters are the characters between the lines BEGIN and END of a private key.
var keyCharacters = alnum.with("+/=:,- \t\r\n")

// keyBody returns the length of the lines of a private key, whose line ends may be escape
// sequences of JSON, up to its END.
func keyBody(text string) int {
	n := 0
	for n < len(text) {
		switch {
		case strings.HasPrefix(text[n:], "-----"):
			return n
		case keyCharacters[text[n]]:
			n++
		case text[n] == '\\' && n+1 < len(text) && strings.IndexByte(`\nrt`, text[n+1]) >= 0:
			n += 2
		default:
			return n
		}
	}
	return n
}

// findBearer finds the token of an Authorization that begins at a place.
func findBearer(text string, at int) (finding, bool) {
	const shortest = 16
	rest := text[at:min(len(text), at+64)]
	scheme := len("bearer ")
	if !hasFold(rest, "bearer ") {
		if !hasFold(rest, "authorization") {
			return finding{}, false
		}
		scheme = len("authorization")
		scheme += len(rest[scheme:]) - len(strings.TrimLeft(rest[scheme:], `\"'=: `))
		found := false
		for _, word := range []string{"basic ", "token ", "bearer "} {
			if hasFold(rest[scheme:], word) {
				scheme, found = scheme+len(word), true
				break
			}
		}
		if !found {
			return finding{}, false
		}
	} else if n := base64.run(text[at+scheme:]); n < shortest || !strings.ContainsAny(text[at+scheme:at+scheme+n], "0123456789") {
		return finding{}, false
	}
	from := at + scheme
	n := base64.run(text[from:])
	if n < 6 {
		return finding{}, false
	}
	if rule, whole := tokenAt(text[from:]); whole == n {
		return finding{rule, from, from + n}, true
	}
	return finding{bearer, from, from + n}, true
}

// hasFold reports whether a text begins with an ASCII prefix in any case.
func hasFold(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}

// findPassword finds the password of a URL whose scheme ends at a place.
func findPassword(text string, at int) (finding, bool) {
	const longest = 512
	if !strings.HasPrefix(text[at:], "://") || at == 0 || !alnum[text[at-1]] {
		return finding{}, false
	}
	from := at + len("://")
	rest := text[from:min(len(text), from+longest)]
	end := strings.IndexAny(rest, "/?#\"'`<>\\ \t\r\n")
	if end < 0 {
		end = len(rest)
	}
	host := strings.LastIndexByte(rest[:end], '@')
	if host < 0 {
		return finding{}, false
	}
	colon := strings.IndexByte(rest[:host], ':')
	if colon < 0 || colon+1 == host || placeholder("password", rest[colon+1:host]) {
		return finding{}, false
	}
	return finding{urlPassword, from + colon + 1, from + host}, true
}

// userCharacters are those of the name of a folder below /home.
var userCharacters = dotted

// findHome finds a home folder that begins at a place.
func findHome(text string, at int) (finding, bool) {
	const longest = 64
	for _, parent := range []string{"/home/", "/Users/"} {
		if !strings.HasPrefix(text[at:], parent) || at > 0 && text[at-1] != '/' && !begins(text, at) || at > 0 && text[at-1] == '.' {
			continue
		}
		n := userCharacters.run(text[at+len(parent) : min(len(text), at+len(parent)+longest)])
		if user := text[at+len(parent) : at+len(parent)+n]; n > 0 && user != "Shared" && strings.Trim(user, ".") != "" {
			// A folder at the end of a sentence has no full stop.
			return finding{homeFolder, at, at + len(parent) + len(strings.TrimRight(user, "."))}, true
		}
	}
	return finding{}, false
}

// findWindowsHome finds a home folder such as C:\Users\USER that begins at a place.
func findWindowsHome(text string, at int) (finding, bool) {
	const longest = 64
	if len(text) < at+2 || text[at+1] != ':' {
		return finding{}, false
	}
	i := at + 2
	for _, part := range []string{"users", ""} {
		n := separators.run(text[i:min(len(text), i+8)])
		if i += n; n == 0 || !hasFold(text[i:], part) {
			return finding{}, false
		}
		i += len(part)
	}
	n := userCharacters.run(text[i:min(len(text), i+longest)])
	if n == 0 || strings.EqualFold(text[i:i+n], "public") || strings.Trim(text[i:i+n], ".") == "" {
		return finding{}, false
	}
	return finding{homeFolder, at, i + n}, true
}

// separators separate the folders of a Windows path, also as JSON escapes them.
var separators = newClass(`\/`)
