package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// The errors of a Publisher. Callers match them with errors.Is.
var (
	// ErrForeign: the file has contents that this package did not write. The Publisher
	// does not change the file.
	ErrForeign = errors.New("file does not hold published records")
	// ErrInUse: another File, in this process or another, has the lock of the file.
	ErrInUse = errors.New("file is written by another publisher")
	// ErrClosed: the File was closed.
	ErrClosed = errors.New("file is closed")
)

// A Publisher is a message.Publisher that appends to a file. It writes each record once
// and repairs the file before a write if another process changed it.
type Publisher struct {
	path string
	// at is the position of the consumer when the File was opened. Records after it
	// may be published again.
	at events.Position
	// mu is held during writes and syncs.
	mu struct {
		sync.Mutex
		// lockedFile is the open file. Its file is nil after Close.
		lockedFile
		// ids has the records that may be published again.
		ids idCache
		// dirty reports that a write failed: the file may have more than size bytes,
		// and some may not be durable.
		dirty bool
	}
}

var _ publish.Batcher = (*Publisher)(nil)

// Open opens or creates the file of a consumer. The argument at is the position of
// the consumer. The folder must exist. The caller closes the Publisher.
func Open(path string, at events.Position) (*Publisher, error) {
	f := &Publisher{path: path, at: at}
	if err := f.reopenLocked(); err != nil {
		return nil, err
	}
	return f, nil
}

// Publish is PublishBatch for messages of one topic.
func (f *Publisher) Publish(topic string, messages ...*message.Message) error {
	batch := make([]publish.Routed, len(messages))
	for i, m := range messages {
		batch[i] = publish.Routed{Topic: topic, Message: m}
	}
	return f.PublishBatch(batch...)
}

// PublishBatch appends the messages that are not in the file, with one write and one
// sync, and returns when they are durable under the name of the file. It reopens or
// recreates the file if another process moved or removed it. A failure of the file
// system is a publish.ErrUnavailable, after which the same batch may be published
// again. After Close the error is an ErrClosed.
func (f *Publisher) PublishBatch(batch ...publish.Routed) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.file == nil {
		return fmt.Errorf("publish to %s: %w", f.path, ErrClosed)
	}
	for {
		err := f.restoreLocked()
		if err == nil {
			err = f.appendLocked(batch)
		}
		if err != nil {
			return f.unavailable(err)
		}
		// If another process moved or removed the file meanwhile, the lines are
		// not under its name: write them again.
		if f.mu.lockedFile.isAtPath(f.path) {
			break
		}
	}
	for _, r := range batch {
		f.mu.ids.add(r.Message.UUID)
	}
	return nil
}

// appendLocked appends the messages that are not in the file, and syncs. After a
// failed write it removes the partial lines, or leaves dirty set. The caller holds
// mu.
func (f *Publisher) appendLocked(batch []publish.Routed) error {
	var b bytes.Buffer
	for _, r := range batch {
		if !f.mu.ids.has(r.Message.UUID) {
			b.Write(encodeLine(r.Topic, r.Message))
		}
	}
	if b.Len() == 0 {
		return nil
	}
	f.mu.dirty = true
	_, err := f.mu.file.Write(b.Bytes())
	if err == nil {
		err = f.mu.file.Sync()
	}
	if err != nil {
		return errors.Join(err, f.restoreLocked())
	}
	f.mu.dirty = false
	f.mu.size += int64(b.Len())
	return nil
}

// restoreLocked restores the file to its state after the last sync. It truncates the
// bytes of a failed write. If another process changed the size of the file, moved or
// removed it, restoreLocked reopens it. The caller holds mu.
func (f *Publisher) restoreLocked() error {
	about, err := f.mu.file.Stat()
	switch {
	case err != nil:
		return err
	case !f.mu.lockedFile.isAtPath(f.path), about.Size() < f.mu.size, about.Size() > f.mu.size && !f.mu.dirty:
		return f.reopenLocked()
	case !f.mu.dirty:
		return nil
	}
	if err = f.mu.file.Truncate(f.mu.size); err == nil {
		err = f.mu.file.Sync()
	}
	f.mu.dirty = err != nil
	return err
}

// reopenLocked opens or creates the file at f.path. It closes and unlocks the file
// that f had open, if that is another file, after it has locked the new one. The
// caller holds mu.
func (f *Publisher) reopenLocked() error {
	next, ids, err := acquire(f.path, f.at, f.mu.file)
	if err != nil {
		return err
	}
	if f.mu.file != nil && f.mu.file != next.file {
		err = publish.CloseLocked(f.mu.file)
	}
	f.mu.lockedFile, f.mu.ids, f.mu.dirty = next, idCache{fromFile: ids}, false
	return err
}

// unavailable wraps an error of the file system as a publish.ErrUnavailable.
func (f *Publisher) unavailable(err error) error {
	return fmt.Errorf("publish to %s: %w: %w", f.path, publish.ErrUnavailable, err)
}

// Close closes and unlocks the file. It may be called again.
func (f *Publisher) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.file == nil {
		return nil
	}
	err := publish.CloseLocked(f.mu.file)
	f.mu.file = nil
	return err
}
