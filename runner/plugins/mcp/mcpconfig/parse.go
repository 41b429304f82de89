package mcpconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxFile is the size of a file in bytes.
const MaxFile = 1 << 20

// The limits of an entry.
const (
	maxDuration    = time.Hour
	maxConcurrency = 64
	maxArgs        = 256
	maxServers     = 64
)

// A FileOrigin says where a file comes from.
type FileOrigin struct {
	// File is the path of the file, for texts.
	File string
	// Foreign is set for the file of a project.
	Foreign bool
	// Environment is the environment from which variables are expanded, as KEY=VALUE.
	Environment []string
}

// The grammars of names.
var (
	serverName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,31}$`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	headerName   = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
)

// Parse returns the servers of a file, sorted by name, and the faults of its invalid
// entries. A disabled entry that is valid gives neither.
func Parse(data []byte, from FileOrigin) (servers []ServerEntry, faults []*Fault) {
	whole := func(key, reason string) []*Fault {
		return append(faults, &Fault{File: from.File, Key: key, Reason: reason})
	}
	if len(data) > MaxFile {
		return nil, whole("", fmt.Sprintf("the file is over the limit of %d bytes", MaxFile))
	}
	top, err := object(data)
	if err != nil {
		return nil, whole("", "it is no JSON object: "+err.Error())
	}
	for _, key := range slices.Sorted(maps.Keys(top)) {
		if key != "mcpServers" {
			faults = whole(key, "unknown key: write the servers in mcpServers")
		}
	}
	list, err := object(top["mcpServers"])
	if err != nil {
		return nil, whole("mcpServers", "write an object with a key for each server: "+err.Error())
	}
	for i, name := range slices.Sorted(maps.Keys(list)) {
		if i == maxServers {
			return servers, whole("mcpServers", fmt.Sprintf("it has more than %d servers; the first ones by name are used", maxServers))
		}
		s, enabled, fault := parseEntry(name, list[name], from)
		if fault != nil {
			faults = append(faults, fault)
		} else if enabled {
			servers = append(servers, s)
		}
	}
	return servers, faults
}

// object decodes a JSON object. It returns an error that quotes no value.
func object(data jsontext.Value) (map[string]jsontext.Value, error) {
	if len(data) == 0 {
		return nil, errors.New("it is missing")
	}
	var m map[string]jsontext.Value
	if err := json.Unmarshal(data, &m); err != nil {
		if fault, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			return nil, fmt.Errorf("at byte %d, below %q: %w", fault.ByteOffset, fault.JSONPointer, errorKind(fault.Err))
		}
		return nil, errors.New("it has another type")
	}
	if m == nil {
		return nil, errors.New("it is null")
	}
	return m, nil
}

// errorKind returns the reason of a syntactic error if it quotes no part of the file.
func errorKind(err error) error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return errors.New("the key occurs twice")
	}
	return errors.New("the JSON is broken")
}

// An entry is an entry while it is parsed.
type entry struct {
	expander
	keys map[string]jsontext.Value
	s    ServerEntry
	// enabled is false for a disabled entry.
	enabled bool
	kind    string
}

// An entryKey is a key of an entry with its parser.
type entryKey struct {
	name  string
	parse func(*entry, jsontext.Value) error
}

// entryKeys are the keys of an entry, in the order in which they are parsed.
var entryKeys = []entryKey{
	{"type", (*entry).parseType},
	{"command", func(e *entry, v jsontext.Value) error { return e.text(v, &e.s.Command) }},
	{"args", (*entry).parseArgs},
	{"env", (*entry).parseEnv},
	{"cwd", func(e *entry, v jsontext.Value) error { return e.text(v, &e.s.Dir) }},
	{"url", (*entry).parseURL},
	{"headers", (*entry).parseHeaders},
	{"timeout", func(e *entry, v jsontext.Value) error { return duration(v, &e.s.Timeout) }},
	{"startup_timeout", func(e *entry, v jsontext.Value) error { return duration(v, &e.s.StartupTimeout) }},
	{"concurrency", (*entry).parseConcurrency},
	{"disabled", (*entry).parseDisabled},
	{"tools", (*entry).parseTools},
}

// parseEntry parses one entry.
func parseEntry(name string, data jsontext.Value, from FileOrigin) (s ServerEntry, enabled bool, fault *Fault) {
	bad := func(key, reason string) (ServerEntry, bool, *Fault) {
		return ServerEntry{}, false, &Fault{File: from.File, Server: name, Key: key, Reason: reason}
	}
	if !serverName.MatchString(name) {
		return bad("", "the name must have 1 to 32 letters, digits, underscores and hyphens, and begin with a letter")
	}
	keys, err := object(data)
	if err != nil {
		return bad("", "write an object: "+err.Error())
	}
	e := &entry{expander: expander{environ: from.Environment}, keys: keys, enabled: true}
	e.s = ServerEntry{
		Name: name, File: from.File, Foreign: from.Foreign,
		Timeout: DefaultTimeout, StartupTimeout: DefaultStartupTimeout, Concurrency: DefaultConcurrency,
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.ContainsFunc(entryKeys, func(k entryKey) bool { return k.name == key }) {
			return bad(key, "unknown key: write it as docs/mcp.md lists it, or remove it")
		}
	}
	for _, key := range entryKeys {
		if value, ok := keys[key.name]; ok {
			if err := key.parse(e, value); err != nil {
				return bad(key.name, err.Error())
			}
		}
	}
	if key, err := e.checkKind(); err != nil {
		return bad(key, err.Error())
	}
	e.describe()
	return e.s, e.enabled, nil
}

// checkKind checks that the keys belong to one kind of server. It returns the key at
// fault.
func (e *entry) checkKind() (key string, err error) {
	if e.kind == "" {
		e.kind = "stdio"
		if e.keys["url"] != nil {
			e.kind = "http"
		}
	}
	other, needed, value := []string{"url", "headers"}, "command", e.s.Command
	if e.kind == "http" {
		other, needed, value = []string{"command", "args", "env", "cwd"}, "url", e.s.URL
	}
	for _, key := range other {
		if e.keys[key] != nil {
			return key, fmt.Errorf("a server of the type %s has no such key", e.kind)
		}
	}
	if value == "" {
		return needed, fmt.Errorf("a server of the type %s needs it", e.kind)
	}
	return "", nil
}

// describe sets what a person reads and the digest.
func (e *entry) describe() {
	data, _ := json.Marshal(e.keys, json.Deterministic(true)) // the values were parsed already
	sum := sha256.Sum256(data)
	e.s.Digest = hex.EncodeToString(sum[:])
	shown := jsontext.Value(data)
	_ = shown.Indent(jsontext.WithIndent("  "))
	e.s.Shown = string(shown)
	e.s.Secrets = append(e.s.Secrets, e.secrets...)
	slices.Sort(e.s.Secrets)
	e.s.Secrets = slices.Compact(e.s.Secrets)
}

// text decodes a string and expands its variables.
func (e *entry) text(v jsontext.Value, to *string) error {
	var raw string
	if v.Kind() != '"' || json.Unmarshal(v, &raw) != nil {
		return errors.New("write a string")
	}
	if strings.ContainsRune(raw, 0) {
		return errors.New("it has a NUL")
	}
	expanded, err := e.expand(raw)
	if err == nil && strings.ContainsRune(expanded, 0) {
		err = errors.New("a variable in it has a NUL")
	}
	*to = expanded
	return err
}

func (e *entry) parseType(v jsontext.Value) error {
	var kind string
	if err := e.text(v, &kind); err != nil {
		return err
	}
	switch kind {
	case "stdio":
		e.kind = "stdio"
	case "http", "streamable-http":
		e.kind = "http"
	case "sse":
		return errors.New(`the transport sse is not supported: use the streamable HTTP address of the server with the type "http"`)
	default:
		return errors.New(`the type is none of "stdio", "http" and "streamable-http"`)
	}
	return nil
}

// list decodes an array of strings.
func (e *entry) list(v jsontext.Value) ([]string, error) {
	var raw []jsontext.Value
	if v.Kind() != '[' || json.Unmarshal(v, &raw) != nil {
		return nil, errors.New("write an array of strings")
	}
	if len(raw) > maxArgs {
		return nil, fmt.Errorf("it has more than %d elements", maxArgs)
	}
	all := make([]string, len(raw))
	for i := range raw {
		if err := e.text(raw[i], &all[i]); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return all, nil
}

func (e *entry) parseArgs(v jsontext.Value) (err error) {
	e.s.Args, err = e.list(v)
	return err
}

// values decodes an object of strings. The grammar checks the names.
func (e *entry) values(v jsontext.Value, grammar *regexp.Regexp) (map[string]string, error) {
	keys, err := object(v)
	if err != nil {
		return nil, errors.New("write an object of strings")
	}
	all := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !grammar.MatchString(key) {
			return nil, fmt.Errorf("%q is not a valid name", key)
		}
		var value string
		if err := e.text(keys[key], &value); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		all[key] = value
	}
	return all, nil
}

func (e *entry) parseEnv(v jsontext.Value) error {
	values, err := e.values(v, variableName)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if strings.HasPrefix(name, "LEDGER_") {
			return fmt.Errorf("%s is a variable of the ledger, which no server gets", name)
		}
		e.s.Env = append(e.s.Env, name+"="+values[name])
		if !isPublic(name) {
			e.s.Secrets = append(e.s.Secrets, values[name])
		}
	}
	return nil
}

func (e *entry) parseURL(v jsontext.Value) error {
	if err := e.text(v, &e.s.URL); err != nil {
		return err
	}
	secrets, err := checkURL(e.s.URL)
	e.s.Secrets = append(e.s.Secrets, secrets...)
	return err
}

// reservedHeaders are the headers that the protocol sets.
var reservedHeaders = []string{"Accept", "Content-Length", "Content-Type", "Host", "Last-Event-Id", "Mcp-Protocol-Version", "Mcp-Session-Id", "Transfer-Encoding"}

func (e *entry) parseHeaders(v jsontext.Value) error {
	values, err := e.values(v, headerName)
	if err != nil {
		return err
	}
	e.s.Headers = map[string]string{}
	for name, value := range values {
		canonical := http.CanonicalHeaderKey(name)
		if slices.Contains(reservedHeaders, canonical) {
			return fmt.Errorf("%s is set by the protocol", name)
		}
		if strings.ContainsAny(value, "\r\n") {
			return fmt.Errorf("%s: the value has a line end", name)
		}
		if _, twice := e.s.Headers[canonical]; twice {
			return fmt.Errorf("%s occurs twice in other case", name)
		}
		e.s.Headers[canonical] = value
		e.s.Secrets = append(e.s.Secrets, secretParts(value)...)
	}
	return nil
}

// duration decodes a duration such as 30s.
func duration(v jsontext.Value, to *time.Duration) error {
	var text string
	if v.Kind() == '"' && json.Unmarshal(v, &text) == nil {
		d, err := time.ParseDuration(text)
		if err == nil && d >= time.Millisecond && d <= maxDuration {
			*to = d
			return nil
		}
	}
	return fmt.Errorf(`write a duration from 1ms to %v as a string, such as "30s"`, maxDuration)
}

func (e *entry) parseConcurrency(v jsontext.Value) error {
	if json.Unmarshal(v, &e.s.Concurrency) != nil || v.Kind() != '0' || e.s.Concurrency < 1 || e.s.Concurrency > maxConcurrency {
		return fmt.Errorf("write a number from 1 to %d", maxConcurrency)
	}
	return nil
}

func (e *entry) parseDisabled(v jsontext.Value) error {
	if v.Kind() != 't' && v.Kind() != 'f' {
		return errors.New("write true or false")
	}
	e.enabled = v.Kind() == 'f'
	return nil
}

func (e *entry) parseTools(v jsontext.Value) error {
	keys, err := object(v)
	if err != nil {
		return errors.New("write an object with allow and deny")
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		list, err := e.list(keys[key])
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		switch key {
		case "allow":
			e.s.Allow = list
		case "deny":
			e.s.Deny = list
		default:
			return fmt.Errorf("unknown key %q: write allow or deny", key)
		}
	}
	return nil
}
