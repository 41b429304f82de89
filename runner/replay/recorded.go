package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// unknownSchema is the schema of a tool whose definition is not on record.
var unknownSchema = json.RawMessage("{}")

// tool returns the tool of a recorded definition, whose calls end as on the tape.
func (p *tapeProvider) tool(t events.RegisteredTool) (domain.Tool, error) {
	s := domain.RecordedSpec{
		Description: cmp.Or(t.Description, "The definition of this tool is not on record."), Input: t.Input, Output: t.Output, Action: t.Action,
		Idempotent: t.Idempotent, AsksFirst: t.AsksFirst, Available: t.Available,
		Refuses: func(json.RawMessage) string { return p.refusalAtCursor(t.Name) },
		Title:   func(json.RawMessage) string { return p.titleAtCursor() },
		Execute: p.execute,
	}
	if len(s.Input) == 0 {
		s.Input = unknownSchema
	}
	if len(s.Output) == 0 {
		s.Output = unknownSchema
	}
	for n := range p.tape.turns {
		for _, described := range p.tape.turn(n + 1).Described {
			if described.Name == t.Name {
				s.DescribeTurn = func(domain.TurnFacts) string { return p.description(t.Name) }
			}
		}
	}
	tool, err := domain.MakeRecorded(s)
	if err != nil {
		return tool, fmt.Errorf("make tool %s: %w", t.Name, err)
	}
	return tool, nil
}

// description returns the description that the next turn on the tape has of a tool, or "".
func (p *tapeProvider) description(name domain.Name) string {
	for _, described := range p.tape.turn(p.lockedNextTurn()).Described {
		if described.Name == name {
			return p.tape.texts[described.Text]
		}
	}
	return ""
}

// refusalAtCursor returns the text with which the tool itself refused the input of the call
// at the cursor, or "".
func (p *tapeProvider) refusalAtCursor(tool domain.Name) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cursor == len(p.tape.entries) {
		return ""
	}
	end, ok := p.tape.entries[p.cursor].Event.(events.CallSettled)
	derived := strings.HasPrefix(end.Text, "Invalid tool input: ") && strings.HasSuffix(end.Text, fmt.Sprintf(" fits the schema of %s.", end.Tool))
	if !ok || end.Outcome != domain.InvalidInput || end.Tool != string(tool) || derived && !p.tape.imported {
		return ""
	}
	return cmp.Or(end.Text, "Invalid tool input")
}

// titleAtCursor returns the title of the call that starts at the cursor, or "".
func (p *tapeProvider) titleAtCursor() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cursor == len(p.tape.entries) {
		return ""
	}
	start, _ := p.tape.entries[p.cursor].Event.(events.CallStarted)
	return start.Title
}

// execute ends a call as on the tape.
func (p *tapeProvider) execute(ctx context.Context, _ json.RawMessage, inv domain.Invocation) (domain.RecordedOutput, error) {
	end, ok, err := p.playNotes(ctx, inv, false)
	switch {
	case err != nil:
		return domain.RecordedOutput{}, err
	case !ok:
		return domain.RecordedOutput{}, domain.Fail("The tape has no result of this call.")
	}
	if end.Progress != nil {
		inv.Report(*end.Progress)
	}
	return p.result(ctx, end)
}

// result returns the output or the error of the tool for a recorded end.
func (p *tapeProvider) result(ctx context.Context, end events.CallSettled) (domain.RecordedOutput, error) {
	message := strings.TrimPrefix(end.Text, "Tool execution failed: ")
	switch end.Outcome {
	case domain.Succeeded:
		return p.output(ctx, end)
	case domain.Failed:
		text, err := p.whole(ctx, end, end.Text)
		return domain.RecordedOutput{}, cmp.Or(err, domain.Fail("%s", text))
	case domain.DeniedByRule, domain.DeclinedByUser:
		return domain.RecordedOutput{}, refusal(end)
	case domain.Interrupted, domain.Lost:
		return domain.RecordedOutput{}, cmp.Or(context.Cause(ctx), domain.Fail("%s", end.Text))
	case domain.InvalidOutput:
		text, err := p.whole(ctx, end, strings.TrimPrefix(end.Text, "Tool returned an invalid value for its output schema: "))
		return domain.RecordedOutput{}, cmp.Or[error](err, invalidOutput(text))
	case domain.Defective:
		if stack, ok := strings.CutPrefix(end.Detail, message+"\n"); ok {
			return domain.RecordedOutput{}, &domain.Defect{Value: message, Stack: []byte(stack)}
		}
		return domain.RecordedOutput{}, errors.New(message)
	case domain.RetentionFailed, domain.MediaTooLarge:
		return domain.RecordedOutput{}, errors.New(message)
	}
	return domain.RecordedOutput{}, domain.Fail("The tool did not run when this call was recorded: %s", end.Text)
}

// An invalidOutput is the recorded text about an output that did not fit its schema.
type invalidOutput string

func (i invalidOutput) Error() string        { return string(i) }
func (i invalidOutput) Is(target error) bool { return target == domain.ErrInvalidOutput }

// output returns the output of a call that succeeded. It reads the parts that are kept
// whole.
func (p *tapeProvider) output(ctx context.Context, end events.CallSettled) (domain.RecordedOutput, error) {
	out := domain.RecordedOutput{Structured: end.Structured, Content: end.Content, Lost: end.Lost, Files: end.Files}
	for _, r := range end.Retained {
		data, err := p.kept(ctx, r)
		if errors.Is(err, ErrOutputGone) {
			continue // the comparison reports it
		}
		if err != nil {
			return out, err
		}
		switch r.Ref.Channel() {
		case domain.TextChannel:
			text := withoutNotice(string(data), end.Lost)
			content := domain.Contents{domain.Text(text)}
			for _, m := range end.Content.Media() {
				content = append(content, m)
			}
			out.Content = content
		case domain.StructuredChannel:
			var compact bytes.Buffer
			if err := json.Compact(&compact, data); err != nil {
				return out, fmt.Errorf("read %s: %w", r.Ref, err)
			}
			out.Structured = compact.Bytes()
			if strings.Contains(end.Content.Text(), r.Ref.String()) {
				out.Content = nil // it is the preview of the structured value
			}
		}
	}
	return out, nil
}

// withoutNotice returns a kept text without the line that says how many bytes were lost.
func withoutNotice(text string, lost int64) string {
	if lost <= 0 {
		return text
	}
	return strings.TrimPrefix(text, fmt.Sprintf("[%d bytes of this output were lost and are kept nowhere]\n", lost))
}

// whole returns the whole text of a call that did not succeed.
func (p *tapeProvider) whole(ctx context.Context, end events.CallSettled, text string) (string, error) {
	for _, r := range end.Retained {
		if r.Ref.Channel() != domain.TextChannel {
			continue
		}
		data, err := p.kept(ctx, r)
		if errors.Is(err, ErrOutputGone) {
			return text, nil
		}
		if err != nil {
			return "", err
		}
		whole := string(data)
		if end.Outcome == domain.InvalidOutput {
			whole = strings.TrimPrefix(whole, "Tool returned an invalid value for its output schema: ")
		}
		return whole, nil
	}
	return text, nil
}

// kept returns a kept output of the recording.
func (p *tapeProvider) kept(ctx context.Context, r domain.Retained) ([]byte, error) {
	if p.config.Source == nil {
		return nil, ErrOutputGone
	}
	f, err := p.config.Source(context.WithoutCancel(ctx), r.Ref)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.Ref, err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.Ref, err)
	}
	return data, nil
}
