package verify

import (
	"maps"
	"slices"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
)

// printReport prints the report for a person: a table of the exceptions, then the
// counts.
func printReport(p *render.Printer, v *Report) {
	t := render.Table{Head: []string{"~LAW BROKEN", "SESSION", "CALL", "~TOOL", ">POSITION", "~DETAIL"}}
	for _, e := range v.Exceptions {
		session, call := "", ""
		if e.Session != nil {
			session = render.ShortID(*e.Session)
		}
		if e.Call != nil {
			call = render.ShortCallID(*e.Call)
		}
		t.Add(p.Styled(render.Red, string(e.Law)), session, call, render.OneLine(render.ValueOf(e.Tool), 30), render.StringOf(e.Position), render.OneLine(e.Detail, 160))
	}
	if len(t.Rows) > 0 {
		p.Table(t)
		p.Line("")
	}
	p.Line("%s, %s, %s: %d settled, %d open.", render.Count(v.Events, "event"), render.Count(v.Sessions, "session"), render.Count(v.Calls, "call"), v.Settled, v.Open)
	if v.Imported > 0 {
		p.Line("%s in imports, whose files do not say how they ended.", render.Count(v.Imported, "open call"))
	}
	if v.Orphans > 0 {
		p.Line("%s in imports, whose files do not hold the calls.", render.Count(v.Orphans, "result"))
	}
	if n := v.Open - v.Imported; n > 0 {
		p.Line("%s at work or left by a process that died: ledger recover ends those of dead processes.", render.Count(n, "open call"))
	}
	if v.Waiting > 0 {
		p.Line("%s without a decision.", render.Count(v.Waiting, "request for permission"))
	}
	checked := "found, their digests not compared"
	if v.Digests {
		checked = "read"
	}
	if v.Outputs > 0 || v.Unreferenced > 0 {
		p.Line("%s %s; %d that no settlement names.", render.Count(v.Outputs-v.Unreachable, "kept output"), checked, v.Unreferenced)
	}
	if v.Unreachable > 0 {
		p.Line("%s of other nodes, which cannot be asked, not checked: ledger output tells why.", render.Count(v.Unreachable, "output"))
	}
	if v.Refused > 0 {
		p.Line("%s refused, and kept: ledger event ls --kind ReplyRefused shows why.", render.Count(v.Refused, "reply"))
	}
	for _, kind := range slices.Sorted(maps.Keys(v.UnknownKinds)) {
		p.Line("%s of kind %s, which this program does not know.", render.Count(v.UnknownKinds[kind], "event"), render.Printable(kind))
	}
	switch v.Index {
	case indexEqual:
		p.Line("The index has what the log gives.")
	case indexUnfit:
		p.Line("The index is not of this log or program, and is not compared: the next command that reads it fills it anew.")
	case indexUnread:
		p.Line("The index is not compared: this user may not read it, or the log has damaged or deleted records.")
	}
	if len(v.Exceptions) == 0 {
		p.Line("%s", p.Styled(render.Green, "✓ every law holds"))
		return
	}
	p.Line("%s", p.Styled(render.Red, "✗ "+render.Count(len(v.Exceptions), "exception")))
}
