package main

import (
	"context"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/spf13/cobra"
)

// complete returns a completion of the words that words reads from the store, filtered by
// the typed prefix. A shell cannot show an error: complete ignores the errors of the store
// and completes no word then.
func (a *app) complete(words func(context.Context, *stores.Store) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		var found []string
		_ = a.Read(cmd.Context(), func(s *stores.Store) (err error) {
			found, err = words(cmd.Context(), s)
			return err
		})
		return slices.DeleteFunc(found, func(word string) bool { return !strings.HasPrefix(word, typed) }), cobra.ShellCompDirectiveNoFileComp
	}
}
