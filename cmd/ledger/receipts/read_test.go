package receipts

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// A file that is no receipt is an error that says why, and a newer one says which version.
func TestReadNamesTheFaultOfAFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 33, 120, unpruned)
	_, data := prove(t, w.Store, w.richCall(t))
	receipt := string(data)
	replaced := func(old, with string) string {
		if !strings.Contains(receipt, old) {
			t.Fatalf("the receipt has no %s", old)
		}
		return strings.Replace(receipt, old, with, 1)
	}
	for _, row := range []struct {
		name, text string
		is         error
		says       string
	}{
		{"nothing", "", ErrNotAReceipt, "EOF"},
		{"null", "null", ErrNotAReceipt, "no receipt_version"},
		{"a list", "[]", ErrNotAReceipt, "array"},
		{"another document", `{"name":"x"}`, ErrNotAReceipt, "no receipt_version"},
		{"half a receipt", receipt[:len(receipt)/2], ErrNotAReceipt, "EOF"},
		{"two receipts", receipt + receipt, ErrNotAReceipt, "after top-level value"},
		{"a newer version", replaced(`"receipt_version": 1`, `"receipt_version": 2, "anything": {}`), ErrNewerReceipt, "version 2"},
		{"version 0", replaced(`"receipt_version": 1`, `"receipt_version": 0`), ErrNotAReceipt, "receipt_version"},
		{"a version that is no number", replaced(`"receipt_version": 1`, `"receipt_version": "1"`), ErrNotAReceipt, "receipt_version"},
		{"a huge version", replaced(`"receipt_version": 1`, `"receipt_version": 1e400`), ErrNotAReceipt, "receipt_version"},
		{"a repeated name", replaced(`"made":`, `"made": "", "made":`), ErrNotAReceipt, "duplicate"},
		{"a repeated name in an event", replaced(`"kind":`, `"kind": "X", "kind":`), ErrNotAReceipt, "duplicate"},
		{"an unknown name", replaced(`"made":`, `"mode": "", "made":`), ErrNotAReceipt, "unknown"},
		{"a name in other case", replaced(`"made":`, `"Made":`), ErrNotAReceipt, "unknown"},
		{"a tree head", replaced(`"tree_head": null`, `"tree_head": {}`), ErrNotAReceipt, "tree_head"},
		{"no outputs", replaced(`"outputs": [`, `"outputs": null, "o": [`), ErrNotAReceipt, "unknown"},
		{"no UTF-8", replaced(`"made": "`, "\"made\": \"\xff"), ErrNotAReceipt, "UTF-8"},
		{"a deep value", replaced(`"tree_head": null`, `"tree_head": `+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)), ErrNotAReceipt, "depth"},
		{"a digest that is none", replaced(`"sha256": "`, `"sha256": "x`), ErrNotAReceipt, "store.sha256"},
		{"a time that is none", replaced(`"made": "`, `"made": "x`), ErrNotAReceipt, "made"},
		{"an event that is no record", replaced(`"kind": "TurnMaterialized"`, `"kind": ""`), ErrNotAReceipt, "events[0]"},
		{"data twice", replaced(`"data": "`, `"data_base64": "eA==", "data": "`), ErrNotAReceipt, "twice"},
		{"an output in no state", replaced(`"state": "kept"`, `"state": "burnt"`), ErrNotAReceipt, `"burnt"`},
		{"an ID of another kind", replaced(`"session": "ses_`, `"session": "evt_`), ErrNotAReceipt, "session"},
	} {
		_, err := Read(strings.NewReader(row.text))
		if !errors.Is(err, row.is) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: Read = %v, want %v that says %q", row.name, err, row.is, row.says)
		}
	}
}

// A receipt of more bytes than the limit is refused before it is parsed.
func TestReadRefusesAHugeFile(t *testing.T) {
	if os.Getenv("LEDGER_TEST_LONG") == "" {
		t.Skip("reads 128 MiB: set LEDGER_TEST_LONG")
	}
	_, err := Read(io.MultiReader(strings.NewReader(`{"receipt_version":1,"made":"`), zeros{}))
	if !errors.Is(err, ErrNotAReceipt) || !strings.Contains(err.Error(), "more than") {
		t.Errorf("Read of endless bytes = %v, want that it is too large", err)
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// Texts that a terminal would obey are escaped in a receipt, and it gives the recorded bytes back.
func TestAReceiptShowsHostileTextHarmlessly(t *testing.T) {
	t.Parallel()
	log := projectionstest.NewLog(3)
	session, message := log.Mint.Session(), log.Mint.Message()
	hostile := "\x1b]0;x\a \u202egnp.exe \u009b2J \U000E0041 é 漢 <script>"
	stream := events.SessionStream(session)
	log.Add(stream, events.SessionOpened{Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}})
	log.Add(stream, events.ReplyReceived{Turn: log.Mint.Turn(), Message: message, Text: hostile, Calls: []domain.Call{{ID: "c", Name: "read", Input: []byte(`{}`)}}})
	records := recordsOf(t, log.Envelopes())
	raw := records[1].Record
	raw.ID, raw.Data = log.Mint.Event(), []byte(strings.ReplaceAll(string(raw.Data), "é", "\xff")) // not UTF-8
	w := newWorld(t, 33, 10, unpruned)
	s := newStore(t, append(records, placed{stream, raw}), w.outs)
	r, data := prove(t, s, calls.Key{Session: session, Message: message, Call: "c"})
	for _, bad := range []string{"\x1b", "\a", "\u202e", "\u009b", "\U000E0041"} {
		if bytes.Contains(data, []byte(bad)) {
			t.Errorf("the receipt has %q", bad)
		}
	}
	if !bytes.Contains(data, []byte("漢 <script>")) {
		t.Error("the receipt escapes text that a terminal prints")
	}
	if len(r.Events) != 2 || r.Events[1].Data != "" || !bytes.Equal(r.Events[1].DataBase64, raw.Data) {
		t.Fatalf("events %+v, want one as a text and one in base64", r.Events)
	}
	if report := check(t, s, r); len(report.Differences) > 0 {
		t.Errorf("differences %+v", report.Differences)
	}
}

// The exit code of a check says what was found.
func TestCheckFileExitsByWhatItFinds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 33, 120, unpruned)
	r, data := prove(t, w.Store, w.richCall(t))
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	other := newStore(t, recordsOf(t, projectionstest.History(34, 20)), w.outs)
	var shown bytes.Buffer
	p := &render.Printer{Out: bufio.NewWriter(&shown), Err: io.Discard, Now: time.Now, Env: os.LookupEnv, Format: render.AsTable, Color: render.ColorAuto}
	changed := bytes.Replace(data, []byte("offer"), []byte("other"), 1)
	for _, row := range []struct {
		path, code string
		exit       int
		other      bool
	}{
		{file("good", data), "", 0, false},
		{file("changed", changed), "differs", fault.ExitUnverified, false},
		{file("newer", []byte(`{"receipt_version":9}`)), "newer_format", fault.ExitUsage, false},
		{file("none", []byte(`{}`)), "not_a_receipt", fault.ExitUsage, false},
		{dir, "usage", fault.ExitUsage, false},
		{filepath.Join(dir, "missing"), "not_found", fault.ExitNotFound, false},
		{file("good", data), "not_found", fault.ExitNotFound, true},
	} {
		s := w.Store
		if row.other {
			s = other
		}
		shown.Reset()
		err := CheckFile(t.Context(), p, s, row.path, Options{Bytes: true})
		if err := p.Out.Flush(); err != nil {
			t.Fatal(err)
		}
		if err == nil && row.exit == 0 {
			if !strings.Contains(shown.String(), "✓ the store has every event") || !strings.Contains(shown.String(), r.Call.Session.String()) {
				t.Errorf("a check without a difference prints %s", shown.String())
			}
			continue
		}
		if err == nil || fault.Of(err).Exit != row.exit || fault.Of(err).Code != row.code || fault.Of(err).Hint == "" && row.code != "usage" {
			t.Errorf("CheckFile(%s) = %v, want exit %d with the code %s and a hint", row.path, err, row.exit, row.code)
		}
		if row.code == "differs" && !strings.Contains(shown.String(), "≠ events[0], revision") {
			t.Errorf("a check with a difference prints %s", shown.String())
		}
	}
}

// Read returns a receipt or an error for any bytes, and a receipt survives its encoding.
func FuzzRead(f *testing.F) {
	seed, err := os.ReadFile(filepath.Join("testdata", "receipt.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	for _, text := range []string{"", "{}", "null", `{"receipt_version":1}`, `{"receipt_version":2}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Read(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, ErrNotAReceipt) && !errors.Is(err, ErrNewerReceipt) {
				t.Fatalf("Read = %v, want ErrNotAReceipt or ErrNewerReceipt", err)
			}
			return
		}
		encoded, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Read(bytes.NewReader(encoded))
		if err != nil || again.computed != again.SHA256 {
			t.Fatalf("the encoding of a receipt reads as %+v, %v", again, err)
		}
		c := &storeComparison{Report: &Report{}, receipt: r}
		c.checkSeal()
		c.checkEvents()
		c.checkRetained()
	})
}

// The receipt of version 1 in testdata is read for ever.
func TestAReceiptOfVersion1IsRead(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "receipt.json"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Read(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := &storeComparison{Report: &Report{}, receipt: r}
	c.checkSeal()
	c.checkEvents()
	c.checkRetained()
	if len(c.Differences) > 0 || c.settled == nil || len(r.Outputs) != 1 {
		t.Errorf("differences %+v, settlement %v, %d outputs", c.Differences, c.settled, len(r.Outputs))
	}
}
