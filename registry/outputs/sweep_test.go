package outputs

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
)

func reopened(t *testing.T, fs vfs.FS, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return openIn(t, fs)
}

// Scenario 62.
func TestSweepTouchesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := openIn(t, fs)
	ref := refs(1)
	lost, recorded, confirmed := ref(), ref(), ref()
	for _, r := range []domain.Ref{lost, recorded, confirmed} {
		mustKeep(t, s, r, random(1000, 1))
	}
	if err := s.Confirm(t.Context(), confirmed.Settlement()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"keep.txt", "7.body", "x7.body", "body"} {
		f, err := fs.Create(fs.PathJoin(s.incoming(), name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Write([]byte("12345"))
		_ = f.Close()
	}
	s = reopened(t, fs, s)
	fresh := ref()
	mustKeep(t, s, fresh, random(1000, 1))
	swept, err := s.Sweep(t.Context(), func(_ context.Context, id domain.EventID) (bool, error) {
		if id == confirmed.Settlement() || id == fresh.Settlement() {
			t.Errorf("Sweep asks for %v, want it to ask only for what a crash may have left", id)
		}
		return id == recorded.Settlement(), nil
	})
	if want := (Swept{Outputs: 2, Bytes: 1005}); err != nil || swept != want {
		t.Fatalf("Sweep = %+v, %v, want %+v", swept, err, want)
	}
	for _, r := range []domain.Ref{recorded, confirmed, fresh} {
		if err := s.Verify(t.Context(), r); err != nil {
			t.Errorf("after Sweep: %v", err)
		}
	}
	_, err = s.Stat(t.Context(), lost)
	wantErr(t, "Stat", err, ErrNotFound)
	if got := incomingFiles(t, s); len(got) != 3 {
		t.Errorf("files = %v, want the three that are not a body's", got)
	}
	for id, err := range s.Unconfirmed(t.Context()) {
		if err != nil || id != fresh.Settlement() {
			t.Errorf("Unconfirmed yields %v, %v, want only what was kept since", id, err)
		}
	}
}

func TestSweepRemovesHalfWrittenBodies(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := openIn(t, fs)
	r := refs(1)()
	mustKeep(t, s, r, random((loggedChunks+6)*chunkSize, 1))
	b := s.newBlobWriter()
	if _, err := s.copyChunks(t.Context(), b, new(chunkRing), bytes.NewReader(random((loggedChunks+6)*chunkSize, 2))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.writeGroup(), b.ingest(t.Context())); err != nil {
		t.Fatal(err)
	}
	none := func(context.Context, domain.EventID) (bool, error) { return true, nil }
	if swept, err := s.Sweep(t.Context(), none); err != nil || swept != (Swept{}) {
		t.Fatalf("Sweep of a body that is being written = %+v, %v, want nothing", swept, err)
	}
	s = reopened(t, fs, s)
	if swept, err := s.Sweep(t.Context(), none); err != nil || swept != (Swept{1, (loggedChunks + 6) * chunkSize}) {
		t.Fatalf("Sweep = %+v, %v, want one of %d bytes", swept, err, (loggedChunks+6)*chunkSize)
	}
	if err := s.Verify(t.Context(), r); err != nil || blobCount(t, s) != 1 {
		t.Errorf("Verify = %v with %d bodies, want nil with 1", err, blobCount(t, s))
	}
}

func TestSweepEndsWithTheErrorOfTheQuestion(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := openIn(t, fs)
	r := refs(1)()
	mustKeep(t, s, r, []byte("x"))
	s = reopened(t, fs, s)
	broken := errors.New("log cannot be read")
	swept, err := s.Sweep(t.Context(), func(context.Context, domain.EventID) (bool, error) { return false, broken })
	wantErr(t, "Sweep", err, broken)
	if swept != (Swept{}) {
		t.Errorf("Sweep = %+v, want nothing", swept)
	}
	if err := s.Verify(t.Context(), r); err != nil {
		t.Errorf("Verify = %v, want nil", err)
	}
}

func TestUnconfirmedUntilConfirmed(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	ref := refs(1)
	text, other := ref(), ref()
	mustKeep(t, s, text, []byte("text"))
	mustKeep(t, s, domain.NewRef(text.Settlement(), domain.StructuredChannel), []byte("{}"))
	mustKeep(t, s, other, []byte("other"))
	unconfirmed := func() (ids []domain.EventID) {
		for id, err := range s.Unconfirmed(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		return ids
	}
	if got := unconfirmed(); len(got) != 2 || got[0] != text.Settlement() || got[1] != other.Settlement() {
		t.Errorf("Unconfirmed = %v, want each of two settlements once", got)
	}
	if err := s.Confirm(t.Context(), text.Settlement()); err != nil {
		t.Fatal(err)
	}
	if got := unconfirmed(); len(got) != 1 || got[0] != other.Settlement() {
		t.Errorf("Unconfirmed = %v, want only %v", got, other.Settlement())
	}
	if err := s.Confirm(t.Context(), ref().Settlement()); err != nil {
		t.Errorf("Confirm of nothing = %v, want nil", err)
	}
}

func TestDropRemovesAllOfASettlementAndNothingElse(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	ref := refs(1)
	text, other := ref(), ref()
	structured := domain.NewRef(text.Settlement(), domain.StructuredChannel)
	mustKeep(t, s, text, random(5*chunkSize, 1))
	mustKeep(t, s, structured, []byte("{}"))
	mustKeep(t, s, other, []byte("other"))
	o, err := s.Open(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := s.Drop(t.Context(), text.Settlement()); err != nil {
		t.Fatal(err)
	}
	for _, r := range []domain.Ref{text, structured} {
		_, err := s.Stat(t.Context(), r)
		wantErr(t, "Stat", err, ErrNotFound)
	}
	_, err = o.Read(make([]byte, 1))
	wantErr(t, "Read of what was dropped", err, ErrNotFound)
	if err := s.Verify(t.Context(), other); err != nil || blobCount(t, s) != 1 {
		t.Errorf("Verify = %v with %d bodies, want nil with 1", err, blobCount(t, s))
	}
	if err := s.Drop(t.Context(), text.Settlement()); err != nil {
		t.Errorf("second Drop = %v, want nil", err)
	}
	mustKeep(t, s, text, []byte("again"))
}

func TestPrunedSaysWhenAndWhy(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := openIn(t, fs)
	r := refs(1)()
	want := &PrunedError{Retained: mustKeep(t, s, r, random(5*chunkSize, 1)), Policy: "older than 7 days", At: time.UnixMilli(1_800_000_000_123).UTC()}
	o, err := s.Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if got, err := s.Prune(t.Context(), r, want.Policy, want.At.Local()); err != nil || got != want.Retained {
		t.Fatalf("Prune = %+v, %v, want %+v", got, err, want.Retained)
	}
	s2 := reopened(t, fs, s)
	checks := map[string]func() error{
		"Open":   func() error { _, err := s2.Open(t.Context(), r); return err },
		"Stat":   func() error { _, err := s2.Stat(t.Context(), r); return err },
		"Prune":  func() error { _, err := s2.Prune(t.Context(), r, "other", time.Time{}); return err },
		"Verify": func() error { return s2.Verify(t.Context(), r) },
	}
	for name, check := range checks {
		err := check()
		wantErr(t, name, err, ErrPruned)
		if got, ok := errors.AsType[*PrunedError](err); !ok || *got != *want {
			t.Errorf("%s = %+v, want %+v", name, got, want)
		}
	}
	_, err = s2.Keep(t.Context(), r, "", bytes.NewReader(nil))
	wantErr(t, "Keep", err, ErrExists)
	for got := range s2.All(t.Context()) {
		t.Errorf("All yields %v, want nothing", got)
	}
	if n := blobCount(t, s2); n != 0 {
		t.Errorf("%d bodies stay, want none", n)
	}
}

func TestOpenOutputLearnsThatItWasPruned(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	r := refs(1)()
	mustKeep(t, s, r, random(3*chunkSize, 1))
	o, err := s.Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if _, err := s.Prune(t.Context(), r, "age", time.UnixMilli(5)); err != nil {
		t.Fatal(err)
	}
	_, err = o.Read(make([]byte, 1))
	wantErr(t, "Read", err, ErrPruned)
	_, err = o.ReadAt(make([]byte, 1), chunkSize)
	wantErr(t, "ReadAt", err, ErrPruned)
	_, err = s.Prune(t.Context(), refs(2)(), "age", time.UnixMilli(5))
	wantErr(t, "Prune of nothing", err, ErrNotFound)
}

func TestEndedContextDoesNothing(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	r := refs(1)()
	mustKeep(t, s, r, []byte("kept"))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(domain.Superseded)
	checks := map[string]func() error{
		"Open":    func() error { _, err := s.Open(ctx, r); return err },
		"Stat":    func() error { _, err := s.Stat(ctx, r); return err },
		"Confirm": func() error { return s.Confirm(ctx, r.Settlement()) },
		"Drop":    func() error { return s.Drop(ctx, r.Settlement()) },
		"Prune":   func() error { _, err := s.Prune(ctx, r, "", time.Time{}); return err },
		"Verify":  func() error { return s.Verify(ctx, r) },
		"Sweep":   func() error { _, err := s.Sweep(ctx, nil); return err },
		"All": func() (last error) {
			for _, err := range s.All(ctx) {
				last = err
			}
			return last
		},
	}
	for name, check := range checks {
		wantErr(t, name, check(), domain.Superseded)
	}
	if got := readAll(t, s, r); string(got) != "kept" {
		t.Errorf("it reads %q, want what was kept", got)
	}
}
