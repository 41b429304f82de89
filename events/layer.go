package events

import (
	"encoding/json"

	"github.com/settlement-ledger/ledger/domain"
)

// LayerOpened records that a process opened a layer for registrations.
type LayerOpened struct {
	Layer     domain.LayerID   `json:"layer"`
	Placement domain.Placement `json:"placement"`
	Location  string           `json:"location,omitempty" codec:"intern"` // a directory or workspace
	Session   domain.SessionID `json:"session,omitzero"`                  // of a layer of one session
	Process   domain.ProcessID `json:"process,omitzero"`                  // zero in an import
	Observed  bool             `json:"observed,omitempty"`                // an import inferred the layer from the use of its tools
}

// ToolsRegistered records that a scope put tools into effect. The registration
// of each tool is the ID of this event with the tool's name.
type ToolsRegistered struct {
	Scope   domain.ScopeID   `json:"scope"`
	Tools   []RegisteredTool `json:"tools"`
	Refused []RefusedTool    `json:"refused,omitempty"`
}

// A RegisteredTool describes a tool at its registration. An imported tool that
// was only seen in use has a name and no other field.
type RegisteredTool struct {
	Name        domain.Name        `json:"name" codec:"intern"`
	Description string             `json:"description,omitempty"`
	Input       json.RawMessage    `json:"input,omitempty"`
	Output      json.RawMessage    `json:"output,omitempty"`
	Action      string             `json:"action,omitempty" codec:"intern"`
	Fingerprint domain.Fingerprint `json:"fingerprint,omitzero"`
	Idempotent  bool               `json:"idempotent,omitempty"`
}

// A RefusedTool is a tool that was not registered, and the reason.
type RefusedTool struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// RegistrationClosed records that a registration and all its tools are no
// longer in effect.
type RegistrationClosed struct {
	Registration domain.RegistrationID `json:"registration"`
	Reason       string                `json:"reason" codec:"intern"`
}

// LayerClosed records that a layer and all its registrations are no longer in
// effect.
type LayerClosed struct {
	Layer  domain.LayerID `json:"layer"`
	Reason string         `json:"reason" codec:"intern"`
}
