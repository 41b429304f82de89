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

// OpenDatabase opens the ledger in a database. A database does not store outputs and
// checkpoints: the ones of this node are in the folder [Opener.NodeDir], and the Store
// fetches outputs of other nodes from those nodes. It returns the errors of
// eventstoredb.Open, such as an unreachable server, and a usage error for an invalid
// setting.
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

// nodeAddress returns the address at which other nodes request the outputs in dir: the
// value of LEDGER_NODE_ADDRESS, or else the address of the process that serves dir. It
// returns an empty string if the variable is not set and no process serves dir. A
// process that serves dir later records its own address in the log.
func (o *Opener) nodeAddress(dir string) (string, error) {
	address, err := o.GivenNodeAddress()
	if address != "" || err != nil {
		return address, err
	}
	at, err := shared.ReadEndpoint(dir)
	if errors.Is(err, shared.ErrNoEndpoint) {
		return "", nil
	}
	return at.Node, err
}

// GivenNodeAddress returns the value of LEDGER_NODE_ADDRESS, the address under which other
// nodes reach this one, or an empty string if it is not set. The ledger records the address
// for ever, so a usage error rejects an invalid address and one with a user or password.
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
		return "", fault.Usage("LEDGER_NODE_ADDRESS contains a user: every reader of the log could read it")
	}
	return text, nil
}

// NodeDir returns the folder for the outputs and checkpoints that this node stores
// for a ledger in a database: the value of LEDGER_NODE, or a folder in the user's
// data directory whose name is a hash of the address without credentials. It does not
// create the folder.
func (o *Opener) NodeDir(at Address) (string, error) {
	if dir := o.Getenv("LEDGER_NODE"); dir != "" {
		return dir, nil
	}
	dir, err := o.dataDir("ledger-nodes")
	if err != nil {
		return "", fault.WithHint(err, "set LEDGER_NODE to a folder for the outputs and checkpoints of this machine")
	}
	sum := sha256.Sum256([]byte(at.String()))
	return filepath.Join(dir, hex.EncodeToString(sum[:8])), nil
}

// A checkpointFolder is the path of a folder with one file for each checkpoint. The name
// of a file is the SHA-256 of the checkpoint's name. A save replaces the file
// atomically, so a crash leaves the old or the new checkpoint. If several processes save
// the same checkpoint, the last save remains.
type checkpointFolder string

// path returns the path of the file of a checkpoint.
func (c checkpointFolder) path(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(string(c), hex.EncodeToString(sum[:]))
}

// SaveCheckpoint replaces the checkpoint name by data. The checkpoint is durable when
// SaveCheckpoint returns. It creates the folder on first use. Each call costs three
// syncs.
func (c checkpointFolder) SaveCheckpoint(ctx context.Context, name string, data []byte) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := c.save(c.path(name), data); err != nil {
		return fmt.Errorf("save checkpoint %s: %w", name, err)
	}
	return nil
}

// save makes the folder if it is missing, removes abandoned files and replaces the
// file at path.
func (c checkpointFolder) save(path string, data []byte) error {
	if err := os.MkdirAll(string(c), 0o700); err != nil {
		return err
	}
	c.tidy(path)
	if err := ReplaceFile(path, data); err != nil {
		return err
	}
	// MkdirAll may have made the folder, whose name is then in its parent.
	return syncFolder(filepath.Dir(string(c)))
}

// abandonedAge is the age from which a temporary file counts as abandoned by a
// process that was killed while it saved a checkpoint.
const abandonedAge = 10 * time.Minute

// tidy removes the temporary files of the checkpoint at path that are older than
// abandonedAge. It ignores errors, because an abandoned file only takes space.
func (c checkpointFolder) tidy(path string) {
	left, err := filepath.Glob(unfinishedName(path))
	if err != nil {
		return
	}
	for _, name := range left {
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > abandonedAge {
			_ = os.Remove(name)
		}
	}
}

// unfinishedName returns the pattern of the temporary files that ReplaceFile writes and
// then renames to path.
func unfinishedName(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".*")
}

// Sync returns the cause of ctx and does no work: SaveCheckpoint is durable when it returns.
func (checkpointFolder) Sync(ctx context.Context) error { return context.Cause(ctx) }

// ReplaceFile atomically replaces the content of the file at path by data, through a
// temporary file in the same folder. The data and the name are durable when it
// returns. After an error the file at path has its old or its new content.
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

// syncFolder makes the names in a folder durable.
func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// LoadCheckpoint returns the checkpoint of a name, or nil for an unknown name. The
// caller owns the bytes.
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
