package receipts

import (
	"fmt"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
)

// Print prints a report, and returns a fault with exit code 3 if it has differences.
func (r *Report) Print(p *render.Printer) error {
	if err := p.Object(r, func() { r.show(p) }); err != nil || len(r.Differences) == 0 {
		return err
	}
	return &fault.Error{
		Exit: fault.ExitUnverified, Code: "differs", Err: fmt.Errorf("verify receipt %s: %s to %s", r.Receipt, render.Count(len(r.Differences), "difference"), r.Store),
		Hint: "ledger call prove makes a receipt of the call as the store has it; ledger verify checks the store itself",
	}
}

// show prints a report for a person.
func (r *Report) show(p *render.Printer) {
	outcome := "without an end"
	if r.Outcome != nil {
		outcome = p.Outcome(r.Outcome.String())
	}
	p.Fields(
		"call", render.Printable(string(r.Call)), "message", r.Message.String(), "session", r.Session.String(), "outcome", outcome,
		"made", fmt.Sprintf("%s by %s", render.Printable(r.Made), render.Printable(r.Program.Name+" "+r.Program.Version)),
		"events", fmt.Sprint(r.Events), "outputs", fmt.Sprintf("%d, %d read", r.Outputs, r.Checked),
	)
	p.Line("")
	for _, f := range r.Differences {
		p.Line("%s %s: %s", p.Styled(render.Red, "≠"), render.Printable(f.Place), render.Printable(f.Detail))
	}
	for _, f := range r.Notes {
		p.Line("%s %s: %s", p.Styled(render.Dim, "·"), render.Printable(f.Place), render.Printable(f.Detail))
	}
	if len(r.Differences) == 0 {
		p.Line("%s", p.Styled(render.Green, "✓ the store has every event and output of the receipt, and no other event of the call up to its head"))
	}
}
