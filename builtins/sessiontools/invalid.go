package sessiontools

import (
	"context"

	"github.com/settlement-ledger/ledger/domain"
)

// invalidArgs is the input of the tool invalid.
type invalidArgs struct {
	Tool  string `json:"tool" jsonschema:"the tool that was called"`
	Error string `json:"error" jsonschema:"the fault of its arguments"`
}

// invalidTool returns the domain.Tool of invalid, which returns the fault of the arguments
// of another call to the model. A program that repairs calls of a model puts it in the
// place of a call that it cannot repair.
func invalidTool() (domain.Tool, error) {
	return domain.Make(domain.Spec[invalidArgs, string]{
		Description: "Do not use",
		Execute: func(_ context.Context, in invalidArgs, _ domain.Invocation) (string, error) {
			return "The arguments provided to the tool are invalid: " + in.Error, nil
		},
		Idempotent: true,
		Title:      func(in invalidArgs) string { return "invalid arguments of " + in.Tool },
	})
}
