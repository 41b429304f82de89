package resumable

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// The errors of a File.
var (
	// ErrExists reports that the path is there already.
	ErrExists = errors.New("the file exists")
	// ErrNotAFile reports that the path is a folder, a link or a device, which Finish would replace.
	ErrNotAFile = errors.New("the path is not that of a file")
	// ErrOtherContent reports a partial file of other content.
	ErrOtherContent = errors.New("partial file is of another export")
	// ErrAltered reports a partial file whose bytes are not those that were written.
	ErrAltered = errors.New("partial file was altered")
	// ErrInUse reports that another process writes the file.
	ErrInUse = errors.New("another process writes the file")
	// ErrNoSpace reports a full disk, or a used-up quota.
	ErrNoSpace = errors.New("the file is incomplete")
)

// A Sink takes content in order. Write appends bytes. Checkpoint makes them durable, with the
// state from which the caller can continue; Finish ends the content.
type Sink interface {
	io.Writer
	Checkpoint(state any) error
	Finish() error
}

// The names of the files beside a path.
const (
	partialSuffix  = ".partial"
	progressSuffix = ".partial.progress"
)

// format and formatVersion identify a file of progress.
const (
	format        = "settlement-ledger partial file"
	formatVersion = 1
)

// A header is the first line of a file of progress.
type header struct {
	Format  string          `json:"format"`
	Version int             `json:"version"`
	Content json.RawMessage `json:"content"` // identifies the content
	Start   json.RawMessage `json:"start"`   // the argument of Begin
}

// A checkpoint is any further line of a file of progress.
type checkpoint struct {
	Bytes  int64           `json:"bytes"`  // of the partial file
	SHA256 string          `json:"sha256"` // of those since the checkpoint before
	State  json.RawMessage `json:"state"`  // the argument of Checkpoint
}

// Options are the choices of a person for Open.
type Options struct {
	Overwrite bool // Finish replaces a file at the path
	Restart   bool // remove a partial file
}

// A File is a file that is being written. The caller closes it.
type File struct {
	path     string
	data     *os.File // PATH.partial, locked
	progress *os.File // PATH.partial.progress
	out      *bufio.Writer
	compress compressor
	segment  hash.Hash // of the bytes since the last checkpoint
	bytes    int64     // of data
	content  json.RawMessage
	start    json.RawMessage   // nil: new
	states   []json.RawMessage // of the checkpoints, in order
	unbegun  bool              // Open found nothing to continue, and Begin was not called yet
}

// Open opens the file at a path to write content, which it identifies by its JSON. If there is
// a partial file of the same content, Open continues after its last checkpoint.
func Open(path string, content any, o Options) (*File, error) {
	if path == "" {
		return nil, fmt.Errorf("%w: its path is empty", ErrNotAFile)
	}
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: %s", path, ErrNotAFile, info.Mode())
	} else if err == nil && !o.Overwrite {
		return nil, fmt.Errorf("%s: %w", path, ErrExists)
	}
	identity, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, content: identity, segment: sha256.New()}
	f.compress.by, _ = CompressionOf(path)
	if _, err := os.Lstat(path + partialSuffix); errors.Is(err, fs.ErrNotExist) {
		// Finish renames the partial file before it removes the progress.
		if err := removed(path + progressSuffix); err != nil {
			return nil, err
		}
	}
	if f.data, err = os.OpenFile(path+partialSuffix, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if err := f.begin(o); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	f.out = bufio.NewWriterSize(appender{f}, 1<<16)
	f.compress.to = f.out
	return f, nil
}

// begin locks the partial file and reads the progress.
func (f *File) begin(o Options) error {
	locked, err := tryLock(f.data)
	if err != nil {
		return err
	}
	if !locked || !f.named() {
		return fmt.Errorf("%s: %w", f.path+partialSuffix, ErrInUse)
	}
	if f.progress, err = os.OpenFile(f.path+progressSuffix, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if o.Restart {
		if err := f.progress.Truncate(0); err != nil {
			return err
		}
	}
	through, err := f.readProgress()
	if err != nil {
		return err
	}
	f.unbegun = f.start == nil
	// A line that was cut off, and bytes that no line names, are of an interrupted write.
	if err := f.progress.Truncate(through); err != nil {
		return err
	}
	if err := f.data.Truncate(f.bytes); err != nil {
		return err
	}
	if _, err := f.progress.Seek(through, io.SeekStart); err != nil {
		return err
	}
	_, err = f.data.Seek(f.bytes, io.SeekStart)
	return err
}

// named reports whether the open file still has the name of the partial file. Another process
// may have finished it before it was locked here.
func (f *File) named() bool {
	here, err := f.data.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(f.path + partialSuffix)
	return err == nil && os.SameFile(here, there)
}

// readProgress reads the lines of the progress and compares the bytes of the partial file
// with them. It returns the length of the lines that are whole.
func (f *File) readProgress() (through int64, err error) {
	lines, data := bufio.NewReader(f.progress), bufio.NewReaderSize(f.data, 1<<16)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return through, nil
		}
		if err != nil {
			return 0, err
		}
		if n == 1 {
			err = f.readHeader(line)
		} else {
			err = f.readCheckpoint(line, data)
		}
		if err != nil {
			return 0, fmt.Errorf("%s line %d: %w", f.path+progressSuffix, n, err)
		}
		through += int64(len(line))
	}
}

// readHeader reads the first line.
func (f *File) readHeader(line []byte) error {
	var h header
	if err := json.Unmarshal(line, &h); err != nil || h.Format != format || h.Version != formatVersion {
		return fmt.Errorf("%w: its first line is not the one of %s, version %d", ErrAltered, format, formatVersion)
	}
	if !bytes.Equal(h.Content, f.content) {
		return fmt.Errorf("%w: it has %s, and this is %s", ErrOtherContent, h.Content, f.content)
	}
	f.start = h.Start
	return nil
}

// readCheckpoint reads a further line, and from data the bytes that it names.
func (f *File) readCheckpoint(line []byte, data io.Reader) error {
	var c checkpoint
	if err := json.Unmarshal(line, &c); err != nil || c.Bytes < f.bytes {
		return fmt.Errorf("%w: the line is not a checkpoint", ErrAltered)
	}
	sum := sha256.New()
	n, err := io.CopyN(sum, data, c.Bytes-f.bytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err != nil || hex.EncodeToString(sum.Sum(nil)) != c.SHA256 {
		return fmt.Errorf("%w: %s has other bytes from byte %d on (%d of %d are there)", ErrAltered, f.path+partialSuffix, f.bytes, n, c.Bytes-f.bytes)
	}
	f.bytes, f.states = c.Bytes, append(f.states, c.State)
	return nil
}

// Resumed returns the arguments of the earlier calls of Begin and of Checkpoint, in order. It
// returns false for a new file, for which the caller calls Begin.
func (f *File) Resumed() (start json.RawMessage, states []json.RawMessage, ok bool) {
	return f.start, f.states, f.start != nil
}

// Begin records what the caller chose at the beginning, which Resumed returns later.
func (f *File) Begin(start any) error {
	chosen, err := json.Marshal(start)
	if err != nil {
		return err
	}
	f.start = chosen
	if err := f.record(header{format, formatVersion, f.content, chosen}); err != nil {
		return err
	}
	f.unbegun = false
	return syncFolder(filepath.Dir(f.path))
}

// record appends a line to the progress and makes it durable.
func (f *File) record(line any) error {
	text, err := json.Marshal(line)
	if err == nil {
		if _, err = f.progress.Write(append(text, '\n')); err == nil {
			err = f.progress.Sync()
		}
	}
	if err != nil {
		return f.unwritten(err)
	}
	return nil
}

// An appender appends to the data of a File.
type appender struct{ *File }

// Write appends bytes to the partial file and adds them to the digest of the segment.
func (f appender) Write(data []byte) (int, error) {
	n, err := f.data.Write(data)
	f.bytes += int64(n)
	_, _ = f.segment.Write(data[:n])
	if err != nil {
		return n, f.unwritten(err)
	}
	return n, nil
}

// unwritten returns the error of a failed write, with the path and the bytes of the partial
// file.
func (f *File) unwritten(err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w; %w", err, ErrNoSpace)
	}
	return fmt.Errorf("write %s after %d bytes: %w", f.path+partialSuffix, f.bytes, err)
}

// Write appends bytes. They may be lost until Checkpoint or Finish returns.
func (f *File) Write(data []byte) (int, error) { return f.compress.Write(data) }

// flush writes all bytes to the partial file and makes them durable.
func (f *File) flush() error {
	err := f.compress.end()
	if err == nil {
		err = f.out.Flush()
	}
	if err != nil {
		return err
	}
	if err := f.data.Sync(); err != nil {
		return f.unwritten(err)
	}
	return nil
}

// Checkpoint makes all bytes durable, with the state from which the caller continues.
func (f *File) Checkpoint(state any) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if err := f.flush(); err != nil {
		return err
	}
	if err := f.record(checkpoint{f.bytes, hex.EncodeToString(f.segment.Sum(nil)), text}); err != nil {
		return err
	}
	f.segment.Reset()
	return nil
}

// Bytes returns the bytes of the file so far, compressed. Those of the current segment may be
// in a buffer.
func (f *File) Bytes() int64 { return f.bytes }

// Finish makes all bytes durable and gives the file its name.
func (f *File) Finish() error {
	if err := f.flush(); err != nil {
		return err
	}
	if err := os.Rename(f.path+partialSuffix, f.path); err != nil {
		return err
	}
	if err := syncFolder(filepath.Dir(f.path)); err != nil {
		return err
	}
	return os.Remove(f.path + progressSuffix)
}

// Close closes the file. Before Finish it keeps what was written up to the last checkpoint. It
// removes the files if Begin was not called.
func (f *File) Close() error {
	var err error
	if f.unbegun {
		err = errors.Join(removed(f.path+progressSuffix), removed(f.path+partialSuffix))
	}
	if f.progress != nil {
		err = errors.Join(err, f.progress.Close())
	}
	return errors.Join(err, f.data.Close())
}

// removed removes a file that may be missing.
func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncFolder makes the names in a folder durable.
func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	err = dir.Sync()
	return errors.Join(err, dir.Close())
}

// A Stream writes content to a writer that cannot be continued.
type Stream struct {
	compress compressor
}

// NewStream returns a Stream to a writer.
func NewStream(to io.Writer, by Compression) *Stream { return &Stream{compressor{to: to, by: by}} }

// Write writes bytes.
func (s *Stream) Write(data []byte) (int, error) { return s.compress.Write(data) }

// Checkpoint ends a member or frame, so that the bytes are those that a File has.
func (s *Stream) Checkpoint(any) error { return s.compress.end() }

// Finish ends the last member or frame.
func (s *Stream) Finish() error { return s.compress.end() }

var _, _ Sink = (*File)(nil), (*Stream)(nil)
