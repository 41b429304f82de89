package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
)

// defaultRules are those of a run without --rules: what the workspace holds
// may be read and changed, what lies outside and what may hold secrets is
// asked about.
//
//go:embed default.rules
var defaultRules string

// loadRules reads a file of rules, or the default ones where none is named.
func loadRules(path string) (domain.Rules, error) {
	if path == "" {
		return permission.ParseRules("default rules", strings.NewReader(defaultRules))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.WithHint(fmt.Errorf("--rules: %w", err), "name a file of rules, one on each line: EFFECT ACTION RESOURCE")
	}
	defer f.Close()
	rules, err := permission.ParseRules(path, f)
	if err != nil {
		return nil, fault.WithHint(err, "effects are allow, ask and deny; the last rule that matches decides")
	}
	return rules, nil
}

// approver returns who decides what the rules leave open: the person at the
// terminal, or nobody. The person is read from a goroutine that ends with the
// process. Lines that others write to the standard error do not run into an
// open question.
func (a *app) approver(ctx context.Context) permission.Approver {
	in, ok := a.in.(*os.File)
	if !ok || !render.IsTerminal(in) || a.Format != render.AsTable {
		return permission.Headless{}
	}
	t := permission.NewTerminal(in, a.Err)
	a.Err = t.Background()
	go func() { _ = t.Run(ctx) }() // a terminal that breaks has nobody to ask
	return t
}
