package eventstoredb

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
)

// schemes are the accepted schemes of connection strings, each with the scheme that
// the client accepts for it. The client does not know the names of KurrentDB.
var schemes = map[string]string{
	"esdb":               "esdb",
	"esdb+discover":      "esdb+discover",
	"kdb":                "esdb",
	"kdb+discover":       "esdb+discover",
	"kurrent":            "esdb",
	"kurrent+discover":   "esdb+discover",
	"kurrentdb":          "esdb",
	"kurrentdb+discover": "esdb+discover",
}

// settings are the settings that the client accepts, in lower case, each with a check
// of its value. The client would ignore or misread other settings.
var settings = map[string]func(string) error{
	"connectionname":      anyValue,
	"defaultdeadline":     atLeast(1),
	"discoveryinterval":   atLeast(1),
	"gossiptimeout":       atLeast(1),
	"keepaliveinterval":   atLeast(-1),
	"keepalivetimeout":    atLeast(-1),
	"maxdiscoverattempts": atLeast(1),
	"nodepreference":      anyValue, // the client checks it
	"tls":                 boolean,
	"tlscafile":           anyValue,
	"tlsverifycert":       boolean,
	"usercertfile":        anyValue,
	"userkeyfile":         anyValue,
}

// anyValue accepts every value.
func anyValue(string) error { return nil }

// atLeast returns a check for a decimal number of at least least.
func atLeast(least int) func(string) error {
	return func(value string) error {
		if n, err := strconv.Atoi(value); err != nil || n < least || n > math.MaxInt32 {
			return fmt.Errorf("it is %q, not a number from %d", value, least)
		}
		return nil
	}
}

// boolean checks for a Boolean as strconv.ParseBool reads it, in any case.
func boolean(value string) error {
	if _, err := strconv.ParseBool(strings.ToLower(value)); err != nil {
		return fmt.Errorf("it is %q, not true or false", value)
	}
	return nil
}

// freeText are the settings whose values may contain an @.
var freeText = []string{"connectionname", "tlscafile", "usercertfile", "userkeyfile"}

// errUnescaped is the error for an @ that may belong to a password with unescaped
// characters. It quotes no part of the connection string.
var errUnescaped = fmt.Errorf("%w: write / ? and # in the user or the password as %%2F, %%3F and %%23, and @ in a setting as %%40", ErrBadAddress)

// minKeepAlive is the shortest interval that the transport of the client accepts.
const minKeepAlive = 10 * time.Second

// parseConnectionString checks a connection string and returns the configuration of
// the client. It returns ErrBadAddress for everything that the client would ignore,
// misread or reject later, and no error text contains a part of the string that can
// be a password. It logs a warning for a setting that has no effect. It reads the
// files of the user's certificate and opens no connection.
func parseConnectionString(connectionString string, log *slog.Logger) (*esdb.Configuration, error) {
	scheme, rest, ok := strings.Cut(connectionString, "://")
	known := schemes[strings.ToLower(scheme)]
	if !ok || known == "" {
		return nil, fmt.Errorf("%w: it does not begin with esdb:// or kurrentdb://", ErrBadAddress)
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 && strings.Contains(rest[end:], "@") {
		return nil, errUnescaped
	}
	hosts, query, _ := strings.Cut(rest, "?")
	if strings.Contains(hosts[:strings.LastIndex(hosts, "@")+1], ",") {
		return nil, fmt.Errorf("%w: write a comma in the user or the password as %%2C", ErrBadAddress)
	}
	for host := range strings.SplitSeq(hosts[strings.LastIndex(hosts, "@")+1:], ",") {
		if err := checkPort(host); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadAddress, err)
		}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("%w: the part after the question mark is not name=value&…", ErrBadAddress)
	}
	seen := map[string]bool{}
	interval := time.Duration(math.MinInt64)
	for _, name := range slices.Sorted(mapKeys(values)) {
		if strings.Contains(name+values.Get(name), "@") && !slices.Contains(freeText, strings.ToLower(name)) {
			return nil, errUnescaped
		}
		check := settings[strings.ToLower(name)]
		if check == nil {
			return nil, fmt.Errorf("%w: there is no setting %q; there are %s", ErrBadAddress, name, strings.Join(slices.Sorted(mapKeys(settings)), ", "))
		}
		if seen[strings.ToLower(name)] || len(values[name]) > 1 {
			return nil, fmt.Errorf("%w: setting %s is given twice", ErrBadAddress, name)
		}
		seen[strings.ToLower(name)] = true
		if err := check(values.Get(name)); err != nil {
			return nil, fmt.Errorf("%w: setting %s: %w", ErrBadAddress, name, err)
		}
		switch strings.ToLower(name) {
		case "connectionname": // the client does not know it
			values.Del(name)
		case "keepaliveinterval": // the client warns of a short one on standard error
			n, _ := strconv.Atoi(values.Get(name)) // check has accepted the value
			interval = max(time.Duration(n)*time.Millisecond, -1)
			values.Del(name)
		}
	}
	if query = values.Encode(); query != "" {
		query = "?" + query
	}
	c, err := esdb.ParseConnectionString(known + "://" + hosts + query)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrBadAddress, redactedText(err))
	}
	if interval >= 0 {
		c.KeepAliveInterval = max(interval, minKeepAlive)
	} else if interval == -1 {
		c.KeepAliveInterval = -1
	}
	if c.KeepAliveTimeout < 0 { // the transport would close the connection at each ping
		c.KeepAliveInterval = -1
	}
	if c.NodePreference != esdb.NodePreferenceLeader {
		// A ledger reads its own writes, and only the leader guarantees that. Another
		// node would reject the call, and the client would repeat it at the leader.
		log.Warn("nodePreference is not followed: every call goes to the leader, because a ledger reads what it wrote", "nodePreference", c.NodePreference.String())
		c.NodePreference = esdb.NodePreferenceLeader
	}
	if c.DisableTLS && c.Username != "" {
		log.Warn("credentials are never sent without TLS: remove tls=false, or the user and the password")
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadAddress, err)
	}
	if c.UserCertFile != "" { // the client reads the files at each connection
		if _, err := tls.LoadX509KeyPair(c.UserCertFile, c.UserKeyFile); err != nil {
			return nil, fmt.Errorf("%w: the user's certificate: %w", ErrBadAddress, err)
		}
	}
	return c, nil
}

// checkPort returns an error for a host whose port is not a number from 1 to 65535.
// The client would use the low 16 bits of a greater number. A host without a port is
// valid. The error does not quote the port, which can be a part of a password.
func checkPort(host string) error {
	host, _, _ = strings.Cut(host, "/") // the client rejects a path
	_, port, ok := strings.Cut(host, ":")
	if !ok {
		return nil // the default port
	}
	if strings.Contains(port, ":") {
		return errors.New("a node has more than one colon; the client takes no IPv6 address, but a name of it")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("the port of a node is not a number from 1 to 65535")
	}
	return nil
}

// redactedText returns the text of an error of url.Parse without the quoted address,
// and the text of any other error.
func redactedText(err error) string {
	if parsing, ok := errors.AsType[*url.Error](err); ok {
		// The quoted part of the cause can be a part of a password.
		cause, _, _ := strings.Cut(parsing.Err.Error(), `"`)
		return strings.TrimSpace(cause)
	}
	return err.Error()
}

// mapKeys iterates over the keys of m, in random order.
func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
