package publish

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/BurntSushi/toml"
)

// ErrBadConfig reports an invalid configuration. The wrapped error names the key or
// the publication.
var ErrBadConfig = errors.New("configuration of publications is not valid")

// A JobConfig is a job of a configuration, with its target.
type JobConfig struct {
	Job
	// To is the target to open. It may contain credentials, so it is never printed or
	// saved; Job.Target is the redacted form.
	To string
}

// DefaultTopic is the topic of a job without a topic in its configuration.
const DefaultTopic = "ledger.{category}.{kind}"

// A jobTable is a [[publish]] table of a configuration in TOML, as ParseConfig
// documents it. Zero values select the defaults of the Policy.
type jobTable struct {
	Name  string `toml:"name"`
	To    string `toml:"to"`
	Topic string `toml:"topic"`
	From  Start  `toml:"from"`
	Filter
	InFlight int `toml:"in_flight"`
	Tries    int `toml:"tries"`
}

// ParseConfig returns the jobs of a configuration in TOML: a table [[publish]]
// for each, with the required keys name and to, and the optional keys topic,
// from, kinds, categories, streams, tools, agents, in_flight and tries. It
// replaces ${NAME} in to with the value that env returns for NAME. An invalid
// value, an unknown key and a repeated name are an ErrBadConfig. No error
// contains a target.
func ParseConfig(text []byte, env func(string) (string, bool)) ([]JobConfig, error) {
	var tables struct {
		Publish []jobTable `toml:"publish"`
	}
	about, err := toml.Decode(string(text), &tables)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadConfig, err)
	}
	if unknown := about.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("%w: %s is not known", ErrBadConfig, unknown[0])
	}
	configs := make([]JobConfig, len(tables.Publish))
	seen := map[string]bool{}
	for i, table := range tables.Publish {
		if configs[i], err = table.config(env); err != nil {
			return nil, fmt.Errorf("%w: publication %d: %w", ErrBadConfig, i+1, err)
		}
		if seen[table.Name] {
			return nil, fmt.Errorf("%w: the name %s comes twice", ErrBadConfig, table.Name)
		}
		seen[table.Name] = true
	}
	return configs, nil
}

// config returns the JobConfig that a table describes, or an error that names the
// invalid key or value.
func (t jobTable) config(env func(string) (string, bool)) (JobConfig, error) {
	if err := ValidName(t.Name); err != nil {
		return JobConfig{}, err
	}
	if t.To == "" {
		return JobConfig{}, errors.New("to is missing, such as nats://127.0.0.1:4222 or file:records.jsonl")
	}
	if t.InFlight < 0 || t.Tries < 0 {
		return JobConfig{}, errors.New("in_flight and tries are not below zero")
	}
	topic, err := ParseTopic(cmp.Or(t.Topic, DefaultTopic))
	if err != nil {
		return JobConfig{}, err
	}
	if err := t.storeFilter().Valid(); err != nil {
		return JobConfig{}, err
	}
	to, err := ExpandEnv(t.To, env)
	if err != nil {
		return JobConfig{}, err
	}
	job := Job{Name: t.Name, Target: Redacted(to), Topic: topic, Filter: t.Filter, Start: t.From}
	job.Policy.InFlight, job.Policy.Tries = t.InFlight, t.Tries
	return JobConfig{Job: job, To: to}, nil
}

// ExpandEnv replaces ${NAME} and $NAME in a target with the value that env returns
// for NAME. If env has no value for a name, the error contains the first such name.
func ExpandEnv(text string, env func(string) (string, bool)) (string, error) {
	var absent error
	to := os.Expand(text, func(name string) string {
		value, ok := env(name)
		if !ok && absent == nil {
			absent = fmt.Errorf("it needs %s, which the environment does not have", name)
		}
		return value
	})
	return to, absent
}

// Redacted returns a target without user, password, query and fragment, so that it
// can be printed and saved. If the target is neither a URL with a host nor a file,
// Redacted returns at most its scheme, because any part of the rest may be a secret.
func Redacted(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		scheme, _, _ := strings.Cut(target, ":")
		if strings.ContainsAny(scheme, "/@") {
			return "?"
		}
		return scheme + ":?"
	}
	if u.Opaque != "" && u.Scheme != "file" {
		return u.Scheme + ":?"
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return u.String()
}
