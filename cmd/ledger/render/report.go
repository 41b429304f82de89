package render

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
)

// Report writes an error to the standard error, unless its fault is Quiet, and returns the
// exit code: 0 for nil.
func (p *Printer) Report(err error) int {
	if err == nil {
		return 0
	}
	f := fault.Of(err)
	if !f.Quiet {
		p.WriteFault(f)
	}
	return f.Exit
}

// WriteFault writes a fault to the standard error: as text for people, and as a JSON object
// on one line if the format is JSON.
func (p *Printer) WriteFault(f *fault.Error) {
	if p.Format == AsTable {
		fmt.Fprint(p.Err, faultText(f))
		return
	}
	fmt.Fprintln(p.Err, string(faultObject(f)))
}

// faultText formats a fault for a person: lines for the error, the candidates and the hint.
func faultText(f *fault.Error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "error: %s\n", Printable(f.Error()))
	for _, c := range f.Candidates {
		fmt.Fprintf(&b, "  %s\n", Printable(c))
	}
	if f.Hint != "" {
		fmt.Fprintf(&b, "hint: %s\n", Printable(f.Hint))
	}
	return b.String()
}

// faultObject encodes a fault as the JSON object that docs/formats.md documents. An
// absent hint or command is null.
func faultObject(f *fault.Error) []byte {
	object, err := EncodeJSON(struct {
		Code       string   `json:"code"`
		Message    string   `json:"message"`
		Guidance   *string  `json:"guidance"`
		Command    *string  `json:"recovery_command"`
		Candidates []string `json:"candidates,omitempty"`
	}{f.Code, f.Error(), OrNull(f.Hint), OrNull(f.Command), f.Candidates})
	if err != nil {
		object = json.RawMessage(`{"code":"failed"}`)
	}
	return object
}
