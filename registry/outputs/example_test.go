package outputs_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

func Example() {
	ctx := context.Background()
	store, err := outputs.Open("outputs", outputs.Config{FS: vfs.NewMem()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	ref, _ := domain.ParseRef("output://evt_01J00000000000000000000007/text")
	kept, err := store.Keep(ctx, ref, "text/plain", strings.NewReader("line\nand line\n"))
	fmt.Println(kept.Bytes, kept.Lines, kept.SHA256[:8], err)

	// The settlement is recorded, and then:
	_ = store.Confirm(ctx, ref.Settlement())

	output, err := store.Open(ctx, ref)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer output.Close()
	_, _ = output.Seek(5, io.SeekStart)
	_, _ = io.Copy(os.Stdout, output)

	_, _ = store.Prune(ctx, ref, "older than 7 days", time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC))
	_, err = store.Open(ctx, ref)
	fmt.Println(err)
	// Output:
	// 14 3 1e834eec <nil>
	// and line
	// open output://evt_01J00000000000000000000007/text: pruned at 2026-02-01T00:00:00Z by policy "older than 7 days": it had 14 bytes of text/plain with SHA-256 1e834eeccd2b7332c18f9a5502854fd62d7d907dde04f9010d5c674441b63098
}
