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

// Of an input of at most inputLimit bytes rows have the whole. Of a longer one
// they have its strings up to stringLimit bytes; where it is long by the number of
// its parts, they have the beginning of its text as one string.
const (
	inputLimit  = 4 << 10
	stringLimit = 256
)

// fullFlag adds the flag that asks for whole inputs.
func fullFlag(cmd *cobra.Command, full *bool) {
	cmd.Flags().BoolVar(full, "full", false, "show the whole input of each call")
}

// An askedCall is a call with the input that it was asked with; nil where it was
// never asked.
type askedCall struct {
	calls.Call
	input json.RawMessage
}

// askedCalls returns calls with their whole inputs, which it reads from the streams of
// their sessions where the fold of the calls does not hold them.
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

// readInputs reads the inputs of some calls of a session.
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

// inputIn returns the input with which a reply asked for a call, as JSON; one that
// is no JSON is a string.
func inputIn(reply events.ReplyReceived, id domain.CallID) json.RawMessage {
	for _, c := range reply.Calls {
		if c.ID == id {
			return render.RawJSON(c.Input)
		}
	}
	return nil
}

// shortened returns an input as rows have it, and whether that is not all of it. It
// is JSON in any case.
func shortened(input json.RawMessage) (json.RawMessage, bool) {
	if len(input) <= inputLimit {
		return input, false
	}
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
	must(err) // a string always is JSON
	return text, true
}

// beginning returns a text of at most limit bytes as it is, and of a longer one
// its beginning, with an ellipsis.
func beginning(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// inputText returns an input for a cell of a table: the field that tells most, and
// in full the whole.
func inputText(input json.RawMessage, full bool) string {
	if string(input) == "null" {
		return ""
	}
	if full {
		return render.Printable(string(input))
	}
	return render.OneLine(gist(input), render.TextWidth)
}

// gists are the fields of an input that tell most, in order.
var gists = []string{"command", "pattern", "file_path", "path", "notebook_path", "url", "query", "description", "prompt"}

// gist returns the field that tells most of an input, a pattern with the path that
// it is looked for in, and the whole where it has no such field.
func gist(input json.RawMessage) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(input, &fields) != nil {
		return render.Indented(input)
	}
	text := func(name string) (text string) {
		_ = json.Unmarshal(fields[name], &text) // another type tells nothing
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
