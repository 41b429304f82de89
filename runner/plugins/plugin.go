package plugins

import (
	"context"
	"encoding/json"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/process"
	"github.com/settlement-ledger/ledger/domain"
)

// A Plugin offers tools. One value serves one location: a program that has several
// locations makes a plugin for each.
type Plugin interface {
	// Name identifies the plugin in its host and in the log. It follows the grammar of
	// tool names.
	Name() string
	// Install registers the tools of the plugin. The host calls it once. The scope and the
	// location are valid until the host is closed or the plugin has failed. If Install
	// returns an error, the host records it and takes the tools of the plugin out of
	// effect.
	Install(ctx context.Context, scope PluginScope, at PluginLocation) error
}

// A Refresher is a Plugin whose tools may change.
type Refresher interface {
	// Refresh puts changes since Install or the last Refresh into effect. The host calls
	// it often, one call at a time; a call without a change must return quickly. If
	// Refresh returns an error, the host records it and keeps the tools in effect.
	Refresh(context.Context) error
}

// A Stopper is a Plugin that holds resources, such as a connection.
type Stopper interface {
	// Stop releases the resources of the plugin. The host calls it once, after it has closed
	// the scope, also if Install failed. Calls of its tools may still run.
	Stop(context.Context) error
}

// A PluginScope owns the registrations of one plugin. It is safe for concurrent use. After
// the host has closed it, its methods return registry.ErrClosed.
type PluginScope interface {
	// Register puts either all tools into effect or no tool, until the scope is closed. It
	// returns once the registration is durable, or domain.ErrBadName or domain.ErrBadTool.
	Register(ctx context.Context, tools map[string]domain.Tool) error
	// RegisterValid puts the valid tools of a list into effect until the scope is closed.
	// It records the invalid tools with their reasons. refused are further entries of the
	// list, from which the plugin could make no tool; RegisterValid records them too. It
	// returns all refused entries.
	RegisterValid(ctx context.Context, tools map[string]domain.Tool, refused map[string]error) (map[string]error, error)
	// Replace registers a list as the content of a part of the scope, as RegisterValid
	// does, and then closes the earlier content of the part. The plugin chooses the names
	// of its parts. An empty list removes the part. If the new list cannot be recorded,
	// the earlier content stays.
	Replace(ctx context.Context, part string, tools map[string]domain.Tool, refused map[string]error) (map[string]error, error)
}

// A PluginLocation is the place where a plugin runs. The plugin does not change it.
type PluginLocation struct {
	// Folder is the absolute path of the folder in which the sessions of the location
	// work.
	Folder string
	// Settings are the settings of the plugin as JSON. Nil: the plugin has no settings.
	Settings json.RawMessage
	// Environment is the environment for the processes of the plugin, as KEY=VALUE. It
	// may have secrets that not every process should get.
	Environment []string
	// Start starts a command, as process.StartPiped does. The plugin stops the process.
	Start func(process.Command) (*process.PipedProcess, error)
	// Permission decides which actions the calls of the plugin's tools may perform.
	Permission permission.Asserter
	// Questions asks a person on behalf of a call. Nil: no person can be asked.
	Questions QuestionAsker
}

// A QuestionAsker asks a person the questions of a call. It is safe for concurrent use.
type QuestionAsker interface {
	// AskQuestions returns an answer to each question. It returns
	// permission.ErrBadQuestion, a *domain.Declined if the person dismisses the questions,
	// a *domain.Denied if there is no person, and the cause of an ended context.
	AskQuestions(context.Context, domain.Invocation, []domain.Question) ([][]string, error)
}
