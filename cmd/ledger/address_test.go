package main

import (
	"strings"
	"testing"
)

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

func TestOnlyConnectionStringsAreNoFolders(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"store", "/a/b", "C:store", "esdb", "a:b/c", ""} {
		if at, err := parseAddress(text); err != nil || at.folder != text || at.database != "" {
			t.Errorf("parseAddress(%q) = %+v, %v, want a folder", text, at, err)
		}
	}
	for _, text := range []string{"postgres://ada:secret@db", "esdb:/db", "http://db"} {
		if at, err := parseAddress(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("parseAddress(%q) = %+v, %v, want an error without the password", text, at, err)
		}
	}
}

func TestANamespaceIsTakenFromTheConnectionString(t *testing.T) {
	t.Parallel()
	at, err := parseAddress("esdb://ada:secret@db:2113?tls=false&namespace=team")
	if err != nil || at.namespace != "team." || at.database != "esdb://ada:secret@db:2113?tls=false" {
		t.Errorf("parseAddress = %+v, %v", at, err)
	}
}
