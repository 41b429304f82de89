package events

import (
	"encoding/json"

	"github.com/settlement-ledger/ledger/domain"
)

// LayerOpened records that a process opened a layer for registrations.
type LayerOpened struct {
	// Layer is the ID of the layer, and of its stream.
	Layer domain.LayerID `json:"layer"`
	// Placement is the precedence of the layer: application, location or session.
	Placement domain.Placement `json:"placement"`
	// Location is the directory or workspace of the layer.
	Location string `json:"location,omitempty" codec:"intern"`
	// Session is the session of a layer of one session.
	Session domain.SessionID `json:"session,omitzero"`
	// Process is the process that opened the layer; zero in an import.
	Process domain.ProcessID `json:"process,omitzero"`
	// Observed reports that an import inferred the layer from the use of its
	// tools.
	Observed bool `json:"observed,omitempty"`
}

// ToolsRegistered records that a scope put tools into effect. The registration
// of each tool is the ID of this event with the tool's name.
type ToolsRegistered struct {
	// Scope is the scope that owns the registrations: closing it closes them.
	Scope domain.ScopeID `json:"scope"`
	// Tools are the registered tools.
	Tools []RegisteredTool `json:"tools"`
	// Refused are the tools that were not registered.
	Refused []RefusedTool `json:"refused,omitempty"`
}

// A RegisteredTool describes a tool at its registration. An imported tool that
// was only seen in use has a name and no other field.
type RegisteredTool struct {
	// Name is the name under which the model calls the tool.
	Name domain.Name `json:"name" codec:"intern"`
	// Description is the text about the tool for the model.
	Description string `json:"description,omitempty"`
	// Input is the JSON Schema of the input.
	Input json.RawMessage `json:"input,omitempty"`
	// Output is the JSON Schema of the output.
	Output json.RawMessage `json:"output,omitempty"`
	// Action is the permission action of the tool.
	Action string `json:"action,omitempty" codec:"intern"`
	// Fingerprint is the digest of the definition; zero: not known.
	Fingerprint domain.Fingerprint `json:"fingerprint,omitzero"`
	// Idempotent is the promise of the tool that a second run of the same call has
	// no further effect.
	Idempotent bool `json:"idempotent,omitempty"`
	// AsksFirst is the promise of the tool to request permission before its first side
	// effect.
	AsksFirst bool `json:"asks_first,omitempty"`
	// Available says in which turns the tool is offered; empty: in every turn.
	Available domain.Availability `json:"available,omitempty"`
}

// A RefusedTool is a tool that was not registered, and the reason.
type RefusedTool struct {
	// Name is the name as it was given; it may be invalid.
	Name string `json:"name"`
	// Reason is the error text.
	Reason string `json:"reason"`
}

// RegistrationClosed records that a registration and all its tools are no
// longer in effect.
type RegistrationClosed struct {
	// Registration is the registration that closed.
	Registration domain.RegistrationID `json:"registration"`
	// Reason is the cause, such as ScopeClosed or ProcessLost.
	Reason string `json:"reason" codec:"intern"`
}

// LayerClosed records that a layer and all its registrations are no longer in
// effect.
type LayerClosed struct {
	// Layer is the ID of the layer.
	Layer domain.LayerID `json:"layer"`
	// Reason is the cause, such as ProcessEnded or ProcessLost.
	Reason string `json:"reason" codec:"intern"`
}
