package remote_test

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

func Example() {
	ctx := context.Background()
	store, err := outputs.Open("outputs", outputs.Config{FS: vfs.NewMem()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	node := httptest.NewServer(remote.Serve(store, remote.ServerConfig{}))
	defer node.Close()

	// In another process:
	client, err := remote.Open(node.URL, remote.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ref, _ := domain.ParseRef("output://evt_01J00000000000000000000007/text")
	kept, err := client.Keep(ctx, ref, "text/plain", strings.NewReader("line\nand line\n"))
	fmt.Println(kept.Bytes, kept.Lines, kept.SHA256[:8], err)

	output, err := client.Open(ctx, ref)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer output.Close()
	_, _ = output.Seek(5, io.SeekStart)
	_, _ = io.Copy(os.Stdout, output)
	// Output:
	// 14 3 1e834eec <nil>
	// and line
}
