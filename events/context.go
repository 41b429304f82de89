package events

import (
	"github.com/settlement-ledger/ledger/domain"
)

// SettingChanged records a new value of a setting of the session. A session
// has at most one value of a setting at a time.
type SettingChanged struct {
	Setting string `json:"setting" codec:"intern"` // one of the settings below, or another program's word
	Value   string `json:"value"`
}

// The settings that this module records.
const (
	SettingModel          = "model"           // the session was opened without
	SettingLocation       = "location"        // the working directory
	SettingPermissionMode = "permission_mode" // such as default, plan or bypassPermissions
	SettingGitBranch      = "git_branch"      // of the working directory
	SettingProgramVersion = "program_version" // of the program that runs the agent
	SettingContinues      = "continues"       // the previous session, as the imported file names it
)

// SessionSpawned records the session, and the call in it, that started this
// session. A later SessionSpawned of the same session adds fields and
// contradicts none.
type SessionSpawned struct {
	Parent  domain.SessionID `json:"parent"`
	Message domain.MessageID `json:"message,omitzero"` // of the parent: the reply that asked for Call; zero where it is not known
	Call    domain.CallID    `json:"call,omitempty" codec:"intern"`
}

// ContextAdded records a text that the program, not a person or a call, added
// to the model's context. Text is complete, a prefix or absent; unless it is
// complete, Bytes and SHA256 describe the complete text.
type ContextAdded struct {
	Source string `json:"source" codec:"intern"` // one of the sources below, or another program's word
	Text   string `json:"text,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`  // of the complete text, if Text is not complete
	SHA256 string `json:"sha256,omitempty"` // of the complete text, if Text is not complete
}

// The sources of context that this module records.
const (
	ContextSummary       = "summary"        // replaces the compacted messages
	ContextNotification  = "notification"   // the end of a background task
	ContextReminder      = "reminder"       // a reminder by the program
	ContextCommandOutput = "command_output" // the output of a person's command
	ContextHook          = "hook"           // a text of a hook
	ContextProgram       = "program"        // any other text of the program in the role of the person
)

// ContextCompacted records that the model receives a shortened session from
// this event on. A summary follows as ContextAdded.
type ContextCompacted struct {
	Trigger string `json:"trigger,omitempty" codec:"intern"` // such as manual or auto
	Before  int64  `json:"tokens_before,omitempty"`
	After   int64  `json:"tokens_after,omitempty"`
}

// CommandRan records a command that ran outside of calls: one that a person
// gave to the program that runs the agent, or a hook.
type CommandRan struct {
	By      string        `json:"by" codec:"intern"`                // ByHook or ByUser
	Name    string        `json:"name,omitempty" codec:"intern"`    // such as /compact, or the event that the hook is of
	Command string        `json:"command,omitempty"`                // the line that ran, or the arguments of Name
	Call    domain.CallID `json:"call,omitempty" codec:"intern"`    // that a hook ran for
	Outcome string        `json:"outcome,omitempty" codec:"intern"` // such as success, blocked or failed; empty: not known
	Output  string        `json:"output,omitempty"`
}

// The values of CommandRan.By.
const (
	ByHook = "hook"
	ByUser = "user"
)

// ProviderFailed records a failed request to the model's provider.
type ProviderFailed struct {
	Detail  string `json:"detail"`
	Status  int64  `json:"status,omitempty"`  // of HTTP
	Attempt int64  `json:"attempt,omitempty"` // counted from 1; zero: not known
}
