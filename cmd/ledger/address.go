package main

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// An address is where a store is: in a folder, or in the database that a
// connection string names.
type address struct {
	folder    string // empty: a database
	database  string // the connection string, with its credentials and without the namespace
	namespace string // of the ledger in the database
}

// schemes are those of connection strings.
var schemes = []string{"esdb", "esdb+discover", "kdb", "kdb+discover", "kurrent", "kurrent+discover", "kurrentdb", "kurrentdb+discover"}

// parseAddress reads what --store is given: a connection string where it has a
// scheme, and else a folder. The setting namespace of a connection string is the
// ledger's own.
func parseAddress(text string) (address, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		if word, _, ok := strings.Cut(text, ":/"); ok && slices.Contains(schemes, strings.ToLower(word)) {
			return address{}, hinted(misuse("--store: a connection string begins with %s:// and this one with %s:/", word, word), "write "+word+"://HOST:PORT")
		}
		return address{folder: text}, nil
	}
	if !slices.Contains(schemes, strings.ToLower(scheme)) {
		return address{}, hinted(misuse("--store: %q is neither a folder nor a connection string", visible(scheme)+"://…"), "a connection string begins with esdb:// or kurrentdb://")
	}
	a := address{database: text}
	hosts, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil || !values.Has("namespace") {
		return a, nil // package eventstoredb tells what is wrong
	}
	a.namespace = strings.TrimSuffix(values.Get("namespace"), ".") + "."
	values.Del("namespace")
	a.database = scheme + "://" + hosts
	if len(values) > 0 {
		a.database += "?" + values.Encode()
	}
	return a, nil
}

// String returns the address without credentials and without what only this
// machine knows.
func (a address) String() string {
	if a.database == "" {
		return a.folder
	}
	scheme, rest, _ := strings.Cut(a.database, "://")
	hosts, query, _ := strings.Cut(rest, "?")
	shown := url.Values{}
	if values, err := url.ParseQuery(query); err == nil && values.Has("tls") {
		shown.Set("tls", values.Get("tls"))
	}
	if a.namespace != "" {
		shown.Set("namespace", strings.TrimSuffix(a.namespace, "."))
	}
	text := scheme + "://" + hosts[strings.LastIndex(hosts, "@")+1:]
	if len(shown) > 0 {
		text += "?" + shown.Encode()
	}
	return text
}

// where returns the address of the store that is meant.
func (a *app) where() (address, error) {
	if a.store != "" {
		return parseAddress(a.store)
	}
	if text := a.variable("LEDGER_STORE"); text != "" {
		return parseAddress(text)
	}
	dir, err := a.dataDir("ledger")
	if err != nil {
		return address{}, misuse("no store is named, and HOME is not set: name one with --store")
	}
	return address{folder: dir}, nil
}

// dataDir returns a folder of this name for what programs keep.
func (a *app) dataDir(name string) (string, error) {
	if dir := a.variable("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, name), nil
	}
	if home := a.variable("HOME"); home != "" {
		return filepath.Join(home, ".local", "share", name), nil
	}
	return "", misuse("nothing is named, and HOME is not set")
}

// storeDir returns the folder of the store that is meant, for what is done to a
// folder.
func (a *app) storeDir() (string, error) {
	at, err := a.where()
	if err == nil && at.database != "" {
		err = hinted(misuse("%s looks after a folder, and --store names %s", a.command, at), "run it where the folder is, and name that with --store")
	}
	return at.folder, err
}
