package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/events/eventstoredb/protocol"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// openServed opens a folder through the process that serves it: the log by its
// connection string, outputs and checkpoints beside it.
func (a *app) openServed(ctx context.Context, dir string, at serving) (*ledgerStore, error) {
	store, err := eventstoredb.Open(ctx, at.Connection, eventstoredb.Config{MaxAppend: protocol.DefaultMaxAppend, Patience: a.patience, Logger: a.log(slog.LevelWarn)})
	if err != nil {
		return nil, hinted(fmt.Errorf("open %s, which process %d serves: %w", dir, at.PID, err), "look at what that process logs; it may be about to end")
	}
	// As the log, outputs are waited for while who serves them is started again.
	kept, err := remote.Open(at.Outputs, remote.Config{User: at.User, Password: at.Password, TLS: at.tls(), Retry: a.lease})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	near, ledger := nearby(at), a.ledgerOver(store)
	nodes := remote.OpenNodes(kept, ledger, remote.Config{Home: true})
	return &ledgerStore{
		name: dir, store: store, checkpoints: near, claims: filepath.Join(dir, claimsName), ledger: ledger, outputs: nodes, here: kept,
		shared: true, address: at.Node,
		close: func() error { return errors.Join(nodes.Close(), kept.Close(), near.Close(), store.Close()) },
	}, nil
}

// A beside asks for what is served beside a log on this machine.
type beside struct {
	serving
	client *http.Client
}

// besidePatience is how long an answer may take.
const besidePatience = 15 * time.Second

func nearby(at serving) *beside {
	return &beside{at, &http.Client{Transport: &http.Transport{TLSClientConfig: at.tls()}, Timeout: besidePatience}}
}

// tls is how a process of this machine is asked that is known by the lock of
// its folder: its certificate has the names that others use.
func (s serving) tls() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
}

// Close ends idle connections.
func (b *beside) Close() error {
	b.client.CloseIdleConnections()
	return nil
}

// ask makes a request and returns the answer, or nil where nothing is there.
func (b *beside) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, b.Outputs+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if b.User != "" {
		r.SetBasicAuth(b.User, b.Password)
	}
	answer, err := b.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return nil, err
	case answer.StatusCode == http.StatusNotFound:
		return nil, nil
	case answer.StatusCode >= http.StatusBadRequest:
		return nil, fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	return text, nil
}

// SaveCheckpoint keeps data under a name in the store that is served.
func (b *beside) SaveCheckpoint(ctx context.Context, name string, data []byte) error {
	if _, err := b.ask(ctx, http.MethodPut, checkpointPath+url.PathEscape(name), data); err != nil {
		return fmt.Errorf("save checkpoint %s: %w", name, err)
	}
	return nil
}

// LoadCheckpoint returns what the store that is served keeps under a name.
func (b *beside) LoadCheckpoint(ctx context.Context, name string) ([]byte, error) {
	data, err := b.ask(ctx, http.MethodGet, checkpointPath+url.PathEscape(name), nil)
	if err != nil {
		return nil, fmt.Errorf("load checkpoint %s: %w", name, err)
	}
	return data, nil
}

// Sync returns when what was saved is durable in the store that is served.
func (b *beside) Sync(ctx context.Context) error {
	if _, err := b.ask(ctx, http.MethodPost, syncPath, nil); err != nil {
		return fmt.Errorf("sync the store: %w", err)
	}
	return nil
}

// Backup has whoever serves the store make a backup into a folder of this
// machine. It takes as long as that takes.
func (b *beside) Backup(ctx context.Context, dir string) (row backupRow, err error) {
	order, err := json.Marshal(backupOrder{dir})
	if err != nil {
		return row, err
	}
	patient := &beside{b.serving, &http.Client{Transport: b.client.Transport}}
	text, err := patient.ask(ctx, http.MethodPost, backupPath, order)
	if err == nil {
		err = json.Unmarshal(text, &row)
	}
	if err != nil {
		return row, fmt.Errorf("backup by process %d, which serves the store: %w", b.PID, err)
	}
	return row, nil
}
