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

// defaultRules are the rules of a run without --rules. They allow reading and
// changing the workspace, and ask about resources outside it and about files that
// may hold secrets.
//
//go:embed default.rules
var defaultRules string

// loadRules parses the rules file at path, or the default rules if path is empty.
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

// terminal returns the terminal at which a person decides requests that the rules leave
// undecided and answers questions. It returns nil where the input is not a terminal or the
// results are JSON. For a terminal it starts a goroutine that reads the input until the
// process exits, and redirects a.Err so that other lines do not garble an open prompt.
func (a *app) terminal(ctx context.Context) *permission.Terminal {
	in, ok := a.in.(*os.File)
	if !ok || !render.IsTerminal(in) || a.Format != render.AsTable {
		return nil
	}
	if a.console != nil {
		return a.shareTerminal(ctx, in)
	}
	t := permission.NewTerminal(in, a.Err)
	a.Err = t.Background()
	go func() { _ = t.Run(ctx) }() // an error means that the terminal broke and no person can answer
	return t
}
