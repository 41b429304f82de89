package bench_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/bench"
)

// childVariable has the test binary do a task in place of testing.
const childVariable = "LEDGER_TEST_BENCH_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" && len(os.Args) > 1 && os.Args[1] == "scale" {
		os.Exit(bench.ScaleCommand(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	if os.Getenv(childVariable) != "" {
		if err := bench.Child(context.Background(), os.Args[1:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Setenv(childVariable, "1") // for the processes that this one starts
	os.Exit(m.Run())
}
