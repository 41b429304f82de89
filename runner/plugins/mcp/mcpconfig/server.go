package mcpconfig

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// The default values of an entry.
const (
	DefaultTimeout        = 2 * time.Minute
	DefaultStartupTimeout = 30 * time.Second
	DefaultConcurrency    = 8
)

// A ServerEntry is one valid entry. Either Command or URL is set.
type ServerEntry struct {
	Name string
	// File is the path of the file with the entry.
	File string
	// Foreign is set if the file came with a project, so that a person must agree before
	// the server starts.
	Foreign bool
	// Command, Args, Env and Dir start a process. Dir is relative to the workspace or
	// absolute. Empty: the workspace.
	Command string
	Args    []string
	Env     []string // KEY=VALUE, sorted
	Dir     string
	// URL and Headers reach a server over HTTP.
	URL     string
	Headers map[string]string
	// Timeout bounds one call, StartupTimeout the start with the first listing.
	Timeout, StartupTimeout time.Duration
	// Concurrency is the number of calls that run at once.
	Concurrency int
	// Allow and Deny are patterns of domain.Match for the names that the server gives its
	// tools. Empty Allow: all tools.
	Allow, Deny []string
	// Shown is the entry for a person, as it is written in the file, without expanded
	// variables.
	Shown string
	// Digest is the SHA-256 of the entry as it is written, in hexadecimal.
	Digest string
	// Secrets are the values that must not reach a log.
	Secrets []string
}

// A Fault says why an entry, or a whole file, is not used. It is an error.
type Fault struct {
	File   string
	Server string // empty: the whole file
	Key    string // empty: the whole entry
	Reason string
}

// Error returns the place and the reason.
func (f *Fault) Error() string {
	place := f.File
	if f.Server != "" {
		place += ": MCP server " + f.Server
	}
	if f.Key != "" {
		place += ": " + f.Key
	}
	return place + ": " + f.Reason
}

// Place returns a short name of the refused entry for a record.
func (f *Fault) Place() string {
	if f.Server == "" {
		return "mcp file " + f.File
	}
	return "mcp server " + f.Server
}

// secretParts returns the parts of a header value that are secret by themselves: the
// words of a text such as "Bearer TOKEN", and the password of basic authentication.
func secretParts(value string) []string {
	parts := []string{value}
	words := strings.Fields(value)
	if len(words) > 1 {
		parts = append(parts, words[1:]...)
	}
	if len(words) == 2 && strings.EqualFold(words[0], "basic") {
		if plain, err := base64.StdEncoding.DecodeString(words[1]); err == nil {
			_, password, _ := strings.Cut(string(plain), ":")
			parts = append(parts, string(plain), password)
		}
	}
	return parts
}

// checkURL checks the address of a server and returns its secrets: the password and the
// values of the query.
func checkURL(text string) (secrets []string, err error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("it is no URL") // the error would quote the text with its credentials
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("write an http or https URL with a host")
	case u.Fragment != "":
		return nil, fmt.Errorf("a URL of a server has no fragment")
	}
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, password, u.User.String())
	}
	for _, values := range u.Query() {
		secrets = append(secrets, values...)
	}
	return secrets, nil
}
