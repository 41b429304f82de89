package outputs

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
)

// golden is the layout that doc.go draws, byte for byte. It changes only together
// with a format.
const golden = `
62 0000000000000002 00000000 = a7af45fc
62 0000000000000003 00000000 = 77ac90f5 68690a
66 = 01
68 01900000000000000000000000000007 01 = 01 01 0000000000000003 00010000 0000000000000003 0000000000000002 98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4 0000000000000000 000a 746578742f706c61696e 0000 1ca45eb0
68 01900000000000000000000000000007 02 = 01 03 0000000000000000 00010000 0000000000000002 0000000000000001 44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a 000000003b9aca02 000a 746578742f706c61696e 0003 616765 b8adce5e
68 01900000000000000000000000000008 01 = 01 02 0000000000000002 00010000 0000000000000000 0000000000000001 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0000000000000000 000a 746578742f706c61696e 0000 e3af4f1e
`

func dump(t *testing.T, s *Store) string {
	t.Helper()
	var b strings.Builder
	err := s.read(func(db *pebble.DB) error {
		iter, err := db.NewIter(nil)
		if err != nil {
			return err
		}
		defer iter.Close()
		for iter.First(); iter.Valid(); iter.Next() {
			fmt.Fprintf(&b, "%x = %x\n", iter.Key(), iter.Value())
		}
		return iter.Error()
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestLayoutStays(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	settlement, err := domain.ParseRef("output://evt_01J00000000000000000000007/text")
	if err != nil {
		t.Fatal(err)
	}
	id := settlement.Settlement()
	structured := domain.NewRef(id, domain.StructuredChannel)
	mustKeep(t, s, structured, []byte("{}"))
	if _, err := s.Prune(t.Context(), structured, "age", time.Unix(1, 2)); err != nil {
		t.Fatal(err)
	}
	if err := s.Confirm(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	empty, err := domain.ParseRef("output://evt_01J00000000000000000000008/text")
	if err != nil {
		t.Fatal(err)
	}
	mustKeep(t, s, empty, nil)
	if err := s.Confirm(t.Context(), empty.Settlement()); err != nil {
		t.Fatal(err)
	}
	mustKeep(t, s, settlement, []byte("hi\n"))
	if got, want := dump(t, s), compactGolden(golden); got != want {
		t.Errorf("the store holds\n%s\nwant\n%s", got, want)
	}
}

// compactGolden returns a golden text without the spaces that separate its fields.
func compactGolden(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		key, value, _ := strings.Cut(line, "=")
		fmt.Fprintf(&b, "%s = %s\n", strings.Join(strings.Fields(key), ""), strings.Join(strings.Fields(value), ""))
	}
	return b.String()
}

func TestKeysSortAsTheyShould(t *testing.T) {
	t.Parallel()
	for _, blob := range []uint64{0, 1, 255, 256, 1<<64 - 2} {
		from, to := chunkSpan(blob)
		for _, chunk := range []uint32{0, 1, 1<<32 - 1} {
			if key := chunkKey(blob, chunk); bytes.Compare(key, from) < 0 || bytes.Compare(key, to) >= 0 {
				t.Errorf("chunk %d of body %d is at %s, outside %s to %s", chunk, blob, hex.EncodeToString(key), hex.EncodeToString(from), hex.EncodeToString(to))
			}
		}
	}
	all := bytes.Repeat([]byte{255}, 16)
	if got, want := prefixEnd(append([]byte{headerKind}, all...)), []byte{headerKind + 1}; !bytes.Equal(got, want) {
		t.Errorf("prefixEnd = %x, want %x", got, want)
	}
	if got, want := prefixEnd([]byte{headerKind, 3, 255}), []byte{headerKind, 4}; !bytes.Equal(got, want) {
		t.Errorf("prefixEnd = %x, want %x", got, want)
	}
}
