package shared

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/backup"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// An ownedFolder is a folder whose lock this process has, with its open stores. It
// does not change after acquire.
type ownedFolder struct {
	holder  *Holder
	log     *embedded.Store
	outputs *outputs.Store
	// before are the earlier holders that were killed.
	before []domain.ProcessID
}

// acquire takes the lock of the folder, opens the stores, serves them to other
// processes and publishes the endpoint. It returns an events.ErrInUse or
// outputs.ErrInUse if another process has locked one of the stores. After an error no
// store is open and the lock is free.
func (s *Store) acquire(ctx context.Context) (*backend, error) {
	owner := storedir.Owner{Command: s.cfg.Command, Started: time.Now().UTC(), Shares: true}
	log, err := embedded.Open(ctx, s.dir, embedded.Config{Owner: owner, Logger: s.cfg.Logger})
	if err != nil {
		return nil, err
	}
	blobs, err := engine.OpenOutputs(ctx, log, s.dir, s.cfg.Logger)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	b := s.newBackend(Backend{
		Log: log, Outputs: remote.Local(blobs), Checkpoints: log,
		Close: func() error { return errors.Join(blobs.Close(), log.Close()) },
	})
	h := &ownedFolder{log: log, outputs: blobs, before: UnfinishedHolders(s.dir, s.process())}
	h.holder, err = Serve(ctx, HolderConfig{
		Dir: s.dir, Store: log, Outputs: blobs, Checkpoints: log, Backup: h.backup, Logger: s.cfg.Logger,
		Yield:    func() { s.yield(b) },
		Endpoint: Endpoint{Started: owner.Started, Command: owner.Command, Process: s.process(), Before: h.before},
	})
	if err == nil {
		err = h.holder.Publish()
	}
	if err != nil {
		if h.holder != nil {
			err = errors.Join(err, h.holder.Close(ctx))
		}
		return nil, errors.Join(err, blobs.Close(), log.Close())
	}
	b.owned = h
	return b, nil
}

// maxUnfinished is the greatest number of earlier holders in an endpoint.
const maxUnfinished = 64

// UnfinishedHolders returns the earlier holders of a folder that did not end in order,
// the latest last, without self. It returns at most the last maxUnfinished holders.
// These processes are dead if no other process has the lock of the folder.
func UnfinishedHolders(dir string, self domain.ProcessID) []domain.ProcessID {
	last := LastEndpoint(dir)
	all := append(slices.Clone(last.Before), last.Process)
	all = slices.DeleteFunc(all, func(p domain.ProcessID) bool { return p.IsZero() || p == self })
	return all[max(0, len(all)-maxUnfinished):]
}

// backup writes a backup of the log and the blob store into a folder.
func (h *ownedFolder) backup(ctx context.Context, dir string) (made BackupReport, err error) {
	made.Backup, made.Written, err = h.log.Backup(ctx, dir, backup.NamedComponent{Name: engine.OutputsFolder, Component: engine.BackupOutputs{Store: h.outputs}})
	return made, err
}

// yieldPeriod is the time for which a process that gave the folder up on request does
// not take the lock again, so that the requesting process can take it.
const yieldPeriod = 2 * time.Second

// yield gives the folder up to a process that requested it. The backend ends; the
// store continues as a client of the next holder.
func (s *Store) yield(b *backend) {
	s.mu.Lock()
	s.mu.yielded = time.Now()
	s.mu.Unlock()
	b.end(errGone)
}

// yields reports whether this process gave the folder up less than yieldPeriod ago. It
// must then not take the lock.
func (s *Store) yields() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.mu.yielded.IsZero() && time.Since(s.mu.yielded) < yieldPeriod
}

// RequestYield asks the holder of a folder to give the folder up, and reports whether
// the holder agreed. A holder that was started to serve the folder refuses.
// RequestYield returns before the lock is free.
func RequestYield(ctx context.Context, dir string) (bool, error) {
	at, err := ReadEndpoint(dir)
	if err != nil {
		return false, err
	}
	client, err := NewClient(at)
	if err != nil {
		return false, err
	}
	defer client.Close()
	response, err := client.Do(ctx, http.MethodPost, yieldPath, nil)
	return response != nil, err
}
