package events

import (
	"encoding/json"

	"github.com/settlement-ledger/ledger/domain"
)

// SessionOpened records the start of a session of one agent.
type SessionOpened struct {
	// Session is the ID of the session, and of its stream.
	Session domain.SessionID `json:"session"`
	// Agent is the name of the agent.
	Agent domain.AgentID `json:"agent" codec:"intern"`
	// Location is the workspace.
	Location string `json:"location,omitempty" codec:"intern"`
	// Model is the model of the agent; empty: not known.
	Model string `json:"model,omitempty" codec:"intern"`
	// Parent is the session that started this one; zero: no session did.
	Parent domain.SessionID `json:"parent,omitzero"`
	// ParentMessage and ParentCall identify the call of Parent that started this one.
	ParentMessage domain.MessageID `json:"parent_message,omitzero"`
	ParentCall    domain.CallID    `json:"parent_call,omitempty"`
	// Ancestors are the agents of the sessions above this one, the root first. Their
	// rules bind this session too.
	Ancestors []domain.AgentID `json:"ancestors,omitempty"`
	// Origin describes how the session entered the ledger.
	Origin Origin `json:"origin"`
	// VersionControl is the state of the working copy in Location when the session opened;
	// zero: there was none, or it is not known.
	VersionControl VersionControl `json:"version_control,omitzero"`
}

// A VersionControl is the state of a working copy.
type VersionControl struct {
	// System is the program that manages the working copy, such as git.
	System string `json:"system" codec:"intern"`
	// Commit is the ID of the commit that is checked out; empty: there is no commit yet.
	Commit string `json:"commit,omitempty"`
	// Branch is the branch that is checked out; empty: there is none.
	Branch string `json:"branch,omitempty" codec:"intern"`
	// State is CleanCopy or DirtyCopy; empty: not known, because finding it took too long.
	State CopyState `json:"state,omitempty" codec:"intern"`
}

// IsZero reports whether there is no working copy, or its state is not known.
func (v VersionControl) IsZero() bool { return v == VersionControl{} }

// A CopyState is the state of the files of a working copy.
type CopyState string

// The states of a working copy.
const (
	CleanCopy CopyState = "clean" // every file is as in the commit, or ignored
	DirtyCopy CopyState = "dirty" // a file differs from the commit, or is neither in it nor ignored
)

// An Origin describes how a session entered the ledger.
type Origin struct {
	// Kind is RunHere, Imported, Replayed or Forked.
	Kind OriginKind `json:"kind" codec:"intern"`
	// Format is the file format of an import, such as claude-code, or how a session was
	// replayed: tape, tools or model.
	Format string `json:"format,omitempty" codec:"intern"`
	// Source is the name of the session in the imported file, or the ID of the session
	// that was replayed or forked.
	Source string `json:"source,omitempty"`
}

// An OriginKind is a way in which a session enters the ledger.
type OriginKind string

// The origins.
const (
	RunHere  OriginKind = "run"    // this program ran its calls
	Imported OriginKind = "import" // another program ran its calls; its file was imported
	Replayed OriginKind = "replay" // this program ran another session of a ledger again
	Forked   OriginKind = "fork"   // it continues another session; a SessionForked says from where
)

// Runs reports whether this program runs sessions of the origin. It does not continue an
// import, or a session of an origin that it does not know.
func (k OriginKind) Runs() bool { return k == RunHere || k == Replayed || k == Forked }

// SessionForked records that the session continues another one: its past are the events of
// Parent up to Revision, which its stream does not repeat. It is appended together with
// the opening of the session.
type SessionForked struct {
	// Parent is the session whose beginning is the past of this one.
	Parent domain.SessionID `json:"parent"`
	// Revision is the length of the past in the stream of Parent, and Event its last event.
	Revision int64          `json:"revision"`
	Event    domain.EventID `json:"event"`
	// Turn and Call are the place in Parent after which this session continues; an empty
	// Call: the whole turn is in the past.
	Turn domain.TurnID `json:"turn,omitzero"`
	Call domain.CallID `json:"call,omitempty"`
}

// PromptAdmitted records a message for the agent.
type PromptAdmitted struct {
	// Message is the ID of the prompt.
	Message domain.MessageID `json:"message"`
	// Text is the text of the prompt.
	Text string `json:"text"`
	// Media are the attached images and files.
	Media domain.Contents `json:"media,omitempty"`
}

// TurnMaterialized records the tools that one turn offered to the model.
type TurnMaterialized struct {
	// Turn is the ID of the turn.
	Turn domain.TurnID `json:"turn"`
	// Message is the ID reserved for the reply.
	Message domain.MessageID `json:"message"`
	// Agent is the agent of the session.
	Agent domain.AgentID `json:"agent" codec:"intern"`
	// Model is the requested model; empty: not known.
	Model string `json:"model,omitempty" codec:"intern"`
	// Provider is the program that serves the model; empty: not known.
	Provider string `json:"provider,omitempty" codec:"intern"`
	// Client is the program that runs the session; empty: not known.
	Client string `json:"client,omitempty" codec:"intern"`
	// Flags are the names that the user set.
	Flags []string `json:"flags,omitempty"`
	// System is the digest of the system prompt, whose text is in an earlier
	// TextRecorded; empty: there is none.
	System string `json:"system,omitempty" codec:"intern"`
	// Described are the offered tools whose description is made for this turn.
	Described []DescribedTool `json:"described,omitempty"`
	// Tools are the offered registrations, in the order of the request to the
	// model.
	Tools []domain.Offered `json:"tools"`
	// Hidden are the tools in effect that rules hid.
	Hidden []HiddenTool `json:"hidden,omitempty"`
	// Disabled reports that the maximum number of steps was reached, so no tool is
	// offered.
	Disabled bool `json:"disabled,omitempty"`
	// Observed reports that an import saw the tools used; others may have been
	// offered.
	Observed bool `json:"observed,omitempty"`
	// Rules is the RuleSets.Digest of the permission rules in force; empty: not known. It does
	// not cover the sources of the rules, so the same rules in another file have the same digest.
	Rules string `json:"rules,omitempty" codec:"intern"`
	// Parameters is the digest of the parameters of the request as the provider sent
	// them, without system prompt, messages and tools, and Schemas that of the tools as
	// sent. Both texts are JSON, in earlier TextRecorded; empty: not known.
	Parameters string `json:"parameters,omitempty" codec:"intern"`
	Schemas    string `json:"schemas,omitempty" codec:"intern"`
	// Instruction is the digest of a text that the request has behind the messages of the
	// session; empty: there is none.
	Instruction string `json:"instruction,omitempty" codec:"intern"`
	// Compacted is the ContextCompacted that lists the messages and results that the
	// request leaves out; zero: it leaves none out.
	Compacted domain.EventID `json:"compacted,omitzero"`
	// Summarizes is the last message of the request, if the request asks for a summary of
	// the messages up to it and does not continue the session. A ContextCompacted follows
	// in place of a reply. Zero: the request continues the session.
	Summarizes domain.MessageID `json:"summarizes,omitzero"`
	// RulesText is the digest of the text of the permission rules in force, in an earlier
	// TextRecorded: the JSON of domain.RuleSets, with the source of each rule. Rules is the
	// RuleSets.Digest of the rules in it. Empty: not known.
	RulesText string `json:"rules_text,omitempty" codec:"intern"`
}

// Offer returns the tools that the turn may call.
func (t TurnMaterialized) Offer() domain.Offer { return domain.Offer{Turn: t.Turn, Tools: t.Tools} }

// A HiddenTool is a tool in effect that the turn did not offer. Either the rule that hid
// it is set, or the conditions that the turn did not meet.
type HiddenTool struct {
	domain.Offered
	Rule domain.Rule `json:"rule"`
	// Unmet has the first unmet condition of each alternative of the tool's
	// availability.
	Unmet []domain.UnmetCondition `json:"unmet,omitempty"`
}

// A DescribedTool is an offered tool with a description that is made for one turn.
type DescribedTool struct {
	Name domain.Name `json:"tool" codec:"intern"`
	// Text is the digest of the description, whose text is in an earlier TextRecorded.
	Text string `json:"text" codec:"intern"`
}

// TextRecorded records a text that turns of the session name by its digest: a system
// prompt, the description of a tool, the parameters of a request, the tools as sent or the
// permission rules. A session has each text once.
type TextRecorded struct {
	// Digest is the SHA-256 of the text in 64 hexadecimal digits.
	Digest string `json:"digest"`
	Text   string `json:"text"`
}

// AgentSwitched records that another agent continues the session.
type AgentSwitched struct {
	// Agent is the agent of the turns that follow, and Previous the one before.
	Agent    domain.AgentID `json:"agent" codec:"intern"`
	Previous domain.AgentID `json:"previous" codec:"intern"`
	// Message and Call identify the call that switched the agent.
	Message domain.MessageID `json:"message,omitzero"`
	Call    domain.CallID    `json:"call,omitempty" codec:"intern"`
}

// TodosReplaced records the list of tasks that an agent keeps, in place of the list
// before.
type TodosReplaced struct {
	// Message and Call identify the call that wrote the list.
	Message domain.MessageID `json:"message"`
	Call    domain.CallID    `json:"call" codec:"intern"`
	Todos   []domain.Todo    `json:"todos"`
}

// ReplyReceived records a reply of the model.
type ReplyReceived struct {
	// Turn is the turn that the reply answers.
	Turn domain.TurnID `json:"turn"`
	// Message is the ID of the reply.
	Message domain.MessageID `json:"message"`
	// Text is the text of the reply, without its thinking.
	Text string `json:"text,omitempty"`
	// Calls are the calls as the model asked for them, in order.
	Calls []domain.Call `json:"calls,omitempty"`
	// Model is the model that replied; empty: not known.
	Model string `json:"model,omitempty" codec:"intern"`
	// Tokens are the token counts of the request and the reply.
	Tokens Tokens `json:"tokens,omitzero"`
	// Finish is the provider's stop reason.
	Finish string `json:"finish,omitempty" codec:"intern"`

	// Thinking is the reasoning of the model; later requests do not include it.
	Thinking string `json:"thinking,omitempty"`
	// Items are opaque parts of the reply that later requests give back to the provider.
	Items []ProviderItem `json:"items,omitempty"`
}

// A ProviderItem is an opaque part of a reply, such as signed or encrypted reasoning. Only
// requests to the provider and model that made it contain it.
type ProviderItem struct {
	Provider string `json:"provider" codec:"intern"`
	Model    string `json:"model" codec:"intern"`
	// Data is JSON in a form of the provider.
	Data json.RawMessage `json:"data"`
}

// ReplyRefused records an unusable reply and the reason. None of its calls
// runs, no later request to the model includes it, and the turn has no reply.
type ReplyRefused struct {
	// Turn is the turn of the reply.
	Turn domain.TurnID `json:"turn"`
	// Message is the ID reserved for the reply.
	Message domain.MessageID `json:"message"`
	// Reason is the error text.
	Reason string `json:"reason"`
	Text   string `json:"text,omitempty"`
	// Calls are the calls as the model asked for them; an ID may be empty or
	// repeated.
	Calls  []domain.Call `json:"calls,omitempty"`
	Model  string        `json:"model,omitempty" codec:"intern"`
	Tokens Tokens        `json:"tokens,omitzero"`
	Finish string        `json:"finish,omitempty" codec:"intern"`
	// Thinking is the reasoning of the model.
	Thinking string `json:"thinking,omitempty"`
}

// Tokens are the token counts of the provider.
type Tokens struct {
	// Input is the number of input tokens that were neither read from the provider's cache
	// nor written to it. Imported counts are those of the file.
	Input int64 `json:"input,omitempty"`
	// Output is the number of generated tokens.
	Output int64 `json:"output,omitempty"`
	// CacheRead is the number of input tokens read from the provider's cache.
	CacheRead int64 `json:"cache_read,omitempty"`
	// CacheWrite is the number of input tokens written to the provider's cache.
	CacheWrite int64 `json:"cache_write,omitempty"`
}

// LoopDetected records that the model repeated the same calls, and that one of
// them needs permission before it runs.
type LoopDetected struct {
	// Message is the reply with the call that needs permission.
	Message domain.MessageID `json:"message"`
	// Call is the provider's name for the call.
	Call domain.CallID `json:"call" codec:"intern"`
	// Tool is the name of the tool that the call names.
	Tool string `json:"tool" codec:"intern"`
	// Period is the number of calls in one round.
	Period int `json:"period"`
	// Rounds is the number of repetitions.
	Rounds int `json:"rounds"`
}

// SessionInterrupted records that a run of the session ended before all its
// work was done.
type SessionInterrupted struct {
	// Reason is the cause of the interruption.
	Reason domain.Interruption `json:"reason"`
	// Detail is a text for the operator; it may be empty.
	Detail string `json:"detail,omitempty"`
}

// SessionClosed records the end of the session: no event follows.
type SessionClosed struct {
	// Reason is a text for a person.
	Reason string `json:"reason"`
}
