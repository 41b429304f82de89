package stores

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// OpenDatabase opens the ledger in a database. What a database does not keep,
// the outputs of this node and the checkpoints, is in the node's folder.
func (o *Opener) OpenDatabase(ctx context.Context, at Address) (*Store, error) {
	dir, err := o.NodeDir(at)
	if err != nil {
		return nil, err
	}
	address, err := o.nodeAddress(dir)
	if err != nil {
		return nil, err
	}
	trust, err := at.nodes()
	if err != nil {
		return nil, err
	}
	store, err := eventstoredb.Open(ctx, at.Database, eventstoredb.Config{Namespace: at.Namespace, MaxAppend: at.maxAppend, RetryTimeout: o.Timeout, RequireReadAll: true, Logger: o.NewLogger(slog.LevelWarn)})
	if err != nil {
		return nil, err
	}
	node := &NodeStore{dir: dir}
	ledger, here := o.newLedger(store), nodeOutputs{node}
	nodes := remote.OpenNodes(here, ledger, trust)
	return &Store{
		Name: at.String(), Log: store, Checkpoints: checkpointFolder(filepath.Join(dir, "checkpoints")), ClaimsDir: filepath.Join(dir, claimsName),
		Ledger: ledger, Outputs: nodes, LocalOutputs: here, Shared: true, NodeAddress: address, Node: node,
		close: func() error { return errors.Join(nodes.Close(), node.Close(), store.Close()) },
	}, nil
}

// nodeAddress returns where other nodes reach the outputs that are kept here: the
// address that the environment gives, or that of who serves the node now.
func (o *Opener) nodeAddress(dir string) (string, error) {
	address, err := o.GivenNodeAddress()
	if address != "" || err != nil {
		return address, err
	}
	at, err := shared.ReadEndpoint(dir)
	if errors.Is(err, shared.ErrNoEndpoint) {
		return "", nil // a process that serves it later is found as well
	}
	return at.Node, err
}

// GivenNodeAddress returns what the environment says of where other nodes reach this
// one. It is put on record for ever, so that it has to make sense and hold no
// password.
func (o *Opener) GivenNodeAddress() (string, error) {
	text := o.Getenv("LEDGER_NODE_ADDRESS")
	if text == "" {
		return "", nil
	}
	client, err := remote.Open(text, remote.Config{})
	if err != nil {
		return "", fault.Usage("LEDGER_NODE_ADDRESS: %w", err)
	}
	if err := client.Close(); err != nil {
		return "", err
	}
	if u, err := url.Parse(text); err != nil || u.User != nil {
		return "", fault.Usage("LEDGER_NODE_ADDRESS holds a user: everybody who reads the log reads it")
	}
	return text, nil
}

// NodeDir returns the folder for what this node keeps of a ledger in a database:
// one for each address, as far as it shows.
func (o *Opener) NodeDir(at Address) (string, error) {
	if dir := o.Getenv("LEDGER_NODE"); dir != "" {
		return dir, nil
	}
	dir, err := o.dataDir("ledger-nodes")
	if err != nil {
		return "", fault.WithHint(err, "name a folder for what the database does not keep with LEDGER_NODE")
	}
	sum := sha256.Sum256([]byte(at.String()))
	return filepath.Join(dir, hex.EncodeToString(sum[:8])), nil
}

// A checkpointFolder keeps checkpoints in files. What is there of one is whole,
// and durable.
type checkpointFolder string

func (c checkpointFolder) path(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(string(c), hex.EncodeToString(sum[:]))
}

// SaveCheckpoint keeps data under a name.
func (c checkpointFolder) SaveCheckpoint(ctx context.Context, name string, data []byte) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := c.save(c.path(name), data); err != nil {
		return fmt.Errorf("save checkpoint %s: %w", name, err)
	}
	return nil
}

func (c checkpointFolder) save(path string, data []byte) error {
	if err := os.MkdirAll(string(c), 0o700); err != nil {
		return err
	}
	c.tidy(path)
	if err := ReplaceFile(path, data); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(string(c))) // it may have been made now
}

// abandonedAge is the age at which a file counts as left behind by a process that was
// killed while it saved a checkpoint.
const abandonedAge = 10 * time.Minute

// tidy removes what killed processes left of a checkpoint that they were saving.
func (c checkpointFolder) tidy(path string) {
	left, err := filepath.Glob(unfinishedName(path))
	if err != nil {
		return
	}
	for _, name := range left {
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > abandonedAge {
			_ = os.Remove(name) // it takes space alone
		}
	}
}

// unfinishedName is the pattern of the names of files that replaceFile writes
// before it replaces a file.
func unfinishedName(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".*")
}

// Sync does nothing: what is saved is durable.
func (checkpointFolder) Sync(ctx context.Context) error { return context.Cause(ctx) }

// ReplaceFile puts data in place of a file, which is whole at any moment. The
// data and the name are durable when it returns.
func ReplaceFile(path string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(unfinishedName(path)))
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes durable which files are in a folder.
func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// LoadCheckpoint returns what is kept under a name.
func (c checkpointFolder) LoadCheckpoint(ctx context.Context, name string) ([]byte, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(c.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("load checkpoint %s: %w", name, err)
	}
	return data, nil
}
