package storefile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/resumable"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
	"github.com/settlement-ledger/ledger/projections/spill"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// noError ends the test at an error.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newOpener returns an Opener of the store at an address.
func newOpener(t testing.TB, at string) *stores.Opener {
	home := t.TempDir()
	return &stores.Opener{
		Getenv: func(name string) string {
			return map[string]string{"HOME": home, "LEDGER_NODE": filepath.Join(home, "node")}[name]
		},
		Clock: time.Now, Entropy: rand.Reader, NewLogger: func(slog.Level) *slog.Logger { return slog.New(slog.DiscardHandler) },
		Named: at, NamedByFlag: true,
	}
}

// newPrinter returns a Printer of JSON, and the buffer of its results.
func newPrinter() (*render.Printer, *bytes.Buffer) {
	var out bytes.Buffer
	return &render.Printer{Out: bufio.NewWriter(&out), Err: io.Discard, Env: func(string) (string, bool) { return "", false }, Now: time.Now, Format: render.AsJSON}, &out
}

// oddDocuments are data and metadata that a line cannot have as they are, or only just.
var oddDocuments = []string{
	`{}`, `null`, `0`, `"\ud800"`, `{"a":1,"a":2}`, `{ "a" : [1, 2.50, 1e999] }`, `"<&>` + "\u2028" + `"`, ``, ` {}`, "{}\t", "{\n}", "\r1", `1,2`, `}`, "\xff", "\"\xc3\x28\"", "\x00",
	strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999), strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), `"` + strings.Repeat("x", 100_000) + `"`,
}

// newStore fills the folder of a store: a random history, odd records, and settlements whose
// outputs are stored, pruned and missing.
func newStore(t testing.TB, seed uint64, n int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	s, err := newOpener(t, dir).OpenFolder(t.Context(), dir, storedir.Owner{})
	noError(t, err)
	defer func() { noError(t, s.Close()) }()
	noError(t, projectionstest.Append(t.Context(), s.Log, projectionstest.History(seed, n)))
	mint := domain.NewMint(time.Now, rand.Reader)
	for i, doc := range oddDocuments {
		r := events.Record{ID: mint.Event(), Kind: "Odd\xff\"", Version: 65535, Time: time.UnixMicro(int64(i) * 1e15).UTC(), Data: []byte(doc), Metadata: []byte(oddDocuments[len(oddDocuments)-1-i])}
		noError(t, s.Log.Append(t.Context(), events.Stream("odd\xfe-\u2028"), events.Revision(i), r))
	}
	session := events.SessionStream(mint.Session())
	for i, text := range []string{"", "short\n", strings.Repeat("0123456789abcdef", chunkBytes/16), strings.Repeat("x", 2*chunkBytes+1)} {
		d := s.Ledger.Draft(events.CallSettled{}, domain.EventID{})
		ref := domain.NewRef(d.ID, domain.TextChannel)
		kept, err := s.LocalOutputs.Keep(t.Context(), ref, "text/plain; charset=utf-8", strings.NewReader(text))
		noError(t, err)
		settled := events.CallSettled{Message: mint.Message(), Call: "call", Tool: "read", Outcome: domain.Succeeded, Began: true, Retained: []domain.Retained{kept}}
		if i == 1 { // a second output that is not stored anywhere
			settled.Retained = append(settled.Retained, domain.Retained{Ref: domain.NewRef(d.ID, domain.StructuredChannel), Bytes: 3, Lines: 1, MIME: "application/json", SHA256: kept.SHA256})
		}
		d.Event = settled
		_, err = s.Ledger.Append(t.Context(), session, events.Revision(i), d)
		noError(t, err)
		noError(t, s.LocalOutputs.Confirm(t.Context(), d.ID))
	}
	return dir
}

// appendMore appends records to the store in a folder.
func appendMore(t testing.TB, dir string, n int) {
	t.Helper()
	s, err := embedded.Open(t.Context(), dir, embedded.Config{})
	noError(t, err)
	mint := domain.NewMint(time.Now, rand.Reader)
	for i := range n {
		r := events.Record{ID: mint.Event(), Kind: "More", Version: 1, Time: time.UnixMicro(int64(i)).UTC(), Data: []byte("{}")}
		noError(t, s.Append(t.Context(), "more-1", events.Revision(i), r))
	}
	noError(t, s.Close())
}

// withStore calls use with the store at an address, opened to read it.
func withStore(t testing.TB, at string, use func(*stores.Store)) {
	t.Helper()
	noError(t, newOpener(t, at).Read(t.Context(), func(s *stores.Store) error { use(s); return nil }))
}

// export exports a store to a file and returns the result.
func export(t testing.TB, at, path string, o resumable.Options) (row Exported, err error) {
	t.Helper()
	p, out := newPrinter()
	withStore(t, at, func(s *stores.Store) { err = Export(t.Context(), p, s, path, o) })
	noError(t, p.Out.Flush())
	if err == nil && path != "-" {
		noError(t, json.Unmarshal(out.Bytes(), &row))
	}
	return row, err
}

// importFile imports a file into the store at an address and returns the result.
func importFile(t testing.TB, at, path string) (row Imported, err error) {
	t.Helper()
	p, out := newPrinter()
	err = Import(t.Context(), Config{p, newOpener(t, at), nil}, path)
	noError(t, p.Out.Flush())
	if err == nil {
		noError(t, json.Unmarshal(out.Bytes(), &row))
	}
	return row, err
}

// contents returns the records of a store, and its outputs by reference.
func contents(t testing.TB, at string) (all []events.Entry, kept map[string]string) {
	t.Helper()
	kept = map[string]string{}
	withStore(t, at, func(s *stores.Store) {
		for e, err := range s.Log.ReadAll(t.Context(), events.Position{}) {
			noError(t, err)
			for _, named := range retainedBy(e) {
				from, err := s.Outputs.Open(t.Context(), named.Ref)
				if errors.Is(err, outputs.ErrNotFound) {
					continue
				}
				noError(t, err)
				text, err := io.ReadAll(from)
				noError(t, errors.Join(err, from.Close()))
				kept[named.Ref.String()] = string(text)
			}
			e.Position = events.Position{}
			all = append(all, e)
		}
	})
	return all, kept
}

// equalStores fails the test if two stores differ in a record or an output.
func equalStores(t testing.TB, got, want string) {
	t.Helper()
	a, keptA := contents(t, got)
	b, keptB := contents(t, want)
	if !slices.EqualFunc(a, b, func(a, b events.Entry) bool {
		return a.ID == b.ID && a.Stream == b.Stream && a.Revision == b.Revision && a.Kind == b.Kind && a.Version == b.Version && a.Time.Equal(b.Time) && bytes.Equal(a.Data, b.Data) && bytes.Equal(a.Metadata, b.Metadata)
	}) {
		t.Errorf("the records differ: %d and %d", len(a), len(b))
	}
	if len(keptA) == 0 || len(keptA) != len(keptB) {
		t.Errorf("%d outputs, want %d", len(keptA), len(keptB))
	}
	for ref, text := range keptB {
		if keptA[ref] != text {
			t.Errorf("output %s has %d bytes, want %d", ref, len(keptA[ref]), len(text))
		}
	}
}

// faultCode returns the code of a fault, and the empty text for nil.
func faultCode(err error) string {
	if err == nil {
		return ""
	}
	return fault.Of(err).Code
}

// An export makes an equal store, byte for byte, whatever the records have. A second import
// appends nothing, and an import onto a beginning appends the rest.
func TestAnExportMakesAnEqualStore(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"s.jsonl", "s.jsonl.gz", "s.jsonl.zst"} {
		from := newStore(t, uint64(i), 150)
		path := filepath.Join(t.TempDir(), name)
		out, err := export(t, from, path, resumable.Options{})
		noError(t, err)
		if text, err := os.ReadFile(path); err != nil || i == 0 && !utf8.Valid(text) {
			t.Errorf("the file is not UTF-8, %v", err)
		}
		if out.Outputs != 4 || out.Missing == 0 || out.Records < 150 || out.Continued != 0 {
			t.Errorf("export = %+v", out)
		}
		to := filepath.Join(t.TempDir(), "to")
		in, err := importFile(t, to, path)
		noError(t, err)
		if in.Records != out.Records || in.Appended != out.Records || in.Outputs != 4 || in.Missing != out.Missing || in.Digest != out.Digest {
			t.Errorf("import = %+v of %+v", in, out)
		}
		equalStores(t, to, from)
		if again, err := importFile(t, to, path); err != nil || again.Appended != 0 || again.Outputs != 0 || again.Digest != out.Digest {
			t.Errorf("a second import = %+v, %v", again, err)
		}
		half := filepath.Join(t.TempDir(), "half")
		copyRecords(t, from, half, int(out.Records/2))
		if in, err := importFile(t, half, path); err != nil || in.Appended != out.Records-out.Records/2 || in.Outputs != 4 {
			t.Errorf("import onto a beginning = %+v, %v", in, err)
		}
		equalStores(t, half, from)
	}
}

// copyRecords makes a store of the first n records of another.
func copyRecords(t testing.TB, from, to string, n int) {
	t.Helper()
	s, err := embedded.Open(t.Context(), to, embedded.Config{})
	noError(t, err)
	all, _ := contents(t, from)
	for _, e := range all[:n] {
		noError(t, s.Append(t.Context(), e.Stream, e.Revision-1, e.Record))
	}
	noError(t, s.Close())
}

// An empty store makes a file, and that an empty store.
func TestAnEmptyStoreIsExported(t *testing.T) {
	t.Parallel()
	from, to, path := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to"), filepath.Join(t.TempDir(), "s.jsonl")
	copyRecords(t, newStore(t, 1, 1), from, 0)
	out, err := export(t, from, path, resumable.Options{})
	in, imported := importFile(t, to, path)
	if err := errors.Join(err, imported); err != nil || out.Records != 0 || in.Records != 0 || in.Digest != events.NewDigest().String() {
		t.Errorf("export = %+v, import = %+v, %v", out, in, err)
	}
}

// A file that is changed at any line, or cut off at any byte, is refused there, with the number
// of the line. The store then has the records before, and the whole file continues it.
func TestADamagedFileIsRefusedAtItsLine(t *testing.T) {
	t.Parallel()
	from := newStore(t, 4, 20)
	path := filepath.Join(t.TempDir(), "s.jsonl")
	_, err := export(t, from, path, resumable.Options{})
	noError(t, err)
	whole, err := os.ReadFile(path)
	noError(t, err)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	lines = lines[:len(lines)-1] // behind the last line end is nothing
	join := func(parts ...[][]byte) []byte { return bytes.Join(slices.Concat(parts...), nil) }
	random := mathrand.New(mathrand.NewPCG(1, 2))
	tries := 0
	try := func(name string, line int, code string, text []byte) {
		t.Helper()
		tries++
		bad, to := filepath.Join(t.TempDir(), "bad.jsonl"), filepath.Join(t.TempDir(), "to")
		noError(t, os.WriteFile(bad, text, 0o600))
		_, err := importFile(t, to, bad)
		if faultCode(err) != code || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("line %d", line)) {
			t.Errorf("%s: %v, want %s at line %d", name, err, code, line)
			return
		}
		want := 0
		for _, l := range lines[:line-1] {
			if bytes.HasPrefix(l, []byte(`{"stream`)) {
				want++
			}
		}
		if line == 1 {
			if !stores.Missing(to) {
				t.Errorf("%s made a store", name)
			}
			return
		}
		if got, _ := contents(t, to); len(got) != want {
			t.Errorf("%s: the store has %d records, want the %d before line %d", name, len(got), want, line)
		}
		if tries%8 != 0 {
			return
		}
		_, err = importFile(t, to, path)
		noError(t, err)
		equalStores(t, to, from)
	}
	step := 61
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		step = 1
	}
	for n := 1; n < len(lines); n += step {
		at := n + 1
		changed := slices.Clone(lines[n])
		changed[len(changed)/3] ^= 1
		try("a changed bit", at, "altered", join(lines[:n], [][]byte{changed}, lines[n+1:]))
		cut := random.IntN(len(lines[n])-1) + 1
		try("a cut", at, "cut_off", append(join(lines[:n]), lines[n][:cut]...))
		try("an end between lines", at, "cut_off", join(lines[:n]))
		if n+1 < len(lines) {
			try("a missing line", at, "altered", join(lines[:n], lines[n+1:]))
			try("two lines in the other order", at, "altered", join(lines[:n], lines[n+1:n+2], lines[n:n+1], lines[n+2:]))
		}
		try("a line twice", at, "altered", join(lines[:n], lines[n-1:n], lines[n:]))
	}
	// Lines whose sums hold again, without the records of one.
	var sealed []byte
	var again chain
	for n, l := range lines {
		if n != 3 {
			sealed = append(sealed, again.seal(slices.Clone(l[:len(l)-len(beforeSum)-sumDigits-len(afterSum)-1]))...)
		}
	}
	if _, err := importFile(t, filepath.Join(t.TempDir(), "to"), writeFile(t, sealed)); faultCode(err) != "altered" && faultCode(err) != "conflict" {
		t.Errorf("a file without a record and with new sums = %v, want altered or a conflict", err)
	}
	sealed, again = nil, chain{}
	for _, l := range lines {
		l = bytes.Replace(l, []byte(`"output_bytes":`), []byte(`"output_bytes":1`), 1)
		sealed = append(sealed, again.seal(slices.Clone(l[:len(l)-len(beforeSum)-sumDigits-len(afterSum)-1]))...)
	}
	if _, err := importFile(t, filepath.Join(t.TempDir(), "to"), writeFile(t, sealed)); faultCode(err) != "altered" || !strings.Contains(err.Error(), fmt.Sprintf("line %d says", len(lines))) {
		t.Errorf("a file with another last line and new sums = %v, want altered", err)
	}
	try("a line behind the end", len(lines)+1, "altered", append(slices.Clone(whole), lines[1]...))
	try("a newer version", 1, "newer_format", bytes.Replace(whole, []byte(`"version":1`), []byte(`"version":2`), 1))
	try("another format", 1, "usage", []byte("{\"a\":1}\n"))
	try("no line", 1, "cut_off", []byte("{"))
}

// writeFile writes a file with a text and returns its path.
func writeFile(t testing.TB, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.jsonl")
	noError(t, os.WriteFile(path, text, 0o600))
	return path
}

// A compressed file that is cut off is reported as such.
func TestACompressedFileThatIsCutOffIsRefused(t *testing.T) {
	t.Parallel()
	from := newStore(t, 5, 50)
	for _, name := range []string{"s.jsonl.gz", "s.jsonl.zst"} {
		path := filepath.Join(t.TempDir(), name)
		_, err := export(t, from, path, resumable.Options{})
		noError(t, err)
		info, err := os.Stat(path)
		noError(t, err)
		noError(t, os.Truncate(path, info.Size()/2))
		if _, err := importFile(t, filepath.Join(t.TempDir(), "to"), path); faultCode(err) != "cut_off" {
			t.Errorf("import of half of %s = %v, want cut_off", name, err)
		}
	}
}

// A store with another record is a conflict that names the stream and the revision, and is not
// changed.
func TestAStoreWithOtherRecordsIsAConflict(t *testing.T) {
	t.Parallel()
	from := newStore(t, 6, 30)
	path := filepath.Join(t.TempDir(), "s.jsonl")
	_, err := export(t, from, path, resumable.Options{})
	noError(t, err)
	other := filepath.Join(t.TempDir(), "other")
	copyRecords(t, from, other, 9)
	appendMore(t, other, 1)
	all, _ := contents(t, from)
	_, err = importFile(t, other, path)
	if says := fmt.Sprintf("revision %d of %s", all[9].Revision, all[9].Stream); faultCode(err) != "conflict" || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "line 11 of "+path) {
		t.Errorf("import = %v, want a conflict that names %q", err, says)
	}
	if got, _ := contents(t, other); len(got) != 10 {
		t.Errorf("the store has %d records, want 10 as before", len(got))
	}
	longer := filepath.Join(t.TempDir(), "longer")
	copyRecords(t, from, longer, len(all))
	appendMore(t, longer, 1)
	if _, err := importFile(t, longer, path); faultCode(err) != "conflict" || !strings.Contains(err.Error(), "revision 1 of more-1, in place of nothing") {
		t.Errorf("import into a longer store = %v, want a conflict", err)
	}
}

// errCut interrupts an export.
var errCut = errors.New("cut")

// A cutSink passes on content to a file, and fails at a checkpoint or, with more, behind it.
type cutSink struct {
	*resumable.File
	left int
}

// Checkpoint implements resumable.Sink.
func (c *cutSink) Checkpoint(state any) error {
	if c.left == 0 {
		return errCut
	}
	c.left--
	return c.File.Checkpoint(state)
}

// A growingSink appends a record to the log at each checkpoint.
type growingSink struct {
	*resumable.File
	grow func()
}

// Checkpoint implements resumable.Sink.
func (g *growingSink) Checkpoint(state any) error {
	g.grow()
	return g.File.Checkpoint(state)
}

// An export of a log that grows meanwhile has the records up to its end at the beginning.
func TestAnExportOfALogThatGrowsIsOfOneMoment(t *testing.T) {
	t.Parallel()
	dir := newStore(t, 12, 100)
	want, err := export(t, dir, filepath.Join(t.TempDir(), "before.jsonl"), resumable.Options{})
	noError(t, err)
	s, err := newOpener(t, dir).OpenFolder(t.Context(), dir, storedir.Owner{})
	noError(t, err)
	defer func() { noError(t, s.Close()) }()
	memory, err := spill.Open()
	noError(t, err)
	defer func() { noError(t, memory.Close()) }()
	p, _ := newPrinter()
	e := newExporter(s, memory)
	e.segment, e.progress = 50_000, p.Progress()
	e.head, err = headingOf(t.Context(), s)
	noError(t, err)
	path, grown := filepath.Join(t.TempDir(), "s.jsonl"), 0
	f, err := resumable.Open(path, contentOf(e.head), resumable.Options{})
	noError(t, err)
	noError(t, e.resume(t.Context(), f))
	e.to = &growingSink{f, func() {
		r := events.Record{ID: s.Ledger.Mint().Event(), Kind: "Grown", Version: 1, Time: s.Ledger.Now(), Data: []byte("{}")}
		noError(t, s.Log.Append(t.Context(), "grown-1", events.Revision(grown), r))
		grown++
	}}
	noError(t, errors.Join(e.run(t.Context()), f.Close()))
	in, err := importFile(t, filepath.Join(t.TempDir(), "to"), path)
	if err != nil || grown < 3 || in.Records != want.Records || in.Digest != want.Digest {
		t.Errorf("export while %d records were appended = %+v, %v, want the %d records before", grown, in, err, want.Records)
	}
}

// exportSegments exports a store with small segments until it has made a number of
// checkpoints. It returns the number of records that an earlier run had written, and the
// checkpoints that are left.
func exportSegments(t testing.TB, at, path string, checkpoints int) (continued uint64, left int, err error) {
	t.Helper()
	memory, err := spill.Open()
	noError(t, err)
	defer func() { noError(t, memory.Close()) }()
	p, _ := newPrinter()
	withStore(t, at, func(s *stores.Store) {
		e := newExporter(s, memory)
		e.segment, e.progress = 50_000, p.Progress()
		e.head, err = headingOf(t.Context(), s)
		noError(t, err)
		f, opened := resumable.Open(path, contentOf(e.head), resumable.Options{})
		if err = opened; err != nil {
			return
		}
		sink := &cutSink{f, checkpoints}
		e.to = sink
		if err = e.resume(t.Context(), f); err == nil {
			continued = e.at.Records
			err = e.run(t.Context())
		}
		left = sink.left
		err = errors.Join(err, f.Close())
	})
	return continued, left, err
}

// An export that is interrupted at any checkpoint continues there, and its file has the bytes
// of one written at once, although the log has grown. A log with other records is refused.
func TestAnExportGoesOnFromEveryCheckpoint(t *testing.T) {
	t.Parallel()
	from := newStore(t, 7, 200)
	for _, name := range []string{"s.jsonl", "s.jsonl.zst"} {
		whole := filepath.Join(t.TempDir(), name)
		_, left, err := exportSegments(t, from, whole, 1000)
		noError(t, err)
		want, err := os.ReadFile(whole)
		noError(t, err)
		checkpoints := 1000 - left
		if checkpoints < 5 {
			t.Fatalf("the export has %d checkpoints", checkpoints)
		}
		step := max(1, checkpoints/3)
		if os.Getenv("LEDGER_TEST_LONG") != "" {
			step = 1
		}
		grown := filepath.Join(t.TempDir(), "grown")
		noError(t, os.CopyFS(grown, os.DirFS(from)))
		appendMore(t, grown, 3)
		for n := 0; n < checkpoints; n += step {
			path := filepath.Join(t.TempDir(), name)
			if _, _, err := exportSegments(t, from, path, n); !errors.Is(err, errCut) {
				t.Fatal(err)
			}
			if n == step { // a store with other records, and one that has the first of them only
				other := filepath.Join(t.TempDir(), "other")
				copyRecords(t, from, other, 3)
				appendMore(t, other, 300)
				if _, _, err := exportSegments(t, other, path, 1000); !errors.Is(err, resumable.ErrOtherContent) {
					t.Errorf("continued from a store with other records: %v, want ErrOtherContent", err)
				}
				if _, _, err := exportSegments(t, newStore(t, 8, 10), path, 1000); !errors.Is(err, resumable.ErrOtherContent) {
					t.Errorf("continued from another store: %v, want ErrOtherContent", err)
				}
			}
			continued, _, err := exportSegments(t, grown, path, 1000)
			noError(t, err)
			got, err := os.ReadFile(path)
			noError(t, err)
			if !bytes.Equal(got, want) || (continued > 0) != (n > 0) {
				t.Errorf("%s cut at checkpoint %d: continued after %d records, equal bytes %t", name, n, continued, bytes.Equal(got, want))
			}
		}
	}
}

// A store in a database is exported and imported as one in a folder.
func TestADatabaseIsExportedAndImported(t *testing.T) {
	t.Parallel()
	log, err := embedded.Open(t.Context(), "db", embedded.Config{FS: vfs.NewMem()})
	noError(t, err)
	served, err := server.New(log, server.Config{Anonymous: auth.Ledger})
	noError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := served.Serve(listener); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		served.Close()
		serving.Wait()
		noError(t, log.Close())
	})
	at := "esdb://" + listener.Addr().String() + "?tls=false"
	from := filepath.Join(t.TempDir(), "from")
	all, _ := contents(t, newStore(t, 9, 120))
	all = slices.DeleteFunc(all, func(e events.Entry) bool { return strings.HasPrefix(string(e.Stream), "odd") }) // a database takes JSON in UTF-8 only
	s, err := embedded.Open(t.Context(), from, embedded.Config{})
	noError(t, err)
	for _, e := range all {
		noError(t, s.Append(t.Context(), e.Stream, e.Revision-1, e.Record))
	}
	noError(t, s.Close())
	first, second := filepath.Join(t.TempDir(), "1.jsonl"), filepath.Join(t.TempDir(), "2.jsonl")
	out, err := export(t, from, first, resumable.Options{})
	noError(t, err)
	in, err := importFile(t, at, first)
	if err != nil || in.Digest != out.Digest || in.Appended != uint64(len(all)) {
		t.Fatalf("import into a database = %+v, %v", in, err)
	}
	back, err := export(t, at, second, resumable.Options{})
	if err != nil || back.Digest != out.Digest || back.Records != out.Records {
		t.Errorf("export of a database = %+v, %v, want the records of %+v", back, err, out)
	}
}

// The standard output has the bytes of a file, and the standard input is read as one.
func TestTheStandardStreamsHaveTheFile(t *testing.T) {
	t.Parallel()
	from, path := newStore(t, 10, 20), filepath.Join(t.TempDir(), "s.jsonl")
	_, err := export(t, from, path, resumable.Options{})
	noError(t, err)
	want, err := os.ReadFile(path)
	noError(t, err)
	p, out := newPrinter()
	withStore(t, from, func(s *stores.Store) { noError(t, Export(t.Context(), p, s, "-", resumable.Options{})) })
	noError(t, p.Out.Flush())
	if !bytes.Equal(out.Bytes(), want) {
		t.Error("the standard output differs from the file")
	}
	to := filepath.Join(t.TempDir(), "to")
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	_, err = z.Write(want)
	noError(t, errors.Join(err, z.Close()))
	p, _ = newPrinter()
	noError(t, Import(context.WithoutCancel(t.Context()), Config{p, newOpener(t, to), &compressed}, "-"))
	equalStores(t, to, from)
}

// The line of a record has the record, whatever its bytes are.
func FuzzALineHasItsRecord(f *testing.F) {
	for i, doc := range oddDocuments {
		f.Add("session-1", "Kind", []byte(doc), []byte(oddDocuments[len(oddDocuments)-1-i]), int64(i)*1e15, uint16(i+1))
	}
	f.Add("odd\xfe-\u2028", "\"\xff", []byte("{}"), []byte(nil), int64(-62135596800000000), uint16(1))
	id := domain.NewMint(time.Now, rand.Reader).Event()
	f.Fuzz(func(t *testing.T, stream, kind string, data, metadata []byte, us int64, version uint16) {
		const year10000, year0 = 253402300800000000, -62167219200000000
		e := events.Entry{Stream: events.Stream(stream), Revision: 7, Record: events.Record{ID: id, Kind: kind, Version: int(version), Time: time.UnixMicro(us).UTC(), Data: data, Metadata: metadata}}
		if e.Valid() != nil || stream == "" || us > 10*year10000 || us < 10*year0 {
			return
		}
		var sums, check chain
		text := bytes.TrimSuffix(sums.seal(appendRecord(nil, e)), []byte("\n"))
		if bytes.ContainsAny(text, "\n\r") || !utf8.Valid(text) || !check.check(text) {
			t.Fatalf("the line is %q", text)
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatalf("%v: %q", err, text)
		}
		got, ok, err := l.record()
		if err != nil || !ok || got.Stream != e.Stream || got.Revision != e.Revision || got.ID != e.ID || got.Kind != e.Kind || got.Version != e.Version || !got.Time.Equal(e.Time) || !bytes.Equal(got.Data, e.Data) || !bytes.Equal(got.Metadata, e.Metadata) {
			t.Fatalf("the record is %+v, %v, want %+v of %q", got, err, e, text)
		}
	})
}
