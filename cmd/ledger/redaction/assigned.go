package redaction

import (
	"strings"
	"unicode"
)

// longestName is the length of the longest name that is looked at.
const longestName = 80

// nameCharacters are those of the names of variables, members and headers.
var nameCharacters = wordOrDash

// findAssigned finds the value that the = or : at a place gives to a name that says that
// it is secret.
func findAssigned(text string, at int) (finding, bool) {
	name, nameQuote := nameBefore(text, at)
	if name == "" || !saysSecret(name) {
		return finding{}, false
	}
	from := at + 1
	if text[at] == ':' && from < len(text) && text[from] == '=' {
		from++
	}
	spaces := blanks.run(text[from:min(len(text), from+8)])
	from += spaces
	to := from
	if q := quoteAt(text, from); q != "" {
		from += len(q)
		to = from + quotedLength(text[from:min(len(text), from+window)], q)
		if q != nameQuote && strings.IndexByte(",:]}", firstByte(strings.TrimLeft(text[from:to], " \t\r\n"))) >= 0 {
			return finding{}, false // the quote ends a string of JSON
		}
	} else if nameQuote == "" {
		const looked = 512
		to += valueCharacters.run(text[from:min(len(text), from+looked)])
		if !plausible(name, text[from:to], text[at] == '=' && spaces == 0) || to < len(text) && text[to] == '(' {
			return finding{}, false
		}
		to += valueCharacters.run(text[to:])
	}
	value := text[from:to]
	if placeholder(name, value) || hasFold(value, "bearer ") || hasFold(value, "basic ") { // the rule of the scheme finds the token
		return finding{}, false
	}
	if rule, n := tokenAt(value); n == len(value) {
		return finding{rule, from, to}, true
	}
	return finding{assigned, from, to}, true
}

// firstByte returns the first byte of a text; a comma if it is empty.
func firstByte(text string) byte {
	if text == "" {
		return ','
	}
	return text[0]
}

// quoteAt returns the quote at a place with the backslashes before it, or an empty text.
func quoteAt(text string, at int) string {
	n := backslashes.run(text[at:min(len(text), at+8)])
	if at+n < len(text) && quotes[text[at+n]] {
		return text[at : at+n+1]
	}
	return ""
}

var (
	blanks      = newClass(" \t")
	backslashes = newClass(`\`)
	quotes      = newClass("\"'`")
	// valueCharacters are those of a value without quotes.
	valueCharacters = base64.with("!@#$%^*?:|")
)

// nameBefore returns the name before a place, and the quote behind it with its
// backslashes, or an empty text.
func nameBefore(text string, at int) (name, quote string) {
	end := at
	for end > 0 && at-end < 4 && text[end-1] == ' ' {
		end--
	}
	if end > 0 && quotes[text[end-1]] {
		behind := end
		for end--; end > 0 && behind-end < 9 && text[end-1] == '\\'; end-- {
		}
		quote = text[end:behind]
	}
	begin := end
	for begin > 0 && end-begin < longestName && nameCharacters[text[begin-1]] {
		begin--
	}
	if begin > 0 && text[begin-1] == '\\' && begin < end && quote == "" { // the letter of an escape sequence
		begin++
	}
	return text[begin:end], quote
}

// quotedLength returns the length of a text up to its closing quote, which has the given
// backslashes. It returns 0 for a text without one on its line.
func quotedLength(text, quote string) int {
	slashes, mark := len(quote)-1, quote[len(quote)-1]
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\n':
			return 0
		case text[i] == mark:
			return i
		case text[i] != '\\':
		case slashes == 0:
			i++
		default:
			n := backslashes.run(text[i:])
			closes := i+n < len(text) && text[i+n] == mark
			if closes && n <= slashes {
				return i
			}
			if i += n - 1; closes {
				i++
			}
		}
	}
	return 0
}

// plausible reports whether a value without quotes can be a secret and not a word of a
// program: after NAME= of an environment any value can, elsewhere one with a digit, and after a name
// of several words a long one.
func plausible(name, value string, attached bool) bool {
	variable := name[strings.LastIndexByte(name, '-')+1:]
	if attached && strings.ToUpper(variable) == variable {
		return true
	}
	const long = 16
	if len(value) >= long && strings.ContainsAny(name, "_-") && alnum.with("/+=").run(value) == len(value) {
		return true
	}
	return len(value) >= 6 && strings.ContainsAny(value, "0123456789") && strings.IndexByte(value, ':') != 0
}

// placeholder reports whether a value only stands in the place of a secret, or is too short
// for one: the values of a "token" are often words.
func placeholder(name, value string) bool {
	const shortestToken = 8
	value = strings.TrimSpace(value)
	if value == "" || strings.HasPrefix(value, markStart) || len(value) < shortestToken && hasFold(name[max(0, len(name)-len("token")):], "token") {
		return true
	}
	switch value[0] {
	case '$', '<', '%', '{', '~':
		return true
	}
	if strings.Trim(value, "*") == "" || strings.Trim(value, "xX") == "" || strings.Trim(value, ".") == "" {
		return true
	}
	switch strings.ToLower(value) {
	case "null", "nil", "none", "true", "false", "string", "undefined", "password", "secret", "token", "required", "optional", "[redacted]", "redacted":
		return true
	}
	return false
}

// secretWords are the last words of the names of secrets, and secretKeys the words that
// make a secret of a key.
var (
	secretWords = []string{"password", "passwd", "passphrase", "secret", "token", "credential", "credentials", "apikey", "secretkey", "accesskey", "privatekey", "authkey", "authorization"}
	secretKeys  = map[string]bool{
		"api": true, "access": true, "secret": true, "private": true, "auth": true, "account": true, "signing": true,
		"encryption": true, "master": true, "shared": true, "deploy": true, "license": true,
	}
)

// saysSecret reports whether a name says that its value is secret: by its last word, such
// as in dbPassword, AUTH_TOKEN and x-api-key.
func saysSecret(name string) bool {
	if len(name) < 4 || len(name) > longestName {
		return false
	}
	words := wordsOf(name)
	if len(words) == 0 {
		return false
	}
	last := words[len(words)-1]
	for _, w := range secretWords {
		if strings.HasSuffix(last, w) {
			return true
		}
	}
	if len(words) < 2 {
		return false
	}
	before := words[len(words)-2]
	return last == "key" && secretKeys[before] || last == "pass" || last == "pwd"
}

// wordsOf returns the words of a name in lower case. They are separated by other
// characters than letters, or begin with a capital behind a small letter.
func wordsOf(name string) []string {
	var split strings.Builder
	small := false
	for _, c := range name {
		if small && unicode.IsUpper(c) {
			split.WriteByte(' ')
		}
		small = unicode.IsLower(c)
		split.WriteRune(unicode.ToLower(c))
	}
	return strings.FieldsFunc(split.String(), func(c rune) bool { return !unicode.IsLetter(c) })
}
