package web

import (
	"cmp"
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// The reasons why a URL is refused before permission is requested. They do not repeat
// the URL, which may hold a password.
var (
	errNoURL       = errors.New("it is not a valid URL: write https://HOST/PATH")
	errScheme      = errors.New("only http and https can be fetched")
	errCredentials = errors.New("the URL holds a user name or a password: leave it out")
	errNoHost      = errors.New("the URL names no host")
	errPort        = errors.New("the port is not a number between 1 and 65535")
	errZone        = errors.New("an address with a zone cannot be fetched")
)

// A webTarget is a URL in canonical form: http or https, a host in lower case and ASCII,
// no default port, no dot segments, no credentials, no fragment. Different texts for the
// same resource give the same webTarget, so a rule cannot be passed by with another text.
type webTarget struct {
	url  *url.URL
	port uint16
}

// parseTarget returns the webTarget of a text. Its errors do not contain the text.
func parseTarget(text string) (webTarget, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return webTarget{}, errNoURL
	}
	return newTarget(u)
}

// newTarget returns the canonical form of an absolute URL. It does not change u.
func newTarget(u *url.URL) (webTarget, error) {
	defaultPort := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	switch {
	case defaultPort == "":
		return webTarget{}, errScheme
	case u.User != nil:
		return webTarget{}, errCredentials
	case u.Opaque != "" || u.Hostname() == "":
		return webTarget{}, errNoHost
	}
	host, err := canonicalHost(u.Hostname())
	if err != nil {
		return webTarget{}, err
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), defaultPort), 10, 16)
	if err != nil || port == 0 {
		return webTarget{}, errPort
	}
	clean := (&url.URL{}).ResolveReference(u) // removes dot segments
	clean.Fragment, clean.RawFragment = "", ""
	clean.Host = hostInURL(host)
	if text := strconv.FormatUint(port, 10); text != defaultPort {
		clean.Host += ":" + text
	}
	if clean.Path == "" {
		clean.Path = "/"
	}
	return webTarget{clean, uint16(port)}, nil
}

// canonicalHost returns a host name in lower case and ASCII without the dot of the root,
// or an IP address in its shortest form.
func canonicalHost(host string) (string, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return "", errZone
		}
		return a.Unmap().String(), nil
	}
	ascii := strings.ToLower(host)
	if strings.ContainsFunc(ascii, func(r rune) bool { return r >= 0x80 }) {
		var err error
		if ascii, err = idna.Lookup.ToASCII(host); err != nil {
			return "", errNoURL
		}
	}
	if ascii = strings.TrimSuffix(ascii, "."); ascii == "" || strings.ContainsAny(ascii, ":%") {
		return "", errNoHost
	}
	return ascii, nil
}

// hostInURL returns a host as the authority of a URL holds it: an IPv6 address in
// brackets.
func hostInURL(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// String returns the URL in canonical form.
func (t webTarget) String() string { return t.url.String() }

// host returns the name or the address of the host, without brackets.
func (t webTarget) host() string { return t.url.Hostname() }

// spellings returns other texts for the URL, which rules that ask or deny also match: the
// text as the model wrote it, and the path without percent-encoding.
func (t webTarget) spellings(written string) []string {
	decoded := t.url.Scheme + "://" + t.url.Host + t.url.Path
	if t.url.RawQuery != "" {
		decoded += "?" + t.url.RawQuery
	}
	return []string{withoutCredentials(written), decoded}
}

// redirect returns the target of a Location header, relative to t.
func (t webTarget) redirect(location string) (webTarget, error) {
	u, err := t.url.Parse(location)
	if err != nil {
		return webTarget{}, errNoURL
	}
	return newTarget(u)
}

// withoutCredentials returns a URL in one line and without user name and password. It
// accepts any text. If it cannot tell where the authority ends, it removes everything up
// to the last @.
func withoutCredentials(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	head, rest, ok := strings.Cut(text, "//")
	if !ok {
		head, rest = "", text
	} else {
		head += "//"
	}
	end := strings.IndexAny(rest, "/?#")
	if u, err := url.Parse(text); err != nil || u.Opaque != "" || end < 0 {
		end = len(rest)
	}
	if at := strings.LastIndexByte(rest[:end], '@'); at >= 0 {
		rest = rest[at+1:]
	}
	return head + rest
}
