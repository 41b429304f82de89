package openai

import (
	"slices"
	"strings"
)

// A ContextWindow has the limits of a model in tokens.
type ContextWindow struct {
	// Window is the number of tokens of a request and its reply together. Zero: it is not
	// known.
	Window int64
	// Output is the largest number of tokens of a reply.
	Output int64
}

// A knownModel has the facts of the models whose names begin with prefix. The source is the
// model overview of the public API documentation.
type knownModel struct {
	prefix string
	ContextWindow
	// plain is set for models without reasoning. They refuse the parameters of reasoning.
	plain bool
}

// knownModels has the longer prefixes first. The window of a model is at least the one
// here; Config.Windows has a larger one where a program knows it.
var knownModels = []knownModel{
	{"gpt-5-chat", ContextWindow{128_000, 16_384}, true},
	{"gpt-5", ContextWindow{400_000, 128_000}, false},
	{"codex-mini", ContextWindow{200_000, 100_000}, false},
	{"gpt-oss", ContextWindow{131_072, 131_072}, false},
	{"o1", ContextWindow{200_000, 100_000}, false},
	{"o3", ContextWindow{200_000, 100_000}, false},
	{"o4-mini", ContextWindow{200_000, 100_000}, false},
	{"gpt-4.1", ContextWindow{1_047_576, 32_768}, true},
	{"chatgpt-4o", ContextWindow{128_000, 16_384}, true},
	{"gpt-4o", ContextWindow{128_000, 16_384}, true},
	{"gpt-4-turbo", ContextWindow{128_000, 4_096}, true},
	{"gpt-4", ContextWindow{8_192, 8_192}, true},
	{"gpt-3.5-turbo", ContextWindow{16_385, 4_096}, true},
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
