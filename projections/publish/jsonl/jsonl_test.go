package jsonl_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/projections/publish/jsonl"
)

// record returns a message as package publish makes it, with number n as its ID,
// revision and position.
func record(n int, data string) *message.Message {
	m := message.NewMessage(fmt.Sprintf("evt_%026d", n), []byte(data))
	m.Metadata = message.Metadata{
		publish.KeyStream: "thing-1", publish.KeyRevision: fmt.Sprint(n), publish.KeyPosition: fmt.Sprint(n), publish.KeyKind: "Happened",
		publish.KeyVersion: "1", publish.KeyTime: "2026-03-01T12:00:00Z", publish.KeyTool: "a\nb<", publish.KeyMetadata: `{"m":1}`,
	}
	return m
}

// at returns the position of record n.
func at(n uint64) events.Position { return events.NewPosition(n, n) }

// open opens a file for a consumer at position p.
func open(t *testing.T, path string, p events.Position) *jsonl.Publisher {
	t.Helper()
	f, err := jsonl.Open(path, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// put publishes the records from one number to another in one call.
func put(t *testing.T, f *jsonl.Publisher, from, to int) {
	t.Helper()
	var all []*message.Message
	for n := from; n <= to; n++ {
		all = append(all, record(n, fmt.Sprintf(`{"n":%d}`, n)))
	}
	if err := f.Publish("topic", all...); err != nil {
		t.Fatal(err)
	}
}

// holds checks that a file contains the records 1 to n, each once and in order.
func holds(t *testing.T, path string, n int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	if len(all) != n {
		t.Fatalf("the file has %d lines, want %d", len(all), n)
	}
	for i, line := range all {
		var got struct {
			Revision int
			Data     struct{ N int }
		}
		if err := json.Unmarshal(line, &got); err != nil || got.Revision != i+1 || got.Data.N != i+1 {
			t.Fatalf("line %d is %s (%v)", i+1, line, err)
		}
	}
}

// A line has the documented members, and its data are on one line or in base64.
func TestALineIsTheRecord(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	f := open(t, path, at(0))
	if err := f.Publish("to.it", record(1, "{ \"a\":\n [1,2],\r\n\"b\":\"\\n <é\"}"), record(2, "\x00\xff"), record(3, "\"\xff\"")); err != nil {
		t.Fatal(err)
	}
	want := `{"id":"evt_00000000000000000000000001","position":"1","stream":"thing-1","revision":1,"kind":"Happened","version":1,` +
		`"time":"2026-03-01T12:00:00Z","tool":"a\nb<","topic":"to.it","metadata":{"m":1},"data":{ "a":  [1,2],  "b":"\n <é"}}` + "\n" +
		`{"id":"evt_00000000000000000000000002","position":"2","stream":"thing-1","revision":2,"kind":"Happened","version":1,` +
		`"time":"2026-03-01T12:00:00Z","tool":"a\nb<","topic":"to.it","metadata":{"m":1},"data_base64":"AP8="}` + "\n" +
		`{"id":"evt_00000000000000000000000003","position":"3","stream":"thing-1","revision":3,"kind":"Happened","version":1,` +
		`"time":"2026-03-01T12:00:00Z","tool":"a\nb<","topic":"to.it","metadata":{"m":1},"data_base64":"Iv8i"}` + "\n"
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("file = %v\n%s\nwant\n%s", err, got, want)
	}
}

// After a power cut that leaves any part of the file, with any checkpoint, publishing
// the records after the checkpoint leaves each record in the file once and in order.
func TestEachRecordIsThereOnceAfterAnyCut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	put(t, open(t, whole, at(0)), 1, 2)
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut <= len(data); cut += 3 {
		kept := bytes.Count(data[:cut], []byte("\n"))
		for checkpoint := range kept + 1 {
			path := filepath.Join(dir, fmt.Sprint(cut, "-", checkpoint))
			if err := os.WriteFile(path, data[:cut], 0o600); err != nil {
				t.Fatal(err)
			}
			f := open(t, path, at(uint64(checkpoint)))
			put(t, f, checkpoint+1, 3)
			put(t, f, 3, 4)
			holds(t, path, 4)
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Lines longer than a chunk of the backward reader are found and not repeated.
func TestLinesLongerThanAChunkAreFound(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	f := open(t, path, at(0))
	long := func(n int) *message.Message {
		return record(n, fmt.Sprintf(`{"n":%d,"x":"%s"}`, n, strings.Repeat("x", 200_000)))
	}
	for n := range 4 {
		if err := f.Publish("topic", long(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = open(t, path, at(2))
	if err := f.Publish("topic", long(3), long(4), long(5)); err != nil {
		t.Fatal(err)
	}
	holds(t, path, 5)
}

// Open returns an ErrForeign for a file with other contents and does not change it. A
// partial first line of a record is not foreign: Open removes it.
func TestAForeignFileIsNotChanged(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"notes", "notes\n", "{}\n", `{"id":"x"}` + "\n", `{"id":"x","position":"y"}` + "\n", "\n", "{\"i"} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := jsonl.Open(path, at(0))
		if text == "{\"i" { // the beginning of a first line
			if err != nil {
				t.Errorf("%q: Open = %v, want none", text, err)
			}
			_ = f.Close()
			continue
		}
		if !errors.Is(err, jsonl.ErrForeign) {
			t.Errorf("%q: Open = %v, want ErrForeign", text, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q became %q (%v)", text, got, err)
		}
	}
	if _, err := jsonl.Open(t.TempDir(), at(0)); err == nil {
		t.Error("a folder opens as a file")
	}
}

// A file is open in one File at a time, and a closed File returns ErrClosed.
func TestAFileHasOneWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	f := open(t, path, at(0))
	if _, err := jsonl.Open(path, at(0)); !errors.Is(err, jsonl.ErrInUse) {
		t.Errorf("Open again = %v, want ErrInUse", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Publish("topic", record(1, "{}")); !errors.Is(err, jsonl.ErrClosed) {
		t.Errorf("Publish = %v, want ErrClosed", err)
	}
	put(t, open(t, path, at(0)), 1, 1)
}

// Open leaves the whole lines of a file, or returns an ErrForeign and leaves every
// byte.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"id":"evt_1","position":"1"}`+"\n"), uint64(0))
	f.Add([]byte("\n\n{"), uint64(3))
	f.Fuzz(func(t *testing.T, data []byte, position uint64) {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		opened, err := jsonl.Open(path, at(position))
		got, reading := os.ReadFile(path)
		if reading != nil {
			t.Fatal(reading)
		}
		if err != nil {
			if !errors.Is(err, jsonl.ErrForeign) || !bytes.Equal(got, data) {
				t.Fatalf("Open = %v and the file is %q, was %q", err, got, data)
			}
			return
		}
		defer opened.Close()
		if want := data[:bytes.LastIndexByte(data, '\n')+1]; !bytes.Equal(got, want) {
			t.Fatalf("the file is %q, want the whole lines %q", got, want)
		}
	})
}
