package render

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
)

// Report tells an error on the standard error and returns the exit code.
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

// WriteFault writes a fault for a person, or as an object for a program.
func (p *Printer) WriteFault(f *fault.Error) {
	if p.Format == AsTable {
		fmt.Fprint(p.Err, faultText(f))
		return
	}
	fmt.Fprintln(p.Err, string(faultObject(f)))
}

// faultText returns a fault for a person.
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

// faultObject returns a fault as a JSON object.
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
