package stores

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
)

// An Address is where a store is: in a folder, or in the database that a
// connection string names.
type Address struct {
	Folder    string // empty: a database
	Database  string // the connection string, with its credentials and without the ledger's own settings
	Namespace string // of the ledger in the database
	maxAppend int    // bytes of an append; 0: what the server is known to take
}

// schemes are those of connection strings.
var schemes = []string{"esdb", "esdb+discover", "kdb", "kdb+discover", "kurrent", "kurrent+discover", "kurrentdb", "kurrentdb+discover"}

// The settings of a connection string that are the ledger's own.
const (
	namespaceSetting = "namespace"
	maxAppendSetting = "maxAppend"
)

// parseAddress reads where a store is: a connection string where the text has a
// scheme, and else a folder. No text of its errors is a piece of a password.
func parseAddress(text string) (Address, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return parseFolder(text)
	}
	if !slices.Contains(schemes, strings.ToLower(scheme)) {
		what := "it"
		if schemeGrammar.MatchString(scheme) {
			what = strconv.Quote(scheme + "://…")
		}
		return Address{}, fault.WithHint(fault.Usage("%s is neither a folder nor a connection string", what), "a connection string begins with esdb:// or kurrentdb://")
	}
	a := Address{Database: text}
	hosts, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return a, nil // package eventstoredb tells what is wrong
	}
	if err := a.take(values); err != nil {
		return Address{}, err
	}
	if a.Namespace != "" || a.maxAppend > 0 {
		a.Database = scheme + "://" + hosts
		if len(values) > 0 {
			a.Database += "?" + values.Encode()
		}
	}
	return a, nil
}

// schemeGrammar is that of what can stand before :// and is no secret.
var schemeGrammar = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

// parseFolder reads the path of a folder, and refuses what was meant for a
// connection string.
func parseFolder(text string) (Address, error) {
	first, _, _ := strings.Cut(text, "/")
	before, behind, ok := strings.Cut(first, ":")
	word := strings.ToLower(before)
	switch {
	case ok && slices.Contains(schemes, word):
		return Address{}, fault.WithHint(fault.Usage("a connection string begins with %s://", word), "write "+word+"://HOST:PORT, or ./"+word+":… for a folder")
	case ok && strings.Contains(behind, "@"):
		return Address{}, fault.WithHint(fault.Usage("it looks like a connection string without its beginning"), "write esdb://USER:PASSWORD@HOST:PORT, or begin the path of a folder with ./")
	}
	return Address{Folder: text}, nil
}

// take takes the ledger's own settings out of those of a connection string.
func (a *Address) take(values url.Values) error {
	given := map[string][]string{}
	for name, all := range values {
		for _, own := range []string{namespaceSetting, maxAppendSetting} {
			if strings.EqualFold(name, own) {
				given[own] = append(given[own], all...)
				delete(values, name)
			}
		}
	}
	for own, all := range given {
		if len(all) > 1 {
			return fault.Usage("the setting %s of the connection string is given twice", own)
		}
	}
	if all := given[namespaceSetting]; all != nil {
		a.Namespace = strings.TrimSuffix(all[0], ".") + "."
	}
	if all := given[maxAppendSetting]; all != nil {
		var err error
		if a.maxAppend, err = parseBytes(all[0]); err != nil {
			return fault.WithHint(fault.Usage("the setting %s of the connection string: %w", maxAppendSetting, err), "write a number of bytes such as maxAppend=16MiB: as much as the server takes at once")
		}
	}
	return nil
}

// mostAppend is what no server takes more than at once.
const mostAppend = 256 << 20

// parseBytes reads a number of bytes up to mostAppend, which can have the unit
// KiB or MiB.
func parseBytes(text string) (int, error) {
	digits, unit := text, 1
	for suffix, times := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			digits, unit = number, times
		}
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n == 0 || n > uint64(mostAppend/unit) {
		return 0, fmt.Errorf("%q is not a number of bytes up to 256MiB", text)
	}
	return int(n) * unit, nil
}

// Same reports whether two addresses lead to the same store, as far as they
// show.
func (a Address) Same(b Address) bool {
	if a.Database == "" && b.Database == "" {
		here, err := os.Stat(a.Folder)
		there, failed := os.Stat(b.Folder)
		return err == nil && failed == nil && os.SameFile(here, there) || filepath.Clean(a.Folder) == filepath.Clean(b.Folder)
	}
	if a.Database == "" || b.Database == "" {
		return false
	}
	return a.hosts() == b.hosts() && a.Namespace == b.Namespace
}

// hosts returns the nodes of a connection string, without credentials.
func (a Address) hosts() string {
	_, rest, _ := strings.Cut(a.Database, "://")
	hosts, _, _ := strings.Cut(rest, "?")
	return strings.TrimSuffix(hosts[strings.LastIndex(hosts, "@")+1:], "/")
}

// String returns the address without credentials and without what only this
// machine knows.
func (a Address) String() string {
	if a.Database == "" {
		return a.Folder
	}
	scheme, rest, _ := strings.Cut(a.Database, "://")
	_, query, _ := strings.Cut(rest, "?")
	shown := url.Values{}
	if values, err := url.ParseQuery(query); err == nil && values.Has("tls") {
		shown.Set("tls", values.Get("tls"))
	}
	if a.Namespace != "" {
		shown.Set("namespace", strings.TrimSuffix(a.Namespace, "."))
	}
	text := scheme + "://" + a.hosts()
	if len(shown) > 0 {
		text += "?" + shown.Encode()
	}
	return text
}

// ParseAddressOf reads an address, and says of an error where it was given.
func ParseAddressOf(given, text string) (Address, error) {
	at, err := parseAddress(text)
	if f, ok := errors.AsType[*fault.Error](err); ok {
		f.Err = fmt.Errorf("%s: %w", given, f.Err)
	}
	return at, err
}

// Where returns the address of the store that is meant.
func (o *Opener) Where() (Address, error) {
	switch {
	case o.Named != "":
		return ParseAddressOf("--store", o.Named)
	case o.NamedByFlag:
		return Address{}, fault.WithHint(fault.Usage("--store names nothing"), "name a folder or a connection string, or leave --store out")
	}
	if text := o.Getenv("LEDGER_STORE"); text != "" {
		return ParseAddressOf("LEDGER_STORE", text)
	}
	dir, err := o.dataDir("ledger")
	if err != nil {
		return Address{}, fault.Usage("no store is named, and HOME is not set: name one with --store")
	}
	return Address{Folder: dir}, nil
}

// dataDir returns a folder of this name for what programs keep.
func (o *Opener) dataDir(name string) (string, error) {
	if dir := o.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, name), nil
	}
	if home := o.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "share", name), nil
	}
	return "", fault.Usage("nothing is named, and HOME is not set")
}

// Folder returns the folder of the store that is meant, for what is done to a
// folder.
func (o *Opener) Folder() (string, error) {
	at, err := o.Where()
	if err == nil && at.Database != "" {
		err = fault.WithHint(fault.Usage("%s looks after a folder, and --store names %s", o.Command, at), "run it where the folder is, and name that with --store")
	}
	return at.Folder, err
}

// Plain reports whether a connection string asks for no TLS.
func (a Address) Plain() bool {
	_, query, _ := strings.Cut(a.Database, "?")
	values, _ := url.ParseQuery(query) // it was parsed before
	for name := range values {
		if strings.EqualFold(name, "tls") {
			return strings.EqualFold(values.Get(name), "false")
		}
	}
	return false
}
