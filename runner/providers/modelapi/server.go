package modelapi

import (
	"errors"
	"net"
	"net/url"
	"strings"
)

// errBadURL is the error of Host. The text of the URL may contain a password.
var errBadURL = errors.New("must be http or https, with a host and without a user and a query")

// Host returns the host of a base URL without its port. It returns an error for a URL of
// another scheme, without a host, or with a user or a query; the text of the error does not
// contain the URL.
func Host(baseURL string) (string, error) {
	server, err := url.Parse(baseURL)
	if err != nil || server.Scheme != "http" && server.Scheme != "https" || server.Host == "" || server.RawQuery != "" || server.User != nil {
		return "", errBadURL
	}
	return server.Hostname(), nil
}

// Loopback reports whether a host is this machine.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// A ContextWindow has the limits of a model in tokens.
type ContextWindow struct {
	// Window is the number of tokens of a request and its reply together. Zero: it is not
	// known.
	Window int64
	// Output is the largest number of tokens of a reply.
	Output int64
}
