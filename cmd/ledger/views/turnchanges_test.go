package views

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
)

// Each difference between two turns is a change, and equal turns have none.
func TestChangesBetweenTurns(t *testing.T) {
	t.Parallel()
	var one, two domain.RegistrationID
	for id, text := range map[*domain.RegistrationID]string{&one: "reg_01HQWY5DF89BEGSP3JEKB7116A", &two: "reg_01HQWY5DF89BEGSP3JEKB7116B"} {
		if err := id.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	tool := func(name, description string, r domain.RegistrationID) turnTool {
		return turnTool{offeredRow: offeredRow{Tool: domain.Name(name), Registration: r}, Description: render.OrNull(description), Input: json.RawMessage(`{"type":"object"}`), Output: json.RawMessage("null")}
	}
	hidden := func(name, why string) hiddenTool {
		return hiddenTool{offeredRow: offeredRow{Tool: domain.Name(name)}, Why: why}
	}
	base := func() turnDetail {
		return turnDetail{Model: render.OrNull("m-1"), Rules: render.OrNull("d1"), system: "Be brief.\nBe kind.\n", Parameters: json.RawMessage(`{"temperature":0}`),
			Tools: []turnTool{tool("read", "Read.", one), tool("bash", "Run.", one)}, Hidden: []hiddenTool{hidden("show", "by deny show *")}}
	}
	for _, c := range []struct {
		change func(*turnDetail)
		want   string
	}{
		{func(*turnDetail) {}, ""},
		{func(d *turnDetail) { d.Model = render.OrNull("m-2") }, "model changed m-1 m-2"},
		{func(d *turnDetail) { d.Model = nil }, "model removed m-1 "},
		{func(d *turnDetail) { d.Client = render.OrNull("ledger") }, "client added  ledger"},
		{func(d *turnDetail) { d.Flags = []string{"x"} }, "flags added  x"},
		{func(d *turnDetail) { d.Disabled = true }, "disabled changed false true"},
		{func(d *turnDetail) { d.Rules = render.OrNull("d2") }, "rules changed d1 d2"},
		{func(d *turnDetail) { d.system = "Be brief.\nBe honest.\n" }, "system changed    Be brief.|-Be kind.|+Be honest.|"},
		{func(d *turnDetail) { d.instruction = "Stop.\n" }, "instruction added   +Stop.|"},
		{func(d *turnDetail) { d.Parameters = json.RawMessage(`{"temperature":1}`) }, "parameters changed    {|-  \"temperature\": 0|+  \"temperature\": 1| }|"},
		{func(d *turnDetail) { d.Tools = d.Tools[:1] }, "tool bash removed  "},
		{func(d *turnDetail) { d.Tools = append(d.Tools, tool("edit", "Edit.", two)) }, "tool edit added  "},
		{func(d *turnDetail) { d.Tools[0] = tool("read", "Read.", two) }, "tool read registered again " + one.String() + " " + two.String()},
		{func(d *turnDetail) { d.Tools[1] = tool("bash", "Run it.", two) }, "tool bash changed   -Run.|+Run it.| {|   \"type\": \"object\"| }|"},
		{func(d *turnDetail) { d.Hidden = nil }, "hidden show removed by deny show * "},
		{func(d *turnDetail) { d.Hidden[0].Why = "no display" }, "hidden show changed by deny show * no display"},
		{func(d *turnDetail) { d.Hidden = append(d.Hidden, hidden("lsp", "no server")) }, "hidden lsp added  no server"},
	} {
		after := base()
		c.change(&after)
		var got []string
		for _, one := range turnChanges(base(), after) {
			line := fmt.Sprint(strings.TrimSpace(one.What+" "+render.ValueOf(one.Name)), " ", one.Change, " ", render.ValueOf(one.Before), " ", render.ValueOf(one.After))
			if one.Diff != nil {
				line += " " + strings.ReplaceAll(strings.TrimSuffix(*one.Diff, "\n")+"|", "\n", "|")
			}
			got = append(got, line)
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("the changes are\n%q\nwant\n%q", strings.Join(got, "; "), c.want)
		}
	}
}
