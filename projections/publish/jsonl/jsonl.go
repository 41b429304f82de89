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

// The errors of a File. Callers match them with errors.Is.
var (
	ErrForeign = errors.New("file does not hold published records")
	ErrInUse   = errors.New("file is written by another publisher")
	ErrClosed  = errors.New("file is closed")
)

// A File is a message.Publisher that appends to a file.
type File struct {
	path string
	at   events.Position // that the consumer current come to when it opened
	mu   struct {
		sync.Mutex
		lockedFile         // nil file when closed
		ids        idCache // the records that may come again
		dirty      bool    // there may be more than size bytes, or less of it is durable
	}
}

var _ publish.Batcher = (*File)(nil)

// Open opens the file of a consumer, which has come to a position, and makes it
// where there is none. The folder must be there. The caller closes it.
func Open(path string, at events.Position) (*File, error) {
	f := &File{path: path, at: at}
	if err := f.reopenLocked(); err != nil {
		return nil, err
	}
	return f, nil
}

// Publish is PublishBatch for messages of one topic.
func (f *File) Publish(topic string, messages ...*message.Message) error {
	batch := make([]publish.Routed, len(messages))
	for i, m := range messages {
		batch[i] = publish.Routed{Topic: topic, Message: m}
	}
	return f.PublishBatch(batch...)
}

// PublishBatch appends what is not in the file, with one sync, and returns when it
// is durable. Where the file is no longer under its name they are appended to the
// one that is, or that is made.
func (f *File) PublishBatch(batch ...publish.Routed) error {
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
		// Whoever moved or removed the file since has what was written, perhaps,
		// and nobody finds it under the name.
		if f.mu.lockedFile.isAtPath(f.path) {
			break
		}
	}
	for _, r := range batch {
		f.mu.ids.add(r.Message.UUID)
	}
	return nil
}

// appendLocked appends what is not in the file, durably.
func (f *File) appendLocked(batch []publish.Routed) error {
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

// restoreLocked cuts off what may not be durable. A file that others changed, or
// that is no longer under its name, is taken anew.
func (f *File) restoreLocked() error {
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

// reopenLocked takes the file that is under the name, or makes it, in place of the
// one that f has.
func (f *File) reopenLocked() error {
	next, ids, err := acquire(f.path, f.at, f.mu.file)
	if err != nil {
		return err
	}
	if f.mu.file != nil && f.mu.file != next.file {
		err = f.mu.file.Close()
	}
	f.mu.lockedFile, f.mu.ids, f.mu.dirty = next, idCache{fromFile: ids}, false
	return err
}

func (f *File) unavailable(err error) error {
	return fmt.Errorf("publish to %s: %w: %w", f.path, publish.ErrUnavailable, err)
}

// Close gives the file up. Closing again does nothing.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.file == nil {
		return nil
	}
	err := f.mu.file.Close()
	f.mu.file = nil
	return err
}
