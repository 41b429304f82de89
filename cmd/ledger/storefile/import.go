package storefile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/storecopy"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// Imported is the JSON result of ledger import jsonl.
type Imported struct {
	File     string `json:"file"`
	Store    string `json:"store"`
	Records  uint64 `json:"records"`  // number of records that the file and the store have
	Appended uint64 `json:"appended"` // number of records that this run appended
	Outputs  uint64 `json:"outputs"`  // number of outputs that this run stored
	Missing  uint64 `json:"missing"`  // number of outputs that the file does not have
	Digest   string `json:"digest"`   // of the records of either
}

// A Config is what [Import] needs.
type Config struct {
	*render.Printer           // of the result
	*stores.Opener            // of the store that --store names
	Input           io.Reader // the file named -
}

// An importer is an import in progress.
type importer struct {
	Config
	lines    *lineReader
	store    *stores.Store
	to       *storecopy.Target
	digest   *events.Digest
	row      Imported
	got      ending // of the lines so far
	progress *render.ProgressBar
}

// Import reads a file of [Export], named by its path or "-", into the store that c names, and
// prints the result. It makes the store after it has read the first line of the file.
func Import(ctx context.Context, c Config, name string) (err error) {
	in, size := c.Input, int64(0)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		if info, err := file.Stat(); err == nil {
			size = info.Size()
		}
		in = file
	}
	i := &importer{Config: c, digest: events.NewDigest(), row: Imported{File: name}, progress: c.Progress()}
	defer i.progress.End()
	if i.lines, err = newLineReader(name, size, in); err != nil {
		return err
	}
	defer i.lines.close()
	if err := i.readHeading(); err != nil {
		return err
	}
	if i.store, err = c.OpenOrCreate(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.store.Close()) }()
	i.row.Store = i.store.Name
	if err := i.run(ctx); err != nil {
		return err
	}
	i.progress.End()
	return c.Object(i.row, func() {
		c.Line("%s in %s, %d appended now; %s stored.", render.Count(int(i.row.Records), "record"), render.Printable(i.row.Store), i.row.Appended, render.Count(int(i.row.Outputs), "output"))
		if i.row.Missing > 0 {
			c.Line("%s, which the file does not have: the store that was exported lacked them.", render.Count(int(i.row.Missing), "output"))
		}
		c.Line("Digest: %s", i.row.Digest)
	})
}

// readHeading reads the first line.
func (i *importer) readHeading() error {
	text, err := i.lines.next()
	if errors.Is(err, io.EOF) {
		return fault.WithHint(fault.Usage("%s is empty", i.lines.name), "name a file that ledger export store wrote")
	}
	if err != nil {
		return err
	}
	var h heading
	if err := json.Unmarshal(text, &h); err != nil || h.Format != fileFormat {
		return fault.WithHint(fault.Usage("%s line 1 does not begin a file of ledger export store", i.lines.name), "name a file that ledger export store wrote")
	}
	if h.Version != fileVersion {
		return &fault.Error{
			Exit: fault.ExitFailed, Code: "newer_format", Err: fmt.Errorf("%s line 1 has version %d of the format, and this program reads version %d", i.lines.name, h.Version, fileVersion),
			Hint: "use the version of ledger that wrote the file, or a newer one",
		}
	}
	if !i.lines.sound {
		return i.altered()
	}
	return nil
}

// run reads all further lines and compares the store with the last one.
func (i *importer) run(ctx context.Context) error {
	i.to = storecopy.NewTarget(ctx, i.row.Store, i.store)
	defer func() { i.to.Close() }()
	end, err := i.readLines(ctx)
	// What came before a line that does not fit is whole, and a repeated import continues it.
	if flushed := i.to.Flush(ctx); err == nil {
		err = flushed
	}
	if err != nil {
		return err
	}
	if err := i.to.End(); err != nil {
		return err
	}
	i.row.Records, i.row.Missing, i.row.Digest = i.got.Records, i.got.Missing, end.Digest
	if i.row.Appended == 0 {
		return nil
	}
	return i.compare(ctx, end)
}

// compare reads the store and compares its digest with the one of the last line: the stored
// bytes count, not the acknowledgements of the appends.
func (i *importer) compare(ctx context.Context, end ending) error {
	stored := events.NewDigest()
	for e, err := range events.Lend(ctx, i.store.Log, events.Query{}) {
		if err != nil {
			return err
		}
		stored.Add(e)
		i.progress.Show("compare", render.Records, int64(stored.Count()), stored.Count(), end.Records)
	}
	if stored.String() == end.Digest {
		return nil
	}
	return &fault.Error{
		Exit: fault.ExitUnverified, Code: "differs",
		Err: fmt.Errorf("%s has %d records with the digest %s after the import, and the file %d with %s", i.row.Store, stored.Count(), stored, end.Records, end.Digest),
	}
}

// readLines reads the lines up to the last one, which it returns, and appends what the store
// lacks.
func (i *importer) readLines(ctx context.Context) (ending, error) {
	for {
		l, err := i.line()
		if err != nil {
			return ending{}, err
		}
		i.progress.Bytes("import", i.lines.counted.n.Load(), i.lines.size)
		entry, ok, err := l.record()
		switch {
		case err != nil:
			return ending{}, fmt.Errorf("%s line %d: %w", i.lines.name, i.lines.number, err)
		case ok:
			err = i.record(ctx, entry)
		case l.Output != nil:
			err = i.output(ctx, *l.Output)
		case l.Missing != nil:
			i.got.Missing++
		case l.End != nil:
			return *l.End, i.end(*l.End)
		default:
			err = i.altered()
		}
		if err != nil {
			return ending{}, err
		}
	}
}

// line reads a line and checks its sum. A file without a last line was cut off.
func (i *importer) line() (l line, err error) {
	text, err := i.lines.next()
	if errors.Is(err, io.EOF) {
		return l, i.lines.cutOff()
	}
	if err != nil {
		return l, err
	}
	if !i.lines.sound {
		return l, i.altered()
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("%s line %d: %w", i.lines.name, i.lines.number, err)
	}
	return l, nil
}

// altered returns the fault of the current line, whose sum does not hold.
func (i *importer) altered() error {
	return &fault.Error{
		Exit: fault.ExitFailed, Code: "altered",
		Err:  fmt.Errorf("%s line %d is not as it was written: it was changed, or lines before it are missing or in another order", i.lines.name, i.lines.number),
		Hint: "the store has the records before this line; export the store again, and import that file into the same store: it continues",
	}
}

// record compares a record with the store, or appends it.
func (i *importer) record(ctx context.Context, e events.Entry) error {
	i.digest.Add(e)
	i.got.Records++
	if e.Revision == 1 {
		i.got.Streams++
	}
	held, err := i.to.Held(e, fmt.Sprintf("line %d of %s", i.lines.number, i.lines.name))
	if held || err != nil {
		return err
	}
	i.row.Appended++
	if err := i.to.Append(ctx, e); err != nil {
		return fmt.Errorf("import %s, at or before line %d: %w", i.lines.name, i.lines.number, err)
	}
	return nil
}

// output stores an output, or passes over its lines if the store has it.
func (i *importer) output(ctx context.Context, named domain.Retained) error {
	if err := i.to.Flush(ctx); err != nil {
		return err
	}
	i.got.Outputs++
	i.got.OutputBytes += named.Bytes
	from := &chunkReader{lines: i, left: named.Bytes}
	has, err := i.to.HasOutput(ctx, named)
	if err != nil {
		return err
	}
	if !has {
		i.row.Outputs++
		err = i.to.KeepOutput(ctx, named, from)
	}
	if from.err != nil { // the error of the file, and not what the outputs made of it
		return from.err
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, from)
	return err
}

// end compares the last line with the lines before, and requires that no line follows.
func (i *importer) end(said ending) error {
	i.got.Digest = i.digest.String()
	if said != i.got {
		return &fault.Error{
			Exit: fault.ExitFailed, Code: "altered",
			Err: fmt.Errorf("%s line %d says that the file has %+v, and it has %+v", i.lines.name, i.lines.number, said, i.got),
		}
	}
	if _, err := i.lines.next(); !errors.Is(err, io.EOF) {
		if err != nil {
			return err
		}
		return i.altered()
	}
	return nil
}

// A chunkReader reads the bytes of an output from its lines.
type chunkReader struct {
	lines *importer
	left  int64  // bytes that are not read yet
	chunk []byte // of the current line
	err   error
}

// Read implements io.Reader.
func (r *chunkReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if len(r.chunk) == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		l, err := r.lines.line()
		if err == nil && (len(l.Chunk) == 0 || int64(len(l.Chunk)) > r.left) {
			err = r.lines.altered()
		}
		if err != nil {
			r.err = err
			return 0, err
		}
		r.chunk, r.left = l.Chunk, r.left-int64(len(l.Chunk))
	}
	n := copy(p, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}

// A lineReader reads the lines of a file, which may be compressed, and checks their sums.
type lineReader struct {
	name    string
	size    int64 // of the file, or 0 if it is not known
	counted *countingReader
	in      *bufio.Reader
	close   func()
	text    []byte // of the current line, used again
	number  int    // of the current line, from 1
	chain   chain
	sound   bool // the sum of the current line holds
}

// A countingReader counts the bytes that are read.
type countingReader struct {
	io.Reader
	n atomic.Int64 // a decompressor reads in a goroutine of its own
}

// Read implements io.Reader.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// maxWindow is the largest memory of a Zstandard frame.
const maxWindow = 128 << 20

// newLineReader returns the reader of a file. It finds a compression by its first bytes.
func newLineReader(name string, size int64, from io.Reader) (*lineReader, error) {
	counted := &countingReader{Reader: from}
	in := bufio.NewReaderSize(counted, 1<<20)
	r := &lineReader{name: render.Printable(name), size: size, counted: counted, in: in, close: func() {}}
	if name == "-" {
		r.name = "the standard input"
	}
	magic, _ := in.Peek(4) // a shorter file has no compression
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		plain, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
		r.in = bufio.NewReaderSize(plain, 1<<20)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		plain, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
		r.in, r.close = bufio.NewReaderSize(plain, 1<<20), plain.Close
	}
	return r, nil
}

// next returns the next line without its end, which is valid until the call after. It returns
// io.EOF after the last line.
func (r *lineReader) next() ([]byte, error) {
	r.text = r.text[:0]
	r.number++
	for {
		part, err := r.in.ReadSlice('\n')
		r.text = append(r.text, part...)
		switch {
		case err == nil:
			text := r.text[:len(r.text)-1]
			r.sound = r.chain.check(text)
			return text, nil
		case len(r.text) > maxLine:
			return nil, fault.WithHint(fault.Usage("%s line %d has more than %s", r.name, r.number, render.Bytes(maxLine)), "name a file that ledger export store wrote")
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(r.text) == 0:
			return nil, io.EOF
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil, r.cutOff()
		default:
			return nil, fmt.Errorf("%s line %d: %w", r.name, r.number, err)
		}
	}
}

// cutOff returns the fault of a file that ends early.
func (r *lineReader) cutOff() error {
	return &fault.Error{
		Exit: fault.ExitFailed, Code: "cut_off",
		Err:  fmt.Errorf("%s was cut off: it ends at line %d without the last line of an export", r.name, r.number),
		Hint: "the store has the records before this line; complete the file, or export the store again, and import it into the same store: it continues",
	}
}
