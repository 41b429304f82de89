package events

import (
	"github.com/settlement-ledger/ledger/domain"
)

// SettingChanged records a new value of a setting of the session. A session
// has at most one value of a setting at a time.
type SettingChanged struct {
	// Setting is one of the Setting constants, or another program's name of a
	// setting.
	Setting string `json:"setting" codec:"intern"`
	// Value is the new value.
	Value string `json:"value"`
}

// The settings that this module records.
const (
	SettingModel          = "model"           // the model, of a session that was opened without one
	SettingLocation       = "location"        // the working directory
	SettingPermissionMode = "permission_mode" // such as default, plan or bypassPermissions
	SettingGitBranch      = "git_branch"      // of the working directory
	SettingProgramVersion = "program_version" // of the program that runs the agent
	SettingContinues      = "continues"       // the previous session, as the imported file names it
	SettingSandbox        = "sandbox"         // the restrictions under which the program runs tools, as the imported file names them
	SettingReverted       = "reverted"        // the message from which on a person took the session back
)

// SessionSpawned records the session, and the call in it, that started this
// session. A later SessionSpawned of the same session adds fields and
// changes no field that is set.
type SessionSpawned struct {
	// Parent is the session that started this one.
	Parent domain.SessionID `json:"parent"`
	// Message is the reply of the parent that contains Call; zero: not known.
	Message domain.MessageID `json:"message,omitzero"`
	// Call is the call of the parent that started this session; empty: not known.
	Call domain.CallID `json:"call,omitempty" codec:"intern"`
}

// ContextAdded records a text that the program, not a person or a call, added
// to the model's context. Text is complete, a prefix or absent; unless it is
// complete, Bytes and SHA256 describe the complete text.
type ContextAdded struct {
	// Source is one of the Context constants, or another program's name of a
	// source.
	Source string `json:"source" codec:"intern"`
	// Text is the text, its prefix or empty.
	Text string `json:"text,omitempty"`
	// Bytes is the size of the complete text, if Text is not complete.
	Bytes int64 `json:"bytes,omitempty"`
	// SHA256 is the hexadecimal digest of the complete text, if Text is not
	// complete.
	SHA256 string `json:"sha256,omitempty"`
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

// The causes of a compaction that this module records.
const (
	CompactedAuto     = "auto"     // the next request would have come near the context window
	CompactedExceeded = "exceeded" // the provider refused a request as too large
)

// FailureContextExceeded is the ProviderFailed.Failure of a request that was refused as
// larger than the context of the model.
const FailureContextExceeded = "context_exceeded"

// ContextCompacted records that the model receives a shortened session from
// this event on. In an imported session a summary follows as ContextAdded.
type ContextCompacted struct {
	// Trigger is one of the Compacted constants, or another program's name of a cause,
	// such as manual.
	Trigger string `json:"trigger,omitempty" codec:"intern"`
	// Before is the size of the context in tokens before the compaction; zero: not
	// known.
	Before int64 `json:"tokens_before,omitempty"`
	// After is the size in tokens after the compaction; zero: not known.
	After int64 `json:"tokens_after,omitempty"`
	// Window is the number of tokens that the context of the model holds; zero: not
	// known.
	Window int64 `json:"window,omitempty"`
	// Reserved is the number of these tokens that is reserved for the reply; zero: none
	// is, or it is not known.
	Reserved int64 `json:"reserved,omitempty"`
	// Through is the last message that later requests leave out, with all messages
	// before it; zero: they leave out no message, or it is not known.
	Through domain.MessageID `json:"through,omitzero"`
	// Prompts, Replies and Calls count the prompts, replies and calls that later requests
	// leave out, from the beginning of the session.
	Prompts int64 `json:"prompts,omitempty"`
	Replies int64 `json:"replies,omitempty"`
	Calls   int64 `json:"calls,omitempty"`
	// Shortened are the calls behind Through whose results later requests leave out.
	Shortened []ShortenedResult `json:"shortened,omitempty"`
	// Summary is the text that later requests have in place of the messages left out.
	Summary string `json:"summary,omitempty"`
	// Model is the model that wrote the summary; empty: not known, or the program wrote
	// it. Tokens are the token counts of that request.
	Model  string `json:"model,omitempty" codec:"intern"`
	Tokens Tokens `json:"tokens,omitzero"`
	// Detail is the reason for which the program wrote the summary; empty: a model did,
	// there is none, or it is not known.
	Detail string `json:"detail,omitempty"`
}

// A ShortenedResult is a call whose result requests leave out.
type ShortenedResult struct {
	Message domain.MessageID `json:"message"`
	Call    domain.CallID    `json:"call" codec:"intern"`
	// Bytes is the size of the result that is left out.
	Bytes int64 `json:"bytes"`
}

// CommandRan records a command that ran outside of calls: one that a person
// gave to the program that runs the agent, or a hook.
type CommandRan struct {
	// By is ByHook or ByUser.
	By string `json:"by" codec:"intern"`
	// Name is the name of the command, such as /compact, or the event of the hook.
	Name string `json:"name,omitempty" codec:"intern"`
	// Command is the command line, or the arguments of Name.
	Command string `json:"command,omitempty"`
	// Call is the call for which the hook ran; empty: it ran for no call.
	Call domain.CallID `json:"call,omitempty" codec:"intern"`
	// Outcome is the result, such as success, blocked or failed; empty: not known.
	Outcome string `json:"outcome,omitempty" codec:"intern"`
	// Output is the text that the command wrote.
	Output string `json:"output,omitempty"`
}

// The values of CommandRan.By.
const (
	ByHook = "hook" // a hook of the program that runs the agent
	ByUser = "user" // a person
)

// ProviderFailed records a failed request to the model's provider.
type ProviderFailed struct {
	// Detail is the error text.
	Detail string `json:"detail"`
	// Status is the HTTP status; zero: not known.
	Status int64 `json:"status,omitempty"`
	// Attempt is the number of the attempt, counted from 1; zero: not known.
	Attempt int64 `json:"attempt,omitempty"`
	// Turn is the turn that the request belongs to; zero: not known.
	Turn domain.TurnID `json:"turn,omitzero"`
	// Provider and Model name the server and the model of the request; empty: not known.
	Provider string `json:"provider,omitempty" codec:"intern"`
	Model    string `json:"model,omitempty" codec:"intern"`
	// Failure is the kind of the failure, such as rate_limited; empty: not known.
	Failure string `json:"failure,omitempty" codec:"intern"`
	// Request is the ID that the server gave the request; empty: not known.
	Request string `json:"request,omitempty"`
}
