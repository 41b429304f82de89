// Package models makes the providers of models that the command asks, from names of the
// form PROVIDER/MODEL, the configuration file models.toml and the environment.
//
// A [Router] is one runner.Provider over all of them: it sends each turn to the provider
// that the model of the turn names. An agent or a subsession may so use another provider
// than the session that started it. docs/models.md describes the file.
//
// # Promises
//
//   - The provider of the model that the user names is made, and its key found, before New
//     returns. Another one is made when a turn first names it.
//   - A key is read from the environment variable that the provider names. It is in no
//     file, argument, error or record.
//   - An unknown key of the file is an error that names the file and the key.
//
// # Concurrency
//
// A Router is safe for concurrent use.
//
// # Errors
//
// New returns a usage fault for a model without a provider, an unknown provider, a key that
// is not set, and a file that cannot be used. Reply yields the errors of the providers, and
// the same fault for the model of an agent.
//
// Packages runner/providers/anthropic and runner/providers/openai speak to the servers.
// This package is below the command, so that programs that embed the ledger compile
// neither SDK.
package models
