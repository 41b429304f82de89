package events

import (
	"encoding/json"

	"github.com/settlement-ledger/ledger/domain"
)

// LayerOpened says that a process opened a layer for registrations.
type LayerOpened struct {
	Layer     domain.LayerID   `json:"layer"`
	Placement domain.Placement `json:"placement"`
	Location  string           `json:"location,omitempty"` // a directory or workspace
	Session   domain.SessionID `json:"session,omitzero"`   // of a layer of one session
	Process   domain.ProcessID `json:"process,omitzero"`   // zero where an import observed it
	Observed  bool             `json:"observed,omitempty"` // an import saw its tools used, and nobody registered them here
}

// ToolsRegistered says that a scope put tools into effect. The registration of
// each is the ID of this event with the tool's name.
type ToolsRegistered struct {
	Scope   domain.ScopeID   `json:"scope"`
	Tools   []RegisteredTool `json:"tools"`
	Refused []RefusedTool    `json:"refused,omitempty"`
}

// A RegisteredTool is one tool as it was registered. Of a tool that was only
// observed, nothing but the name is known.
type RegisteredTool struct {
	Name        domain.Name        `json:"name"`
	Description string             `json:"description,omitempty"`
	Input       json.RawMessage    `json:"input,omitempty"`
	Output      json.RawMessage    `json:"output,omitempty"`
	Action      string             `json:"action,omitempty"`
	Fingerprint domain.Fingerprint `json:"fingerprint,omitzero"`
	Idempotent  bool               `json:"idempotent,omitempty"`
}

// A RefusedTool is an entry of a list that was not registered, and why.
type RefusedTool struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// RegistrationClosed says that a registration, with all its tools, is no
// longer in effect.
type RegistrationClosed struct {
	Registration domain.RegistrationID `json:"registration"`
	Reason       string                `json:"reason"`
}

// LayerClosed says that a layer, with all its registrations, is no longer in
// effect.
type LayerClosed struct {
	Layer  domain.LayerID `json:"layer"`
	Reason string         `json:"reason"`
}

// Kind returns the name under which the event is kept.
func (LayerOpened) Kind() string { return "LayerOpened" }

// Kind returns the name under which the event is kept.
func (ToolsRegistered) Kind() string { return "ToolsRegistered" }

// Kind returns the name under which the event is kept.
func (RegistrationClosed) Kind() string { return "RegistrationClosed" }

// Kind returns the name under which the event is kept.
func (LayerClosed) Kind() string { return "LayerClosed" }

func (LayerOpened) event()        {}
func (ToolsRegistered) event()    {}
func (RegistrationClosed) event() {}
func (LayerClosed) event()        {}
