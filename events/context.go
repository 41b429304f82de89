package events

import (
	"github.com/settlement-ledger/ledger/domain"
)

// SettingChanged says that a setting of the session has a value from here on.
// The session has at most one value of a setting at a time.
type SettingChanged struct {
	Setting string `json:"setting"` // one of the settings below, or another program's word
	Value   string `json:"value"`
}

// The settings that this module records.
const (
	SettingModel          = "model"           // the session was opened without
	SettingLocation       = "location"        // the working directory
	SettingPermissionMode = "permission_mode" // such as default, plan or bypassPermissions
	SettingGitBranch      = "git_branch"      // of the working directory
	SettingProgramVersion = "program_version" // of the program that runs the agent
	SettingContinues      = "continues"       // what the format of an import calls the session that this one goes on from
)

// SessionSpawned says which session, and which call of it, began this one. A
// later SessionSpawned of the same session says more, not otherwise.
type SessionSpawned struct {
	Parent  domain.SessionID `json:"parent"`
	Message domain.MessageID `json:"message,omitzero"` // of the parent: the reply that asked for Call; zero where it is not known
	Call    domain.CallID    `json:"call,omitempty"`
}

// ContextAdded says that the model was shown a text that no person wrote and no
// call returned. Text is the whole text, its beginning or absent; unless it is
// whole, Bytes and SHA256 describe the whole text.
type ContextAdded struct {
	Source string `json:"source"` // one of the sources below, or another program's word
	Text   string `json:"text,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`  // of the whole, where Text is not
	SHA256 string `json:"sha256,omitempty"` // of the whole, where Text is not
}

// The sources of context that this module records.
const (
	ContextSummary       = "summary"        // in place of what was compacted
	ContextNotification  = "notification"   // that something ended in the background
	ContextReminder      = "reminder"       // of the program, to the model
	ContextCommandOutput = "command_output" // of a command that a person ran
	ContextHook          = "hook"           // of a hook, to the model
	ContextProgram       = "program"        // of the program in the place of a person, otherwise
)

// ContextCompacted says that the model is shown a shortened session from here on.
// A summary follows as ContextAdded.
type ContextCompacted struct {
	Trigger string `json:"trigger,omitempty"` // such as manual or auto
	Before  int64  `json:"tokens_before,omitempty"`
	After   int64  `json:"tokens_after,omitempty"`
}

// CommandRan says that a command ran outside of calls: one that a person gave
// to the program that runs the agent, or a hook of it.
type CommandRan struct {
	By      string        `json:"by"`                // ByHook or ByUser
	Name    string        `json:"name,omitempty"`    // such as /compact, or the event that the hook is of
	Command string        `json:"command,omitempty"` // the line that ran, or the arguments of Name
	Call    domain.CallID `json:"call,omitempty"`    // that a hook ran for
	Outcome string        `json:"outcome,omitempty"` // such as success, blocked or failed; empty: not known
	Output  string        `json:"output,omitempty"`
}

// The values of CommandRan.By.
const (
	ByHook = "hook"
	ByUser = "user"
)

// ProviderFailed says that a request to the provider of the model failed.
type ProviderFailed struct {
	Detail  string `json:"detail"`
	Status  int64  `json:"status,omitempty"`  // of HTTP
	Attempt int64  `json:"attempt,omitempty"` // counted from 1; zero: not known
}

// Kind returns the name under which the event is kept.
func (SettingChanged) Kind() string { return "SettingChanged" }

// Kind returns the name under which the event is kept.
func (SessionSpawned) Kind() string { return "SessionSpawned" }

// Kind returns the name under which the event is kept.
func (ContextAdded) Kind() string { return "ContextAdded" }

// Kind returns the name under which the event is kept.
func (ContextCompacted) Kind() string { return "ContextCompacted" }

// Kind returns the name under which the event is kept.
func (CommandRan) Kind() string { return "CommandRan" }

// Kind returns the name under which the event is kept.
func (ProviderFailed) Kind() string { return "ProviderFailed" }

func (SettingChanged) event()   {}
func (SessionSpawned) event()   {}
func (ContextAdded) event()     {}
func (ContextCompacted) event() {}
func (CommandRan) event()       {}
func (ProviderFailed) event()   {}
