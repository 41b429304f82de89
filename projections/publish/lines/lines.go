package lines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

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
	mu struct {
		sync.Mutex
		file   *os.File        // nil when closed
		size   int64           // durable bytes
		known  map[string]bool // the IDs of the records that may come again
		unsure bool            // there may be more than size bytes, or less of it is durable
	}
	path string
}

// Open opens the file of a consumer, which has come to a position, and makes it
// where there is none. The folder must be there. The caller closes it.
func Open(path string, at events.Position) (*File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	f := &File{path: path}
	f.mu.file = file
	if err := f.prepare(at); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), file.Close())
	}
	return f, nil
}

// prepare locks and mends the file and reads which records it has behind a
// position.
func (f *File) prepare(at events.Position) error {
	file := f.mu.file
	about, err := file.Stat()
	if err != nil {
		return err
	}
	if !about.Mode().IsRegular() {
		return fmt.Errorf("%w: it is no regular file", ErrForeign)
	}
	switch locked, err := publish.Lock(file); {
	case err != nil:
		return err
	case !locked:
		return ErrInUse
	}
	found, err := tail(file, about.Size(), at)
	if err != nil {
		return err
	}
	f.mu.known, f.mu.size = found.ids, found.size
	if f.mu.unsure = true; found.size == about.Size() {
		// What a process before wrote and did not sync may not be durable.
		f.mu.unsure = false
		if err := file.Sync(); err != nil {
			return err
		}
	}
	if err := f.settleLocked(); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(f.path))
}

// Publish appends what is not in the file and returns when it is durable. The
// topic is the same for all messages.
func (f *File) Publish(topic string, messages ...*message.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.file == nil {
		return fmt.Errorf("publish to %s: %w", f.path, ErrClosed)
	}
	if err := f.settleLocked(); err != nil {
		return err
	}
	var b bytes.Buffer
	var added []string
	for _, m := range messages {
		if f.mu.known[m.UUID] {
			continue
		}
		b.Write(lineOf(topic, m))
		added = append(added, m.UUID)
	}
	if len(added) == 0 {
		return nil
	}
	f.mu.unsure = true
	if _, err := f.mu.file.Write(b.Bytes()); err != nil {
		return f.unavailable(errors.Join(err, f.settleLocked()))
	}
	if err := f.mu.file.Sync(); err != nil {
		return f.unavailable(errors.Join(err, f.settleLocked()))
	}
	f.mu.unsure = false
	f.mu.size += int64(b.Len())
	for _, id := range added {
		f.mu.known[id] = true
	}
	return nil
}

// settleLocked cuts off what may not be durable.
func (f *File) settleLocked() error {
	if !f.mu.unsure {
		return nil
	}
	err := f.mu.file.Truncate(f.mu.size)
	if err == nil {
		err = f.mu.file.Sync()
	}
	if err != nil {
		return f.unavailable(err)
	}
	f.mu.unsure = false
	return nil
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

// lineOf returns a message as a line. What [head] reads is written first.
func lineOf(topic string, m *message.Message) []byte {
	var b bytes.Buffer
	b.WriteString(`{"id":` + quoted(m.UUID) + `,"position":` + quoted(m.Metadata.Get(publish.KeyPosition)))
	b.WriteString(`,"stream":` + quoted(m.Metadata.Get(publish.KeyStream)))
	b.WriteString(`,"revision":` + number(m.Metadata.Get(publish.KeyRevision)))
	b.WriteString(`,"kind":` + quoted(m.Metadata.Get(publish.KeyKind)))
	b.WriteString(`,"version":` + number(m.Metadata.Get(publish.KeyVersion)))
	b.WriteString(`,"time":` + quoted(m.Metadata.Get(publish.KeyTime)))
	for _, key := range []string{publish.KeySession, publish.KeyAgent, publish.KeyTool} {
		if value := m.Metadata.Get(key); value != "" {
			b.WriteString(`,"` + key + `":` + quoted(value))
		}
	}
	b.WriteString(`,"topic":` + quoted(topic))
	if metadata := m.Metadata.Get(publish.KeyMetadata); metadata != "" {
		document(&b, "metadata", []byte(metadata))
	}
	document(&b, "data", m.Payload)
	b.WriteString("}\n")
	return b.Bytes()
}

// document adds a member that holds a JSON document on one line, or the bytes
// that are none.
func document(b *bytes.Buffer, name string, data []byte) {
	if !json.Valid(data) || !utf8.Valid(data) {
		encoded, err := json.Marshal(data)
		if err != nil {
			panic(err) // bytes always encode
		}
		b.WriteString(`,"` + name + `_base64":`)
		b.Write(encoded)
		return
	}
	b.WriteString(`,"` + name + `":`)
	if bytes.ContainsAny(data, "\n\r") { // between values: within one they are escaped
		data = bytes.Map(func(r rune) rune {
			if r == '\n' || r == '\r' {
				return ' '
			}
			return r
		}, data)
	}
	b.Write(data)
}

func quoted(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err) // text always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// number returns text as a number in JSON, or null where it is none.
func number(text string) string {
	for _, r := range text {
		if r < '0' || r > '9' {
			return "null"
		}
	}
	if text == "" || len(text) > 1 && text[0] == '0' {
		return "null"
	}
	return text
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
