package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/models"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/sessions"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
	"github.com/settlement-ledger/ledger/runner/providers/script"
)

// errDifferent is returned if the sessions of the wire formats have other calls or
// outcomes.
var errDifferent = errors.New("the sessions of the wire formats differ")

// liveModel is the name of the model of the servers, without its provider.
const liveModel = "trajectory"

// A wireFormat is a format in which a provider speaks to a server, with a server of this
// process that speaks it.
type wireFormat struct {
	title    string
	column   string // the head of its column in the comparison
	provider string // the name of the provider in package models
	api      string // the format of a provider that has several
	start    func(func(providerstest.ModelRequest) providerstest.ModelAnswer) *providerstest.ModelServer
	stream   func(recordedReply) []string // a reply as the events of a stream
}

// A recordedReply is a reply of a trajectory.
type recordedReply struct {
	text  string
	calls []domain.Call
}

// wireFormats are the formats of --live, in the order in which they run.
var wireFormats = []wireFormat{
	{"Anthropic Messages", "MESSAGES", "anthropic", "", providerstest.NewAnthropicServer, func(r recordedReply) []string {
		reply := providerstest.AnthropicReply{Text: r.text}
		for _, c := range r.calls {
			reply.Calls = append(reply.Calls, providerstest.AnthropicCall{ID: string(c.ID), Name: c.Name, Input: string(c.Input)})
		}
		return providerstest.AnthropicStream(liveModel, reply)
	}},
	{"OpenAI Chat Completions", "CHAT", "openai", "chat", providerstest.NewOpenAIServer, func(r recordedReply) []string {
		return providerstest.OpenAIChatStream(liveModel, r.openAI())
	}},
	{"OpenAI Responses", "RESPONSES", "openai", "responses", providerstest.NewOpenAIServer, func(r recordedReply) []string {
		return providerstest.OpenAIResponsesStream(liveModel, r.openAI())
	}},
}

// openAI returns the reply in the form of both formats of OpenAI.
func (r recordedReply) openAI() providerstest.OpenAIReply {
	reply := providerstest.OpenAIReply{Text: r.text}
	for _, c := range r.calls {
		reply.Calls = append(reply.Calls, providerstest.OpenAICall{ID: string(c.ID), Name: c.Name, Arguments: string(c.Input)})
	}
	return reply
}

// A liveSession is the session of one wire format.
type liveSession struct {
	wireFormat
	session domain.SessionID
}

// fixTestLive runs the first trajectory once for each wire format, each in a new
// workspace.
func (d *demonstration) fixTestLive(ctx context.Context) error {
	for i, format := range wireFormats {
		if i > 0 {
			d.Line("")
			if err := errors.Join(os.RemoveAll(d.workspace), d.unpack()); err != nil {
				return err
			}
		}
		d.Line("%s", d.Styled(render.Bold, "An agent fixes a failing test: "+format.title))
		d.Line("The tools and the client of the provider are real; a server of this process streams the recorded replies.")
		err := d.With(ctx, d.OpenOrCreate, func(p *sessions.ActiveProcess) error {
			session, err := d.runFormat(ctx, p, format)
			if err != nil {
				return err
			}
			d.live = append(d.live, liveSession{format, session})
			return d.audit(ctx, p, session)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", format.title, err)
		}
	}
	return nil
}

// runFormat runs the trajectory in a new session, through a provider of one wire format and
// a server of this process.
func (d *demonstration) runFormat(ctx context.Context, p *sessions.ActiveProcess, format wireFormat) (domain.SessionID, error) {
	replies, err := d.trajectory("trajectory.json")
	if err != nil {
		return domain.SessionID{}, err
	}
	streams, err := streamsOf(ctx, replies, format)
	if err != nil {
		return domain.SessionID{}, err
	}
	server := format.start(func(r providerstest.ModelRequest) providerstest.ModelAnswer {
		return providerstest.ModelAnswer{Chunks: streams[min(r.Number, len(streams)-1)]}
	})
	defer server.Close()
	model := format.provider + "/" + liveModel
	provider, err := models.New(models.Config{
		Model: model, BaseURL: server.URL(), API: format.api, Getenv: func(string) string { return "" },
	})
	if err != nil {
		return domain.SessionID{}, err
	}
	begun := time.Now()
	session, err := d.runAgent(ctx, p, replies, provider, model)
	if faults := server.Faults(); err == nil && len(faults) > 0 {
		err = fmt.Errorf("the server refused a request: %s", faults[0])
	}
	if err == nil {
		d.Line("%s in %s, each answered with a stream.", render.Count(len(server.Requests()), "request"), render.Duration(time.Since(begun)))
	}
	return session, err
}

// streamsOf returns the replies of a trajectory as the streams of a wire format.
func streamsOf(ctx context.Context, replies *script.Script, format wireFormat) (streams [][]string, err error) {
	session := &conversation.State{}
	for range replies.Len() {
		var reply recordedReply
		for part, err := range replies.Reply(ctx, runner.Turn{Conversation: session}) {
			if err != nil {
				return nil, err
			}
			switch part := part.(type) {
			case runner.TextPart:
				reply.text += string(part)
			case runner.CallPart:
				reply.calls = append(reply.calls, domain.Call(part))
			}
		}
		streams = append(streams, format.stream(reply))
		session.Replies++
	}
	return streams, nil
}

// A comparedCall is what a call must have in common in the sessions of all formats.
type comparedCall struct {
	id          domain.CallID
	tool, input string
	outcome     string // as it is printed
}

// compareLive prints the outcome of each call of the sessions of all formats, one beside
// the other. It returns errDifferent if the calls or the outcomes differ.
func (d *demonstration) compareLive(ctx context.Context) error {
	d.Line("\n%s", d.Styled(render.Bold, "The sessions compared"))
	all := make([][]comparedCall, len(d.live))
	err := d.Read(ctx, func(s *stores.Store) error {
		state, err := foldCalls(ctx, s)
		if err != nil {
			return err
		}
		for _, c := range state.Calls() {
			i := slices.IndexFunc(d.live, func(l liveSession) bool { return l.session == c.Session })
			if i < 0 {
				continue
			}
			call := comparedCall{c.ID, c.Tool, string(c.Input), d.Outcome(render.OutcomeOf(c))}
			all[i] = append(all[i], call)
		}
		return nil
	})
	if err != nil {
		return err
	}
	table := render.Table{Head: []string{">", "TOOL"}}
	for _, l := range d.live {
		table.Head = append(table.Head, l.column)
	}
	for n, call := range all[0] {
		row := []string{strconv.Itoa(n + 1), call.tool}
		for _, own := range all {
			shown := ""
			if n < len(own) {
				shown = own[n].outcome
			}
			row = append(row, shown)
		}
		table.Add(row...)
	}
	d.Table(table)
	for i, own := range all {
		if !slices.Equal(own, all[0]) {
			return fmt.Errorf("%w: %s and %s", errDifferent, d.live[0].title, d.live[i].title)
		}
	}
	d.Line("All three sessions have the same %s, with the same inputs and outcomes.", render.Count(len(all[0]), "call"))
	return nil
}
