package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner/plugins/mcp/transport"
)

// CallAction is the permission action of every call of a tool of an MCP server. Its
// resource is "SERVER_TOOL sha256:DIGEST", with the first 12 digits of the digest of the
// definition, so that a saved approval holds for this definition only.
const CallAction = "mcp"

// A remoteTool is one definition of a tool of a server. It is safe for concurrent use.
type remoteTool struct {
	server     *ToolServer
	name       domain.Name
	definition toolDefinition
	digest     string
	idempotent bool
	tool       domain.Tool
}

// rawInput is the codec of the arguments, which are sent as they are.
type rawInput struct{ schema json.RawMessage }

// Schema returns the input schema.
func (c rawInput) Schema() json.RawMessage { return c.schema }

// Decode returns a copy of the document.
func (rawInput) Decode(d json.RawMessage) (json.RawMessage, error) { return bytes.Clone(d), nil }

// Encode returns the document.
func (rawInput) Encode(v json.RawMessage) (json.RawMessage, error) { return v, nil }

// make returns the domain.Tool. It returns domain.ErrBadSchema for a schema that does not
// compile.
func (t *remoteTool) make() (domain.Tool, error) {
	d := t.definition
	description := d.Description
	if description == "" {
		description = d.Title
	}
	if description == "" {
		description = fmt.Sprintf("The tool %s of the MCP server %s.", d.Tool, t.server.config.Name)
	}
	spec := domain.Spec[json.RawMessage, callOutput]{
		Description: description, Input: rawInput{d.Input}, Output: outputCodec{d.Output}, Execute: t.execute,
		Idempotent: t.idempotent, AsksFirst: true, Lost: func(o callOutput) int64 { return o.dropped },
		Title:   func(in json.RawMessage) string { return t.server.clean.line(string(in), 150) },
		Present: presentStructured,
	}
	if d.Output == nil {
		spec.Output, spec.Present = outputCodec{json.RawMessage(blocksSchema)}, presentOutput
	}
	tool, err := domain.Make(spec)
	return domain.WithAction(CallAction, tool), err
}

// execute settles one call: it asks for the permission, waits for a free slot, and sends
// the call.
func (t *remoteTool) execute(ctx context.Context, in json.RawMessage, inv domain.Invocation) (callOutput, error) {
	s := t.server
	s.mu.Lock()
	at := s.mu.at
	s.mu.Unlock()
	resource := fmt.Sprintf("%s sha256:%s", t.name, t.digest[:shortDigest])
	err := at.Permission.Assert(ctx, inv, permission.Ask{
		Action: CallAction, Resources: []string{resource}, Save: []string{resource},
		Preview: func(context.Context) (domain.Preview, error) {
			return domain.NewPreview(domain.PreviewCall, s.shared.definitions.preview(t, in)), nil
		},
	})
	if err != nil {
		return callOutput{}, err
	}
	s.shared.definitions.allow(t.name, t.definition, t.digest)
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return callOutput{}, context.Cause(ctx)
	}
	c := s.live()
	out, err := t.callOn(ctx, c, in, inv)
	if errors.Is(err, errSessionExpired) {
		return t.afterExpiry(ctx, c, in, inv)
	}
	return out, err
}

// errSessionExpired reports that the server has forgotten the session of a call.
var errSessionExpired = errors.New("the session of the MCP server has expired")

// afterExpiry opens a new session and, if the tool is declared idempotent, sends the call
// again, once.
func (t *remoteTool) afterExpiry(ctx context.Context, expired *connection, in json.RawMessage, inv domain.Invocation) (callOutput, error) {
	c := t.server.start(expired, t.server.config.StartupTimeout)
	if !t.idempotent {
		return callOutput{}, domain.Fail("The session of the MCP server %s had expired (404), and a new one is being opened. "+
			"The call was not sent again, because its tool is not declared idempotent.", t.server.config.Name)
	}
	select {
	case <-c.ready:
	case <-ctx.Done():
		return callOutput{}, context.Cause(ctx)
	}
	out, err := t.callOn(ctx, c, in, inv)
	if errors.Is(err, errSessionExpired) {
		err = domain.Fail("The session of the MCP server %s expired twice.", t.server.config.Name)
	}
	return out, err
}

// callOn sends the call over a connection.
func (t *remoteTool) callOn(ctx context.Context, c *connection, in json.RawMessage, inv domain.Invocation) (callOutput, error) {
	if c == nil || !c.isUsable() {
		return callOutput{}, domain.Fail("The MCP server %s is not running. It is started again before the next turn. The call was not sent.", t.server.config.Name)
	}
	o := &remoteCall{tool: t, connection: c, inv: inv, reports: make(chan domain.Progress, 1)}
	return o.run(ctx, in)
}

// isUsable reports whether the server is initialized and connected.
func (c *connection) isUsable() bool {
	select {
	case <-c.ready:
		return !c.hasEnded()
	default:
		return false
	}
}

// errCallTimeout is the cause of a context that ends because the time of a call is over.
var errCallTimeout = errors.New("the time of the MCP call has run out")

// An remoteCall is a call while it runs. The goroutine of the call owns it; report and ask
// may be called by others.
type remoteCall struct {
	tool       *remoteTool
	connection *connection
	inv        domain.Invocation
	ctx        context.Context // ends with the call
	clock      *pausedClock
	reports    chan domain.Progress
	refusal    callRefusal
}

// The limits of a call.
const (
	// maxRounds is the number of times that a server may ask for input.
	maxRounds = 10
	// reportInterval is the shortest time between two reports of progress.
	reportInterval = 100 * time.Millisecond
	// maxFailureText is the size of the text of a failure in bytes.
	maxFailureText = 64 << 10
)

// report keeps a report of progress in place of an earlier one that was not passed on.
func (o *remoteCall) report(p domain.Progress) {
	for {
		select {
		case o.reports <- p:
			return
		default:
		}
		select {
		case <-o.reports:
		default:
		}
	}
}

// run sends the call, answers the requests for input, and returns the output.
func (o *remoteCall) run(ctx context.Context, in json.RawMessage) (callOutput, error) {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o.ctx = limited
	o.clock = startPausedClock(o.tool.server.config.Timeout, func() { cancel(errCallTimeout) })
	defer o.clock.stop()
	params := &sdk.CallToolParams{Name: o.tool.definition.Tool, Arguments: in}
	for round, busy := 1, 0; ; round++ {
		raw, sent, err := o.send(params)
		if err != nil {
			return callOutput{}, o.failed(ctx, err, sent)
		}
		result, kind, err := parseResult(raw)
		switch {
		case err != nil:
			return callOutput{}, o.fail("%s.", err)
		case kind == failedResult:
			return callOutput{}, o.toolFailure(result)
		case kind == completeResult:
			out, err := result.output(o.tool.server.clean, o.tool.definition.Output != nil)
			if err != nil {
				return callOutput{}, o.fail("%s.", err)
			}
			return out, nil
		case round == maxRounds:
			return callOutput{}, o.fail("it asked for input more than %d times.", maxRounds-1)
		}
		next := &sdk.CallToolParams{Name: params.Name, Arguments: in, RequestState: result.RequestState}
		if next.InputResponses, err = o.answerInputs(result.InputRequests); err != nil {
			return callOutput{}, o.failed(ctx, err, true)
		}
		if len(next.InputResponses) == 0 {
			if busy++; busy > 2 {
				return callOutput{}, o.fail("it is busy: it asked to send the call later three times.")
			}
			if !o.wait(time.Second) {
				return callOutput{}, o.failed(ctx, context.Cause(limited), true)
			}
		}
		params = next
	}
}

// wait waits for a time. It returns false if the call ends first.
func (o *remoteCall) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-o.ctx.Done():
		return false
	}
}

// send sends the call once and returns the result as the server wrote it. It passes
// progress on meanwhile. sent is set if the call, or a part of it, may have reached the
// server.
func (o *remoteCall) send(params *sdk.CallToolParams) (raw json.RawMessage, sent bool, err error) {
	c := o.connection
	token := c.newToken()
	params.SetProgressToken(token)
	x := c.link.Exchange(token)
	defer c.link.Forget(x)
	c.mu.Lock()
	c.mu.calls[token] = o
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.mu.calls, token)
	}()
	done := make(chan error, 1)
	go func() {
		_, err := c.session.CallTool(o.ctx, params)
		done <- err
	}()
	err = o.followReports(done)
	c.link.Abandon(x)
	return x.Result(), x.Sent(), err
}

// followReports passes progress on until the call is done. It returns the error of the
// call, also if the SDK does not return in time after the call has ended.
func (o *remoteCall) followReports(done <-chan error) error {
	next := time.NewTimer(0)
	defer next.Stop()
	ready := next.C
	var reports chan domain.Progress
	for {
		select {
		case <-ready:
			ready, reports = nil, o.reports
		case p := <-reports:
			o.inv.Report(p)
			next.Reset(reportInterval)
			ready, reports = next.C, nil
		case err := <-done:
			select {
			case p := <-o.reports:
				o.inv.Report(p)
			default:
			}
			return err
		}
	}
}

// fail returns a failure that names the server and the tool.
func (o *remoteCall) fail(format string, args ...any) error {
	s := o.tool.server
	if refusal := o.refusal.get(); refusal.err != nil {
		return refusal.err
	}
	text := fmt.Sprintf("The MCP server %s gave no result for the tool %s: %s", s.config.Name, o.tool.definition.Tool, fmt.Sprintf(format, args...))
	return domain.Fail("%s", s.clean.line(text, maxFailureText)+o.refusal.get().note)
}

// toolFailure returns the failure that the tool reports.
func (o *remoteCall) toolFailure(r rawResult) error {
	if refusal := o.refusal.get(); refusal.err != nil {
		return refusal.err
	}
	s := o.tool.server
	text := s.clean.line(r.failure(s.clean), maxFailureText)
	if text == "" {
		text = fmt.Sprintf("The MCP server %s reports that the tool %s failed, without a text.", s.config.Name, o.tool.definition.Tool)
	}
	return domain.Fail("%s", text+o.refusal.get().note)
}

// codeRejected is the code with which the SDK marks its own errors of a request.
const codeRejected = -32005

// failed returns the end of a call without a result: the cause of ctx if the call was
// interrupted, a defect if the server ended, and otherwise a failure.
func (o *remoteCall) failed(ctx context.Context, err error, sent bool) error {
	s, c := o.tool.server, o.connection
	rpc, isRPC := errors.AsType[*jsonrpc.Error](err)
	isRPC = isRPC && rpc.Code != codeRejected
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(context.Cause(o.ctx), errCallTimeout):
		return o.fail("it did not answer within %v%s, and the call was cancelled; the outcome of the call is unknown.", s.config.Timeout, c.dropped())
	case errors.Is(err, sdk.ErrSessionMissing):
		return errSessionExpired
	case isRPC && rpc.Code == sdk.CodeURLElicitationRequired:
		return o.fail("it asks that a person opens a web address first, which this client does not do: %s", s.clean.line(string(rpc.Data), 2000))
	case isRPC:
		return o.fail("it answered with the error %d: %s", rpc.Code, s.clean.line(rpc.Message, 16<<10))
	}
	outcome := "the outcome of the call is unknown"
	if !sent {
		outcome = "the call was not sent"
	}
	select {
	case <-c.link.Ended():
		return o.ended(err, outcome)
	default:
		return o.fail("%v; %s.", err, outcome)
	}
}

// ended returns the defect of a server that ended during a call. The model reads the
// reason and the outcome, the operator also the standard error of the process.
func (o *remoteCall) ended(err error, outcome string) error {
	s, c := o.tool.server, o.connection
	c.joinedClose()
	reason := c.link.Fault()
	if reason == nil || errors.Is(reason, transport.ErrLinkClosed) {
		reason = err // the SDK closes a connection that is broken
	}
	d := &domain.Defect{}
	if end, ok := errors.AsType[*transport.EndError](reason); ok {
		reason = errors.New(end.Reason)
		if end.ErrorOutput != "" {
			d.Stack = []byte("standard error of the server:\n" + s.clean.text(end.ErrorOutput))
		}
	}
	d.Value = s.clean.line(fmt.Sprintf("the MCP server %s ended during a call of %s: %v%s; %s", s.config.Name, o.tool.definition.Tool, reason, c.dropped(), outcome), 4000)
	return d
}
