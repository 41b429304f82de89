package main

import (
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// complete returns a cobra completion function for an argument or a flag. The function
// words reads the possible words from the index of the store; the completion offers those that begin
// with the typed text. A shell cannot show an error, so after an error of the store it
// offers no word.
func (a *app) complete(words func(*index.Snapshot) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		var found []string
		_ = a.answer(cmd.Context(), func(_ *stores.Store, r *index.Snapshot) (err error) {
			found, err = words(r)
			return err
		})
		return slices.DeleteFunc(found, func(word string) bool { return !strings.HasPrefix(word, typed) }), cobra.ShellCompDirectiveNoFileComp
	}
}
