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

// An Address locates a store: a folder of this machine, or a database that a
// connection string names. Exactly one of Folder and Database is set. An Address
// holds credentials; [Address.String] returns a text without them.
type Address struct {
	// Folder is the path of the folder, or empty for a database.
	Folder string
	// Database is the connection string, with its credentials and without the
	// ledger's own settings.
	Database string
	// Namespace is the prefix of the ledger's streams in the database, with its final
	// dot, or empty for no prefix.
	Namespace string
	// maxAppend is the limit of one append in bytes, or 0 for the known limit of the
	// server.
	maxAppend int
}

// schemes lists the URL schemes of connection strings.
var schemes = []string{"esdb", "esdb+discover", "kdb", "kdb+discover", "kurrent", "kurrent+discover", "kurrentdb", "kurrentdb+discover"}

// The settings of a connection string that the ledger reads and removes before it passes
// the string to the database client.
const (
	namespaceSetting = "namespace"
	maxAppendSetting = "maxAppend"
)

// parseAddress parses the address of a store. A text that contains "://" is a connection
// string; any other text is the path of a folder. An unknown scheme and an invalid
// setting of the ledger are usage errors; package eventstoredb checks the other
// settings. No error quotes a part of a password.
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
		return Address{}, fault.WithHint(fault.Usage("%s is neither a folder nor a connection string", what), "write a connection string that begins with esdb:// or kurrentdb://")
	}
	a := Address{Database: text}
	hosts, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return a, nil // package eventstoredb reports the error
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

// schemeGrammar matches a URL scheme. An error quotes text before "://" only if it matches:
// other text may contain a password.
var schemeGrammar = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

// parseFolder returns the address of the folder with the path text. It returns a
// usage error for a text that looks like an incomplete connection string, such as
// esdb:/db or user:password@host, because the folder would have a password in its
// name.
func parseFolder(text string) (Address, error) {
	first, _, _ := strings.Cut(text, "/")
	before, behind, ok := strings.Cut(first, ":")
	word := strings.ToLower(before)
	switch {
	case ok && slices.Contains(schemes, word):
		return Address{}, fault.WithHint(fault.Usage("a connection string begins with %s://", word), "write "+word+"://HOST:PORT, or ./"+word+":… for a folder")
	case ok && strings.Contains(behind, "@"):
		return Address{}, fault.WithHint(fault.Usage("a connection string without its scheme"), "write esdb://USER:PASSWORD@HOST:PORT, or begin the path of a folder with ./")
	}
	return Address{Folder: text}, nil
}

// take removes the settings of the ledger from values, which are the settings of a
// connection string, and stores them in a. The case of a setting's name does not matter.
// take returns a usage error for a setting that is given twice or is invalid.
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
			return fault.WithHint(fault.Usage("the setting %s of the connection string: %w", maxAppendSetting, err), "write the largest append in bytes that the server accepts, such as maxAppend=16MiB")
		}
	}
	return nil
}

// mostAppend is the greatest valid value of the setting maxAppend, in bytes. No server
// accepts a larger append.
const mostAppend = 256 << 20

// parseBytes parses a size between 1 byte and mostAppend. The units are KiB and MiB;
// a number without a unit is in bytes.
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

// Same reports whether two addresses name the same store. It compares folders by
// their files and databases by hosts and namespace. It does not recognize one
// database under two host names.
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

// hosts returns the part of a connection string that lists its nodes, HOST:PORT,HOST:PORT…,
// without credentials.
func (a Address) hosts() string {
	_, rest, _ := strings.Cut(a.Database, "://")
	hosts, _, _ := strings.Cut(rest, "?")
	return strings.TrimSuffix(hosts[strings.LastIndex(hosts, "@")+1:], "/")
}

// String returns the address for people and logs. Of a connection string it keeps the
// scheme, the hosts, tls and the namespace, and drops credentials and all other settings,
// which may name files of this machine.
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

// ParseAddressOf parses the address in text. Its errors begin with given, the name of
// the flag or the variable from which the text is.
func ParseAddressOf(given, text string) (Address, error) {
	at, err := parseAddress(text)
	if f, ok := errors.AsType[*fault.Error](err); ok {
		f.Err = fmt.Errorf("%s: %w", given, f.Err)
	}
	return at, err
}

// Where returns the address of the store of this command: the flag --store, or the
// variable LEDGER_STORE, or the default folder of the user. It returns a usage error
// for an invalid address, an empty --store, or a user without a home.
func (o *Opener) Where() (Address, error) {
	switch {
	case o.Named != "":
		return ParseAddressOf("--store", o.Named)
	case o.NamedByFlag:
		return Address{}, fault.WithHint(fault.Usage("--store is empty"), "name a folder or a connection string, or leave --store out")
	}
	if text := o.Getenv("LEDGER_STORE"); text != "" {
		return ParseAddressOf("LEDGER_STORE", text)
	}
	dir, err := o.dataDir("ledger")
	if err != nil {
		return Address{}, fault.Usage("no store: --store and LEDGER_STORE are not set, and HOME is not set either")
	}
	return Address{Folder: dir}, nil
}

// dataDir returns the path of the folder name in the user's data directory: in
// XDG_DATA_HOME if that is absolute, otherwise in ~/.local/share.
func (o *Opener) dataDir(name string) (string, error) {
	if dir := o.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, name), nil
	}
	if home := o.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "share", name), nil
	}
	return "", fault.Usage("no default folder: HOME is not set")
}

// ConfigFolder returns the folder of the user's configuration of the ledger: in
// XDG_CONFIG_HOME if that is absolute, otherwise in ~/.config. It is empty if HOME is not
// set either.
func (o *Opener) ConfigFolder() string {
	if dir := o.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "ledger")
	}
	if home := o.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".config", "ledger")
	}
	return ""
}

// StateFolder returns the folder of the ledger in the XDG state folder of the user, or "" if
// the environment names none.
func (o *Opener) StateFolder() string {
	if dir := o.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "ledger")
	}
	if home := o.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "state", "ledger")
	}
	return ""
}

// Folder returns the folder of the store of this command. It returns a usage error for a
// database. Commands that maintain files call it.
func (o *Opener) Folder() (string, error) {
	at, err := o.Where()
	if err == nil && at.Database != "" {
		err = fault.WithHint(fault.Usage("%s works on a folder, and --store names %s", o.Command, at), "run it on the machine of the folder, and name the folder with --store")
	}
	return at.Folder, err
}

// Plain reports whether a connection string turns TLS off with tls=false.
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
