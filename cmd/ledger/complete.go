package main

import (
	"context"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/spf13/cobra"
)

// complete returns a cobra completion function for an argument or a flag. The function
// words reads the possible words from the store; the completion offers those that begin
// with the typed text. A shell cannot show an error, so after an error of the store it
// offers no word.
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
