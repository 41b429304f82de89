package receipts

import (
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/settlement-ledger/ledger/domain"
)

// ErrNotAReceipt reports bytes that are not a receipt.
var ErrNotAReceipt = errors.New("not a receipt")

// ErrNewerReceipt reports a receipt in a form that this program does not know yet.
var ErrNewerReceipt = errors.New("receipt has a newer version")

// Read parses a receipt to the end of a reader. It returns an ErrNotAReceipt that names the first
// fault, or ErrNewerReceipt. It checks the form only: Check finds wrong digests and wrong orders.
func Read(from io.Reader) (*Receipt, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxReceipt+1))
	if err != nil {
		return nil, fmt.Errorf("read receipt: %w", err)
	}
	if len(data) > maxReceipt {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrNotAReceipt, maxReceipt)
	}
	var form struct {
		ReceiptVersion *int `json:"receipt_version"`
	}
	if err := json.Unmarshal(data, &form); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotAReceipt, err)
	}
	switch {
	case form.ReceiptVersion == nil:
		return nil, fmt.Errorf("%w: it has no receipt_version", ErrNotAReceipt)
	case *form.ReceiptVersion > Version:
		return nil, fmt.Errorf("%w: it has version %d, and this program reads version %d", ErrNewerReceipt, *form.ReceiptVersion, Version)
	}
	r := &Receipt{}
	if err := json.Unmarshal(data, r, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotAReceipt, err)
	}
	if err := r.wellFormed(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotAReceipt, err)
	}
	if r.computed, err = sealOf(data); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotAReceipt, err)
	}
	return r, nil
}

// hexDigest matches a SHA-256.
var hexDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// wellFormed returns an error that names the first member that is missing or has no valid value.
func (r *Receipt) wellFormed() error {
	for _, m := range []struct {
		name  string
		valid bool
	}{
		{"receipt_version", r.ReceiptVersion == Version},
		{"program.name", r.Program.Name != ""},
		{"store.first_event", !r.Store.FirstEvent.IsZero()},
		{"store.sha256", hexDigest.MatchString(r.Store.SHA256)},
		{"call.session", !r.Call.Session.IsZero()},
		{"call.message", !r.Call.Message.IsZero()},
		{"call.call", r.Call.Call != ""},
		{"head.revision", r.Head.Revision > 0},
		{"head.event", !r.Head.Event.IsZero()},
		{"head.position", !r.Head.Position.IsZero()},
		{"events", len(r.Events) > 0},
		{"outputs", r.Outputs != nil},
		{"tree_head", string(r.TreeHead) == "null"},
		{"receipt_sha256", hexDigest.MatchString(r.SHA256)},
	} {
		if !m.valid {
			return fmt.Errorf("%s is missing or has no valid value", m.name)
		}
	}
	if _, err := parseTime(r.Made); err != nil {
		return fmt.Errorf("made: %w", err)
	}
	for i, e := range r.Events {
		if err := e.wellFormed(); err != nil {
			return fmt.Errorf("events[%d]: %w", i, err)
		}
	}
	for i, o := range r.Outputs {
		if err := o.wellFormed(); err != nil {
			return fmt.Errorf("outputs[%d]: %w", i, err)
		}
	}
	return nil
}

// wellFormed is that of Receipt for an event.
func (v RecordedEvent) wellFormed() error {
	_, err := v.entry()
	switch {
	case err != nil:
		return err
	case v.Revision == 0 || v.Position.IsZero():
		return errors.New("revision or position is missing or 0")
	case !hexDigest.MatchString(v.SHA256):
		return errors.New("sha256 is missing or no SHA-256")
	}
	return nil
}

// wellFormed is that of Receipt for an output.
func (o NamedOutput) wellFormed() error {
	switch o.State {
	case Kept, Pruned, Unreachable, Missing:
	default:
		return fmt.Errorf("state %.40q is not kept, pruned, unreachable or missing", o.State)
	}
	if o.Ref == (domain.Ref{}) || !hexDigest.MatchString(o.SHA256) {
		return errors.New("ref or sha256 is missing or has no valid value")
	}
	return nil
}

// noTreeHead is the tree_head of this version.
var noTreeHead = jsontext.Value("null")
