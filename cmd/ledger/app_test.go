package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
)

// An app runs a command line and returns its exit status. Results and errors go to the
// writers of its Printer.
func Example() {
	var out bytes.Buffer
	a := newApp(&render.Printer{
		Out: bufio.NewWriter(&out), Err: &out, Now: time.Now,
		Env: func(string) (string, bool) { return "", false },
	}, nil, rand.Reader)
	exit := a.run(context.Background(), []string{"--store", "nowhere", "session", "ls"})
	fmt.Print(out.String(), "exit ", exit)
	// Output:
	// error: no store at nowhere
	// hint: ledger run and ledger import make a store; --store or LEDGER_STORE names one
	// exit 4
}
