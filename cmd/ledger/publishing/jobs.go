package publishing

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/projections/publish/jetstream"
	"github.com/settlement-ledger/ledger/projections/publish/jsonl"
)

// Flags holds the flags of ledger publish. To, Topic, Name, From and Filter describe one
// job; they are ignored if Config is set.
type Flags struct {
	// To is the target: nats://HOST:PORT, tls://HOST:PORT or file:PATH. It may refer to
	// environment variables.
	To string
	// Topic is a template of subjects, as publish.ParseTopic reads it.
	Topic string
	// Name is the name of the consumer.
	Name string
	// From is the start of a new consumer: beginning, now or a position.
	From string
	// Filter selects records by the flags --kind, --tool and --agent.
	Filter publish.Filter
	// Follow makes Run continue after it has caught up.
	Follow bool
	// Config is the path of a configuration file of jobs. Empty: the flags describe one job.
	Config string
}

// Jobs returns the jobs to run: those in the configuration file, or the one job that the
// flags describe. It expands environment variables in targets with the function env. The
// target that a job records has no password. An invalid flag or file is a usage fault.
func (f Flags) Jobs(env func(string) (string, bool)) ([]publish.JobConfig, error) {
	if f.Config != "" {
		return ReadConfig(f.Config, env)
	}
	topic, err := publish.ParseTopic(f.Topic)
	if err != nil {
		return nil, fault.Usage("--topic: %w", err)
	}
	from, err := publish.ParseStart(f.From)
	if err != nil {
		return nil, fault.Usage("--from: %q is not beginning, now or a position, such as 1204", f.From)
	}
	to, err := publish.ExpandEnv(f.To, env)
	if err != nil {
		return nil, fault.Usage("--to: %w", err)
	}
	job := publish.JobConfig{To: to, Job: publish.Job{Name: f.Name, Target: publish.Redacted(to), Topic: topic, Filter: f.Filter, Start: from}}
	if err := publish.ValidName(f.Name); err != nil {
		return nil, fault.Usage("--name: %w", err)
	}
	if err := applyTarget(&job); err != nil {
		return nil, fault.Usage("--to: %w", err)
	}
	return []publish.JobConfig{job}, nil
}

// ReadConfig parses the configuration file at path, expands environment variables in its
// targets with env, and sets the policy of each job. An unreadable or invalid file is a
// usage fault that names the file.
func ReadConfig(path string, env func(string) (string, bool)) ([]publish.JobConfig, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Usage("--config: %w", err)
	}
	jobs, err := publish.ParseConfig(text, env)
	if err != nil {
		return nil, fault.Usage("%s: %w", path, err)
	}
	for i := range jobs {
		if err := applyTarget(&jobs[i]); err != nil {
			return nil, fault.Usage("%s: %s: to: %w", path, jobs[i].Name, err)
		}
	}
	return jobs, nil
}

// filePath returns the path of a file target, written as file:PATH or file:///PATH.
func filePath(to string) string {
	if u, err := url.Parse(to); err == nil && strings.HasPrefix(to, "file:///") {
		return u.Path
	}
	return strings.TrimPrefix(to, "file:")
}

// linesPerSync is the batch size of a file target, in records: each batch is synced once.
const linesPerSync = 512

// applyTarget sets the policy of the job for its target: batches for a file, a number of
// workers for NATS. It makes the path of a file absolute, so that a later run in another
// directory appends to the same file. Any other target is an error.
func applyTarget(job *publish.JobConfig) error {
	scheme, rest, _ := strings.Cut(job.To, ":")
	switch {
	case scheme == "file" && rest != "":
		path, err := filepath.Abs(filePath(job.To))
		if err != nil {
			return err
		}
		job.To, job.Target, job.Policy.Batch = "file:"+path, "file:"+path, linesPerSync
	case scheme == "nats" || scheme == "tls":
		job.Policy.Workers = jetstream.Workers
	default:
		return fmt.Errorf("%q is not a target: write nats://HOST:PORT or file:PATH", publish.Redacted(job.To))
	}
	return nil
}

// OpenTarget opens the target of a job that Jobs or ReadConfig returned. The parameter
// at is the position of the consumer. A file target continues after the record at that
// position. The caller closes the target. OpenTarget returns the errors of jsonl.Open
// and jetstream.Open.
func OpenTarget(ctx context.Context, job publish.JobConfig, at events.Position) (publish.Target, error) {
	if path, ok := strings.CutPrefix(job.To, "file:"); ok {
		return jsonl.Open(path, at)
	}
	return jetstream.Open(ctx, job.To, job.Topic, job.Name)
}
