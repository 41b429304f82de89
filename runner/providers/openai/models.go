package openai

import (
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
)

// A knownModel has the facts of the models whose names begin with prefix. The source is the
// model overview of the public API documentation.
type knownModel struct {
	prefix string
	modelapi.ContextWindow
	// plain is set for models without reasoning. They refuse the parameters of reasoning.
	plain bool
}

// knownModels has the longer prefixes first. The window of a model is at least the one
// here; Config.Windows has a larger one where a program knows it.
var knownModels = []knownModel{
	{"gpt-5-chat", modelapi.ContextWindow{Window: 128_000, Output: 16_384}, true},
	{"gpt-5", modelapi.ContextWindow{Window: 400_000, Output: 128_000}, false},
	{"codex-mini", modelapi.ContextWindow{Window: 200_000, Output: 100_000}, false},
	{"gpt-oss", modelapi.ContextWindow{Window: 131_072, Output: 131_072}, false},
	{"o1", modelapi.ContextWindow{Window: 200_000, Output: 100_000}, false},
	{"o3", modelapi.ContextWindow{Window: 200_000, Output: 100_000}, false},
	{"o4-mini", modelapi.ContextWindow{Window: 200_000, Output: 100_000}, false},
	{"gpt-4.1", modelapi.ContextWindow{Window: 1_047_576, Output: 32_768}, true},
	{"chatgpt-4o", modelapi.ContextWindow{Window: 128_000, Output: 16_384}, true},
	{"gpt-4o", modelapi.ContextWindow{Window: 128_000, Output: 16_384}, true},
	{"gpt-4-turbo", modelapi.ContextWindow{Window: 128_000, Output: 4_096}, true},
	{"gpt-4", modelapi.ContextWindow{Window: 8_192, Output: 8_192}, true},
	{"gpt-3.5-turbo", modelapi.ContextWindow{Window: 16_385, Output: 4_096}, true},
}

// lookUp returns the facts of a model, or the zero knownModel. A gateway puts the name of
// the maker before the name of a model, as in openai/gpt-5.
func lookUp(model string) knownModel {
	name := model[strings.LastIndex(model, "/")+1:]
	i := slices.IndexFunc(knownModels, func(k knownModel) bool { return strings.HasPrefix(name, k.prefix) })
	if i < 0 {
		return knownModel{}
	}
	return knownModels[i]
}

// reasons reports whether a model takes the parameters of reasoning. An unknown model
// does.
func reasons(model string) bool { return !lookUp(model).plain }
