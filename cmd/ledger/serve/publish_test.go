package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// A job whose target does not open is retried, and is logged as a warning with the time
// until the next attempt. It has not ended, so no error is logged.
func TestARetriedJobIsLoggedAsAWarning(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := &serverProcess{Config: testConfig(), log: slog.New(slog.NewTextHandler(&log, nil))}
	s.Opener = &stores.Opener{
		Getenv: func(string) string { return "" }, Clock: time.Now, Entropy: rand.Reader, Named: filepath.Join(t.TempDir(), "store"),
		NewLogger: func(slog.Level) *slog.Logger { return slog.New(slog.DiscardHandler) },
	}
	var err error
	if s.store, err = s.OpenOrCreate(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.store.Close()
	topic, err := publish.ParseTopic(publish.DefaultTopic)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	s.Jobs = []publish.JobConfig{{To: "nats://x", Job: publish.Job{Name: "bus", Target: "nats://x", Topic: topic}}}
	attempts := 0
	s.Targets = func(context.Context, publish.JobConfig, events.Position) (publish.Target, error) {
		if attempts++; attempts == 2 { // the first error is logged
			cancel(domain.ByShutdown)
		}
		return nil, errors.New("no server")
	}
	if err := s.publish(ctx); err != nil {
		t.Errorf("publish = %v, want an ordinary end", err)
	}
	if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "again_in=") || strings.Contains(text, "level=ERROR") {
		t.Errorf("logged %q, want a warning with the time until the next attempt, and no error", text)
	}
}
