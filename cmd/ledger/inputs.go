package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/spf13/cobra"
)

// The limits of inputs in rows, in bytes. A row contains an input of at most inputLimit bytes
// whole. In a longer input each string is cut to stringLimit bytes. If the input is still too
// long, the row contains the first inputLimit bytes of its text as one JSON string.
const (
	inputLimit  = 4 << 10
	stringLimit = 256
)

// fullFlag adds --full to a command, which sets *full to show whole inputs.
func fullFlag(cmd *cobra.Command, full *bool) {
	cmd.Flags().BoolVar(full, "full", false, "show the whole input of each call")
}

// An askedCall is a call with its whole input.
type askedCall struct {
	calls.Call
	input json.RawMessage // as the model sent it; JSON null for a result without a call
}

// askedCalls returns calls with their whole inputs. The fold of the calls holds only short
// inputs; askedCalls reads the others from the log, in one pass over the stream of each session.
func askedCalls(ctx context.Context, s *stores.Store, all []calls.Call) ([]askedCall, error) {
	found := make([]askedCall, len(all))
	missing := map[domain.SessionID][]*askedCall{}
	for i, c := range all {
		found[i] = askedCall{c, render.RawJSON(c.Input)}
		if c.InputPreview != "" {
			missing[c.Session] = append(missing[c.Session], &found[i])
		}
	}
	for session, unread := range missing {
		if err := readInputs(ctx, s, session, unread); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// readInputs sets the inputs of some calls of a session. It reads the session's stream from the
// first reply that asked for one of them to the last.
func readInputs(ctx context.Context, s *stores.Store, session domain.SessionID, unread []*askedCall) error {
	at := map[events.Revision][]*askedCall{}
	first, last := unread[0].AskedAt.Revision, unread[0].AskedAt.Revision
	for _, c := range unread {
		at[c.AskedAt.Revision] = append(at[c.AskedAt.Revision], c)
		first, last = min(first, c.AskedAt.Revision), max(last, c.AskedAt.Revision)
	}
	for v, err := range s.Ledger.Read(ctx, events.SessionStream(session), first-1) {
		if err != nil {
			return err
		}
		if reply, ok := v.Event.(events.ReplyReceived); ok {
			for _, c := range at[v.Revision] {
				c.input = inputIn(reply, c.ID)
			}
		}
		if v.Revision >= last {
			break
		}
	}
	return nil
}

// inputIn returns the input of a call in the reply that asked for it, or nil if the reply has no
// such call. An input that is not JSON is returned as a JSON string.
func inputIn(reply events.ReplyReceived, id domain.CallID) json.RawMessage {
	for _, c := range reply.Calls {
		if c.ID == id {
			return render.RawJSON(c.Input)
		}
	}
	return nil
}

// shortened returns an input within the limits of rows, and whether it cut the input. The result
// is always valid JSON.
func shortened(input json.RawMessage) (json.RawMessage, bool) {
	if len(input) <= inputLimit {
		return input, false
	}
	// A model may send duplicate names and invalid UTF-8, which the log keeps.
	lenient := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	var short bytes.Buffer
	from, to := jsontext.NewDecoder(bytes.NewReader(input), lenient...), jsontext.NewEncoder(&short, lenient...)
	for to.OutputOffset() <= inputLimit {
		token, err := from.ReadToken()
		if errors.Is(err, io.EOF) {
			return bytes.TrimSpace(short.Bytes()), true
		}
		if err == nil && token.Kind() == '"' {
			token = jsontext.String(beginning(token.String(), stringLimit))
		}
		if err != nil || to.WriteToken(token) != nil {
			break
		}
	}
	text, err := render.EncodeJSON(beginning(string(input), inputLimit))
	must(err) // a string always encodes
	return text, true
}

// beginning returns text, or its first limit bytes and an ellipsis if it is longer. It drops a
// character that the limit splits.
func beginning(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// inputText returns an input for a cell of a table: its most informative field, or the whole
// input if full is set.
func inputText(input json.RawMessage, full bool) string {
	if string(input) == "null" {
		return ""
	}
	if full {
		return render.Printable(string(input))
	}
	return render.OneLine(gist(input), render.TextWidth)
}

// gists are the most informative fields of inputs, in order of preference.
var gists = []string{"command", "pattern", "file_path", "path", "notebook_path", "url", "query", "description", "prompt"}

// gist returns the first field of gists that the input has as a non-empty string, or else the
// whole input. It appends the searched path to a pattern.
func gist(input json.RawMessage) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(input, &fields) != nil {
		return render.Indented(input)
	}
	text := func(name string) (text string) {
		_ = json.Unmarshal(fields[name], &text) // a field that is no string does not count
		return text
	}
	for _, name := range gists {
		switch found := text(name); {
		case found == "":
		case name == "pattern":
			return strings.TrimSpace(found + " " + text("path"))
		default:
			return found
		}
	}
	return string(input)
}
