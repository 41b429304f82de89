package receipts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// A written is the JSON result of a receipt that was written to a file.
type written struct {
	File    string  `json:"file"`
	Call    CallRef `json:"call"`
	Events  int     `json:"events"`
	Outputs int     `json:"outputs"`
	Bytes   int     `json:"bytes"`
}

// Write makes the receipt of a call, and prints it, or replaces the file to by it in one step if
// to is not empty. version is the version of this program.
func Write(ctx context.Context, p *render.Printer, s *stores.Store, key calls.Key, to, version string) error {
	r, err := Make(ctx, s, key, Program{"ledger", version}, p.Now())
	if err != nil {
		return fmt.Errorf("prove call %s: %w", key.Call, err)
	}
	data, err := r.Encode()
	if err != nil {
		return err
	}
	if to == "" {
		if p.Format == render.AsJSONLines {
			_ = (*jsontext.Value)(&data).Compact() // a receipt is JSON
		}
		p.Line("%s", data)
		return nil
	}
	if err := stores.ReplaceFile(to, append(data, '\n')); err != nil {
		return fmt.Errorf("write receipt %s: %w", to, err)
	}
	w := written{to, r.Call, len(r.Events), len(r.Outputs), len(data)}
	return p.Object(w, func() {
		p.Line("%s: %s and %s of call %s, %s", render.Printable(to), render.Count(w.Events, "event"), render.Count(w.Outputs, "output"),
			render.Printable(string(key.Call)), render.Bytes(int64(w.Bytes)))
	})
}

// CheckFile checks the receipt in a file and prints the report. It returns a fault with exit code
// 2 for a file that is no receipt, 3 for differences, and 4 for another store or no file.
func CheckFile(ctx context.Context, p *render.Printer, s *stores.Store, file string, opts Options) error {
	r, err := readFile(file)
	if err != nil {
		return err
	}
	report, err := Check(ctx, s, r, opts)
	if errors.Is(err, ErrOtherStore) {
		return fault.NotFound("name the store of the receipt, or a copy of it, with --store", "verify receipt %s: %w", file, err)
	}
	if err != nil {
		return fmt.Errorf("verify receipt %s: %w", file, err)
	}
	report.Receipt = file
	return report.Print(p)
}

// readFile reads a receipt from a regular file.
func readFile(file string) (*Receipt, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.NotFound("ledger call prove CALL --to FILE makes a receipt", "verify receipt: %w", err)
	}
	if err == nil && !info.Mode().IsRegular() {
		return nil, fault.Usage("verify receipt: %s is not a file", file)
	}
	if err != nil {
		return nil, fmt.Errorf("verify receipt: %w", err)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("verify receipt: %w", err)
	}
	defer f.Close()
	r, err := Read(f)
	switch {
	case errors.Is(err, ErrNewerReceipt):
		return nil, &fault.Error{Exit: fault.ExitUsage, Code: "newer_format", Err: fmt.Errorf("verify receipt %s: %w", file, err), Hint: "use the version of ledger that made the receipt, or a newer one"}
	case errors.Is(err, ErrNotAReceipt):
		return nil, &fault.Error{Exit: fault.ExitUsage, Code: "not_a_receipt", Err: fmt.Errorf("verify receipt %s: %w", file, err), Hint: "name a file that ledger call prove wrote"}
	}
	return r, err
}
