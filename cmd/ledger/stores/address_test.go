package stores

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The text of an address has the hosts, tls and the namespace, and neither credentials nor
// paths of key files.
func TestAddressesShowNoCredentials(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"esdb://ada:s%40cret@db:2113":                                     "esdb://db:2113",
		"esdb://ada:secret@a:1,b:2?tls=false&userKeyFile=/secret":         "esdb://a:1,b:2?tls=false",
		"kurrentdb://ada:secret@db?namespace=team":                        "kurrentdb://db?namespace=team",
		"esdb+discover://ada:secret@db?tls=true&namespace=team.":          "esdb+discover://db?namespace=team&tls=true",
		"esdb://ada:sec@ret@db:2113?defaultDeadline=5&userCertFile=/cred": "esdb://db:2113",
		"./folder": "./folder",
	} {
		at, err := parseAddress(text)
		if err != nil || at.String() != want {
			t.Errorf("parseAddress(%q) = %q, %v, want %q", text, at, err, want)
		}
	}
}

// A text without :// is the path of a folder, unless it looks like an incomplete connection
// string. An error never quotes the password.
func TestOnlyConnectionStringsAreNoFolders(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"store", "/a/b", "C:store", "esdb", "a:b/c", "./a:b@c", "a@b", "a/b:c@d", ""} {
		if at, err := parseAddress(text); err != nil || at.Folder != text || at.Database != "" {
			t.Errorf("parseAddress(%q) = %+v, %v, want a folder", text, at, err)
		}
	}
	for _, text := range []string{
		"postgres://ada:secret@db", "esdb:/db", "http://db", "esdb:db", "KurrentDB:/db", "ada:secret@db:2113", "ada:secret@db", "ada:secret@esdb://db", "://ada:secret@db",
		"esdb://ada:secret@db?namespace=a&namespace=secret", "esdb://ada:secret@db?maxAppend=", "esdb://db?maxAppend=0", "esdb://db?maxAppend=-1", "esdb://db?maxAppend=16MB",
		"esdb://db?maxAppend=257MiB", "esdb://db?maxAppend=99999999999KiB", "esdb://db?maxAppend=1.5MiB", "esdb://db?maxAppend=1&maxappend=2",
	} {
		if at, err := parseAddress(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("parseAddress(%q) = %+v, %v, want an error without the password", text, at, err)
		}
	}
}

// The setting namespace, in any case and with or without its final dot, becomes the Namespace
// and is not passed to the database client.
func TestANamespaceIsTakenFromTheConnectionString(t *testing.T) {
	t.Parallel()
	at, err := parseAddress("esdb://ada:secret@db:2113?tls=false&namespace=team")
	if err != nil || at.Namespace != "team." || at.Database != "esdb://ada:secret@db:2113?tls=false" {
		t.Errorf("parseAddress = %+v, %v", at, err)
	}
	if at, err := parseAddress("esdb://db?Namespace=team."); err != nil || at.Namespace != "team." || at.Database != "esdb://db" {
		t.Errorf("parseAddress = %+v, %v, want the namespace however it is written", at, err)
	}
}

// The setting maxAppend takes bytes, KiB and MiB up to 256 MiB, and is neither passed to the
// database client nor shown.
func TestTheLimitOfAnAppendIsTakenFromTheConnectionString(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"16MiB": 16 << 20, "256MiB": 256 << 20, "512KiB": 512 << 10, "1000": 1000, "268435456": 256 << 20,
	} {
		at, err := parseAddress("esdb://ada:secret@db:2113?tls=false&maxAppend=" + text)
		if err != nil || at.maxAppend != want || at.Database != "esdb://ada:secret@db:2113?tls=false" || at.String() != "esdb://db:2113?tls=false" {
			t.Errorf("parseAddress with maxAppend=%s = %+v, %v, want %d", text, at, err, want)
		}
	}
}

// Same ignores the spelling of a path, and the scheme, credentials and other settings of a
// connection string. It is symmetric.
func TestTwoAddressesOfOneStoreAreTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{dir, dir + "/.", true},
		{dir, dir + "/../" + filepath.Base(dir), true},
		{dir + "/none", dir + "/./none", true},
		{dir, dir + "/none", false},
		{dir, "esdb://db", false},
		{"esdb://ada:x@db:1?tls=false", "kurrentdb://db:1/?maxAppend=1MiB", true},
		{"esdb://db:1", "esdb://db:2", false},
		{"esdb://db:1", "esdb://db:1?namespace=a", false},
	} {
		a, errA := parseAddress(c.a)
		b, errB := parseAddress(c.b)
		if errA != nil || errB != nil || a.Same(b) != c.same || b.Same(a) != c.same {
			t.Errorf("%q and %q are the same: %v (%v, %v), want %v", c.a, c.b, a.Same(b), errA, errB, c.same)
		}
	}
}

// Clients of nodes send the user and password of the connection string, also of one with
// several hosts, and only over TLS.
func TestNodesAreAskedAsTheUserOfTheConnectionString(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		user, password string
		trusting       bool
	}{
		"esdb://ada:s%40cret@db:2113":                            {"ada", "s@cret", false},
		"kurrentdb://ada:secret@a:1,b:2,c:3?tlsVerifyCert=false": {"ada", "secret", true},
		"esdb+discover://ada:secret@db?TLS=true&namespace=team":  {"ada", "secret", false},
		"esdb://ada:secret@db:2113?tls=false":                    {"", "", false},
		"esdb://db:2113":                                         {"", "", false},
	} {
		at, err := parseAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := at.nodes()
		if err != nil || c.User != want.user || c.Password != want.password || c.TLS.InsecureSkipVerify != want.trusting {
			t.Errorf("nodes of %s = %q %q %v, %v, want %+v", text, c.User, c.Password, c.TLS.InsecureSkipVerify, err, want)
		}
	}
	for _, file := range []string{"/nowhere.pem", os.DevNull} {
		at, err := parseAddress("esdb://db?tlsCaFile=" + file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := at.nodes(); err == nil || !strings.Contains(err.Error(), "tlsCaFile") {
			t.Errorf("nodes with tlsCaFile=%s = %v, want an error that names it", file, err)
		}
	}
}
