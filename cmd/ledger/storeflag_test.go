package main

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
)

// A malformed connection string is a usage error before any connection is opened. The
// error names the malformed part and holds no part of a password.
func TestConnectionStringsThatMakeNoSenseAreUsageErrors(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"esdb://":                                       "host",
		"esdb://ada:wonder@":                            "host",
		"esdb://:wonder@db":                             "username",
		"esdb://ada:wonder@db:":                         "port",
		"esdb://ada:wonder@db:port":                     "port",
		"esdb://ada:wonder@db:99999":                    "port",
		"esdb://ada:wonder@db:-1":                       "port",
		"esdb://ada:wonder@db:0":                        "port",
		"esdb://ada:wonder@db:1:2":                      "IPv6",
		"esdb://ada:wonder@[::1]:2113":                  "IPv6",
		"esdb://ada:wonder":                             "port",
		"esdb://ada:wonder,db":                          "port",
		"esdb://db:1,ada:wonder?tls=false":              "port",
		"esdb://ada:wonder@a:1,,b:2":                    "host",
		"esdb://ada:wonder@db/path":                     "path",
		"esdb://ada:won,der@db":                         "%2C",
		"esdb://ada:wonder%@db":                         "",
		"esdb://ada:won/der@db":                         "",
		"esdb://ada:wonder@db?tls":                      "setting tls",
		"esdb://ada:wonder@db?tls=perhaps":              "setting tls",
		"esdb://ada:wonder@db?tlsVerifyCert=2":          "tlsVerifyCert",
		"esdb://ada:wonder@db?tlsCaFile=/not/there.pem": "there.pem",
		"esdb://ada:wonder@db?unheardOf=1":              "maxAppend",
		"esdb://ada:wonder@db?nodePreference=best":      "NodePreference",
		"esdb://ada:wonder@db?gossipTimeout=soon":       "gossipTimeout",
		"esdb://ada:wonder@db?a;b":                      "name=value",
		"esdb://ada:wonder@db?userCertFile=a":           "userKeyFile",
		"esdb://ada:wonder@db?namespace=a-b":            "letters, digits and underscores",
		"esdb://ada:wonder@db?namespace=":               "letters, digits and underscores",
		"esdb://ada:wonder@db?maxAppend=lots":           "maxAppend=16MiB",
		"esdb:/ada:wonder@db":                           "write esdb://",
		"ada:wonder@db:2113":                            "without its scheme",
		"ada:wonder@esdb://db":                          "begins with esdb://",
		"postgres://ada:wonder@db":                      "postgres://…",
	} {
		for _, args := range [][]string{{"call", "ls"}, {"doctor", "-o", "json"}} {
			got := ledger(t, text, args...)
			if got.exit != fault.ExitUsage || !strings.Contains(string(got.err), says) || strings.Contains(string(got.err)+string(got.out), "won") {
				t.Errorf("ledger %s --store %q = %d %s%s, want %d that says %q", args[0], text, got.exit, got.out, got.err, fault.ExitUsage, says)
			}
		}
	}
}

// --store takes precedence over LEDGER_STORE, and an error names the one of them that
// holds the bad value.
func TestTheStoreIsNamedByItsFlagBeforeTheEnvironment(t *testing.T) {
	t.Parallel()
	a := newApp(&render.Printer{Env: func(name string) (string, bool) {
		value, ok := map[string]string{"LEDGER_STORE": "there", "HOME": "/home/ada"}[name]
		return value, ok
	}}, nil, rand.Reader)
	for _, c := range []struct {
		store string
		named bool
		want  string
	}{{"", false, "there"}, {"here", true, "here"}} {
		a.Named, a.NamedByFlag = c.store, c.named
		if at, err := a.Where(); err != nil || at.Folder != c.want {
			t.Errorf("where() = %v, %v, want %s", at, err, c.want)
		}
	}
	if got := ledger(t, "", "call", "ls"); got.exit != fault.ExitUsage || !strings.Contains(string(got.err), "--store is empty") {
		t.Errorf(`ledger --store "" = %d %s, want a usage error`, got.exit, got.err)
	}
	a.Named, a.NamedByFlag, a.Env = "", false, func(string) (string, bool) { return "http://db", true }
	if _, err := a.Where(); err == nil || !strings.HasPrefix(err.Error(), "LEDGER_STORE: ") {
		t.Errorf("where() = %v, want an error of LEDGER_STORE", err)
	}
}
