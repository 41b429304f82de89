package domain_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// zeros is entropy that is always zero.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// ones is entropy with all bits set.
type ones struct{}

func (ones) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 0xff
	}
	return len(p), nil
}

// dry is entropy that has ended.
type dry struct{}

func (dry) Read([]byte) (int, error) { return 0, errors.New("dry") }

// Each ID of a mint is greater than the one before, with any clock, entropy and
// kind.
func TestIDsIncreaseWhateverClockEntropyAndKind(t *testing.T) {
	t.Parallel()
	start := stoppedClock()
	clocks := map[string]func(i int) time.Time{
		"stands still":     func(int) time.Time { return start },
		"goes on":          func(i int) time.Time { return start.Add(time.Duration(i) * 700 * time.Microsecond) },
		"goes back":        func(i int) time.Time { return start.Add(-time.Duration(i) * time.Hour) },
		"jumps":            func(i int) time.Time { return start.Add(time.Duration(i%7-3) * time.Hour) },
		"before the epoch": func(int) time.Time { return time.Time{} },
		"at the epoch":     func(int) time.Time { return time.Unix(0, 0) },
	}
	for name, clock := range clocks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := 0
			now := func() time.Time { i++; return clock(i) }
			increases(t, "chacha", domain.NewMint(now, rand.NewChaCha8([32]byte{2})))
			increases(t, "zeros", domain.NewMint(now, zeros{}))
			increases(t, "ones", domain.NewMint(now, ones{}))
		})
	}
}

// increases mints IDs of every kind in turn and checks that each is greater
// than the one before.
func increases(t *testing.T, entropy string, m *domain.Mint) {
	t.Helper()
	mint := []func() [16]byte{
		func() [16]byte { return m.Session().Bytes() }, func() [16]byte { return m.Message().Bytes() },
		func() [16]byte { return m.Turn().Bytes() }, func() [16]byte { return m.Event().Bytes() },
		func() [16]byte { return m.Scope().Bytes() }, func() [16]byte { return m.Layer().Bytes() },
		func() [16]byte { return m.Process().Bytes() }, func() [16]byte { return m.Permission().Bytes() },
	}
	var last [16]byte
	for i := range 300 {
		next := mint[i%len(mint)]()
		if slices.Compare(next[:], last[:]) <= 0 {
			t.Fatalf("entropy %s: ID %d is %x, not greater than %x", entropy, i, next, last)
		}
		last = next
	}
}

// Concurrent goroutines receive different IDs, and each goroutine receives them
// in increasing order.
func TestIDsOfManyGoroutinesAreDifferentAndEachSeesThemIncrease(t *testing.T) {
	t.Parallel()
	m := newMint()
	const goroutines, each = 8, 200
	made := make([][]domain.EventID, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range each {
				made[g] = append(made[g], m.Event())
			}
		})
	}
	wg.Wait()
	for g := range made {
		if !slices.IsSortedFunc(made[g], domain.EventID.Compare) {
			t.Errorf("goroutine %d saw its IDs in another order than that of minting", g)
		}
	}
	all := slices.Concat(made...)
	slices.SortFunc(all, domain.EventID.Compare)
	if got := len(slices.Compact(all)); got != goroutines*each {
		t.Errorf("%d different IDs, want %d", got, goroutines*each)
	}
}

// NewID panics if the entropy returns an error.
func TestMintWithoutEntropyPanics(t *testing.T) {
	t.Parallel()
	m := domain.NewMint(stoppedClock, dry{})
	defer func() {
		if v, ok := recover().(string); !ok || !strings.Contains(v, "dry") {
			t.Errorf("recovered %q, want why there is no ID", v)
		}
	}()
	t.Errorf("minted %s", m.Event())
}

// ParseID accepts the ULID in upper and lower case.
func TestIDParsesInAnyLetterCase(t *testing.T) {
	t.Parallel()
	m := newMint()
	for range 100 {
		readsBack(t, m.Session(), "ses")
		readsBack(t, m.Message(), "msg")
		readsBack(t, m.Turn(), "trn")
		readsBack(t, m.Event(), "evt")
		readsBack(t, domain.RegistrationOf(m.Event()), "reg")
		readsBack(t, m.Scope(), "scp")
		readsBack(t, m.Layer(), "lay")
		readsBack(t, m.Process(), "prc")
		readsBack(t, m.Permission(), "per")
	}
}

func readsBack[K domain.IDKind](t *testing.T, id domain.ID[K], prefix string) {
	t.Helper()
	text := id.String()
	if id.Prefix() != prefix || !strings.HasPrefix(text, prefix+"_") || len(text) != len(prefix)+27 {
		t.Errorf("%s is not %s_ and a ULID", text, prefix)
	}
	lower := prefix + strings.ToLower(text[len(prefix):])
	for _, form := range []string{text, lower} {
		if got, err := domain.ParseID[K](form); err != nil || got != id {
			t.Errorf("ParseID(%s) = %s, %v, want %s", form, got, err, id)
		}
	}
	if got := domain.IDFromBytes[K](id.Bytes()); got != id {
		t.Errorf("IDFromBytes(%x) = %s, want %s", id.Bytes(), got, id)
	}
	data, err := json.Marshal(id)
	var got domain.ID[K]
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil || got != id {
		t.Errorf("through JSON %s became %s, %v", id, got, err)
	}
}

// ParseID returns ErrBadID for every other text.
func TestBadIDsAreRefused(t *testing.T) {
	t.Parallel()
	good := newMint().Event().String()
	for _, text := range []string{
		"", "evt", "evt_", "_" + good[4:], good[4:], "ses" + good[3:], "EVT" + good[3:], "evt-" + good[4:], " " + good, good + " ", good + "0",
		good[:len(good)-1], "evt_" + good, "evt_0000000000000000000000000000", "evt_00000000000000000000000000",
		"evt_8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "evt_0123456789ABCDEFGHIJKLMNOP", good[:29] + "U", good[:29] + "é", good[:29] + "\x00",
	} {
		if id, err := parseEvent(text); !errors.Is(err, domain.ErrBadID) || !id.IsZero() {
			t.Errorf("ParseID(%q) = %s, %v, want ErrBadID", text, id, err)
		} else if text != "" && !strings.Contains(err.Error(), text[:1]) {
			t.Errorf("the error %q does not quote %q", err, text)
		}
	}
}

// UnmarshalText leaves the ID unchanged after an error.
func TestRefusedTextLeavesTheIDAsItWas(t *testing.T) {
	t.Parallel()
	want := newMint().Event()
	got := want
	if err := got.UnmarshalText([]byte("ses_x")); !errors.Is(err, domain.ErrBadID) || got != want {
		t.Errorf("UnmarshalText of a bad ID = %v and leaves %s, want ErrBadID and %s", err, got, want)
	}
	if err := got.UnmarshalText(nil); err != nil || !got.IsZero() || got.String() != "" {
		t.Errorf("UnmarshalText of nothing = %v and leaves %s, want the zero ID", err, got)
	}
}

// The ID of a registration has the bytes of its event's ID.
func TestRegistrationIsItsEventByAnotherName(t *testing.T) {
	t.Parallel()
	e := newMint().Event()
	r := domain.RegistrationOf(e)
	if r.Bytes() != e.Bytes() || domain.EventOf(r) != e || r.String() == e.String() {
		t.Errorf("event %s, registration %s, event %s", e, r, domain.EventOf(r))
	}
}

// parseEvent is ParseID for events, whose kind has no name outside the package.
func parseEvent(text string) (domain.EventID, error) { return parseLike(domain.EventID{}, text) }

func parseLike[K domain.IDKind](_ domain.ID[K], text string) (domain.ID[K], error) {
	return domain.ParseID[K](text)
}

// FuzzParseID checks that a text that parses is the text of its ID, without
// regard to case.
func FuzzParseID(f *testing.F) {
	f.Add(newMint().Event().String())
	f.Add("evt_0000000000000000000000000l")
	f.Add("evt_")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := parseEvent(text)
		switch {
		case err != nil && !errors.Is(err, domain.ErrBadID), err != nil && !id.IsZero(), err == nil && id.IsZero():
			t.Fatalf("ParseID(%q) = %s, %v", text, id, err)
		case err == nil && !strings.EqualFold(id.String(), text):
			t.Fatalf("ParseID(%q) prints as %s", text, id)
		}
	})
}
