package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// ErrLinkClosed is the fault of a Link that was closed by its owner.
var ErrLinkClosed = errors.New("the connection to the MCP server was closed")

// The limits of a Link.
const (
	// MaxMessage is the size of one message in bytes.
	MaxMessage = 16 << 20
	// MaxNoise is the number of lines in a row that are no messages.
	MaxNoise = 1000
	// discoverTime is how long the answer to server/discover may take. An old server may
	// ignore this request; the SDK then initializes the older protocol.
	discoverTime = 3 * time.Second
	// maxQuestions is the number of questions of a server that are open at once.
	maxQuestions = 4
)

// Handlers receive what a server sends by itself. Every field is required.
type Handlers struct {
	// Elicit answers a request elicitation/create with a result, or with an error for the
	// server. It may block until its context ends.
	Elicit func(ctx context.Context, params json.RawMessage) (any, error)
	// Roots returns the result of roots/list.
	Roots func() any
	// Progress receives the parameters of a progress notification.
	Progress func(params json.RawMessage)
	// ListChanged is called when the list of tools has changed.
	ListChanged func()
}

// Counts are the dropped parts of what a server sent.
type Counts struct {
	// Noise are lines that are no messages, Foreign answers without an open request, and
	// Ignored notifications and requests that this client does not serve.
	Noise, Foreign, Ignored int64
}

// An Exchange follows one request by the progress token in its parameters.
type Exchange struct {
	token string
	mu    struct {
		sync.Mutex
		sent   bool
		result json.RawMessage
	}
}

// Sent reports whether the request, or a part of it, may have reached the server.
func (x *Exchange) Sent() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.sent
}

// Result returns the result as the server wrote it. Nil: there is none.
func (x *Exchange) Result() json.RawMessage {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.result
}

// A carrier moves the messages of one connection.
type carrier interface {
	sdk.Connection
	// initialized is called once the server has initialized the older protocol of the
	// given version.
	initialized(version string, receive func(jsonrpc.Message))
	// end describes an ended connection. It is called after Close.
	end(reason error) error
	// noise returns the number of skipped lines.
	noise() int64
}

// A Link is a connection to a server. It implements the Transport and the Connection of
// the SDK, for one use. The owner calls Close.
type Link struct {
	open     func(context.Context) (carrier, error)
	handlers Handlers

	ctx    context.Context // ends with the Link
	cancel context.CancelCauseFunc
	joined sync.WaitGroup
	// incoming passes messages to the SDK.
	incoming  chan jsonrpc.Message
	questions chan struct{}
	flow      throttle
	ended     chan struct{}
	endOnce   sync.Once
	closeOnce sync.Once

	mu struct {
		sync.Mutex
		carrier   carrier
		fault     error
		open      map[jsonrpc.ID]*openRequest
		exchanges map[string]*Exchange
		version   string
		closed    bool
		counts    Counts
		// listening is set while the server can report a change of its list.
		listening bool
	}
}

// An openRequest is a request of the SDK without an answer.
type openRequest struct {
	method   string
	exchange *Exchange // may be nil
	timer    *time.Timer
}

// newLink returns a Link that opens its carrier in Connect.
func newLink(h Handlers, open func(context.Context) (carrier, error)) *Link {
	l := &Link{
		open: open, handlers: h, incoming: make(chan jsonrpc.Message), questions: make(chan struct{}, maxQuestions), ended: make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.mu.open, l.mu.exchanges = map[jsonrpc.ID]*openRequest{}, map[string]*Exchange{}
	return l
}

// Connect implements the Transport of the SDK. It is called once.
func (l *Link) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := l.open(l.ctx)
	if err != nil {
		l.finish(err)
		return nil, err
	}
	l.mu.Lock()
	closed := l.mu.closed
	if !closed {
		l.mu.carrier = c
		l.joined.Go(func() { l.pump(c) })
	}
	l.mu.Unlock()
	if closed {
		_ = c.Close()
		return nil, ErrLinkClosed
	}
	return l, nil
}

// Exchange follows the next request whose parameters have the progress token. The caller
// calls Forget.
func (l *Link) Exchange(token string) *Exchange {
	x := &Exchange{token: token}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.exchanges[token] = x
	return x
}

// Forget ends the following of a request.
func (l *Link) Forget(x *Exchange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.exchanges, x.token)
}

// Ended returns a channel that is closed when the connection has ended.
func (l *Link) Ended() <-chan struct{} { return l.ended }

// Counts returns the numbers of dropped messages so far.
func (l *Link) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := l.mu.counts
	if l.mu.carrier != nil {
		counts.Noise = l.mu.carrier.noise()
	}
	return counts
}

// Fault returns why the connection ended, and nil while it is open. After Close it has how
// a process ended, with its standard error.
func (l *Link) Fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.fault
}

// Close ends the connection and its process, and returns once both have ended. Every call
// returns nil.
func (l *Link) Close() error {
	l.closeOnce.Do(func() {
		l.mu.Lock()
		l.mu.closed = true
		c := l.mu.carrier
		l.mu.Unlock()
		l.finish(ErrLinkClosed)
		if c != nil {
			_ = c.Close()
		}
		l.joined.Wait()
		if c != nil {
			reason := c.end(l.Fault())
			l.mu.Lock()
			l.mu.fault = reason
			l.mu.Unlock()
		}
	})
	return nil
}

// finish ends the Link for a reason. Only the first reason counts.
func (l *Link) finish(reason error) {
	l.endOnce.Do(func() {
		l.mu.Lock()
		l.mu.fault = reason
		for _, r := range l.mu.open {
			r.stop()
		}
		l.mu.Unlock()
		l.cancel(reason)
		close(l.ended)
	})
}

// stop stops the timer of a request.
func (r *openRequest) stop() {
	if r.timer != nil {
		r.timer.Stop()
	}
}

// SessionID implements the Connection of the SDK.
func (l *Link) SessionID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.carrier.SessionID()
}

// Read implements the Connection of the SDK. It returns the next answer to a request of
// the SDK, and the fault of the Link after its end.
func (l *Link) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case msg := <-l.incoming:
		return msg, nil
	case <-l.ended:
		return nil, l.Fault()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// requestMeta is the part of parameters that identifies an exchange.
type requestMeta struct {
	Meta struct {
		ProgressToken json.RawMessage `json:"progressToken"`
	} `json:"_meta"`
}

// Write implements the Connection of the SDK.
func (l *Link) Write(ctx context.Context, msg jsonrpc.Message) error {
	request, isRequest := msg.(*jsonrpc.Request)
	if isRequest && request.IsCall() {
		l.register(request)
	}
	l.mu.Lock()
	c := l.mu.carrier
	l.mu.Unlock()
	if isRequest && request.Method == "server/discover" {
		return l.writeDiscover(ctx, c, request)
	}
	err := c.Write(ctx, msg)
	if errors.Is(err, errOutputEnded) {
		l.finish(err)
	}
	if isRequest && err != nil && request.IsCall() {
		l.settle(request.ID)
	}
	if isRequest && err == nil && request.Method == "notifications/initialized" {
		c.initialized(l.negotiated(), l.receiveUnasked)
	}
	return err
}

// writeDiscover writes server/discover. A server may not take the request in time. Then
// giveUp answers it, and the connection stays usable.
func (l *Link) writeDiscover(ctx context.Context, c carrier, request *jsonrpc.Request) error {
	limited, cancel := context.WithTimeout(ctx, discoverTime)
	defer cancel()
	err := c.Write(limited, request)
	if err != nil && (limited.Err() == nil || ctx.Err() != nil) {
		if errors.Is(err, errOutputEnded) {
			l.finish(err)
		}
		l.settle(request.ID)
		return err
	}
	return nil
}

// register opens a request of the SDK.
func (l *Link) register(r *jsonrpc.Request) {
	open := &openRequest{method: r.Method}
	var meta requestMeta
	if json.Unmarshal(r.Params, &meta) == nil {
		var token string
		if json.Unmarshal(meta.Meta.ProgressToken, &token) == nil {
			l.mu.Lock()
			open.exchange = l.mu.exchanges[token]
			l.mu.Unlock()
		}
	}
	if x := open.exchange; x != nil {
		x.mu.Lock()
		x.mu.sent = true
		x.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.open[r.ID] = open
	if r.Method == "subscriptions/listen" {
		l.mu.listening = true
	}
	if r.Method == "server/discover" {
		open.timer = time.AfterFunc(discoverTime, func() { l.giveUp(r.ID) })
	}
}

// giveUp answers a request in place of a silent server.
func (l *Link) giveUp(id jsonrpc.ID) {
	if l.settle(id) == nil {
		return
	}
	l.deliver(&jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "the server did not answer server/discover"}})
}

// settle closes a request of the SDK and returns it, or nil if it is not open.
func (l *Link) settle(id jsonrpc.ID) *openRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.mu.open[id]
	if r == nil {
		return nil
	}
	delete(l.mu.open, id)
	r.stop()
	if r.method == "subscriptions/listen" {
		l.mu.listening = false
	}
	return r
}

// Abandon drops the requests of an exchange, so that a late answer is dropped.
func (l *Link) Abandon(x *Exchange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, r := range l.mu.open {
		if r.exchange == x {
			delete(l.mu.open, id)
		}
	}
}

// Listens reports whether the server can report a change of its list of tools. Otherwise
// the list must be read again from time to time.
func (l *Link) Listens() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h, ok := l.mu.carrier.(interface{ streaming() bool }); ok && !l.mu.listening {
		return h.streaming()
	}
	return true
}

// deliver passes a message to the SDK.
func (l *Link) deliver(msg jsonrpc.Message) {
	select {
	case l.incoming <- msg:
	case <-l.ended:
	}
}

// pump reads the messages of a carrier until it ends.
func (l *Link) pump(c carrier) {
	for {
		msg, err := c.Read(l.ctx)
		if err != nil {
			l.finish(err)
			return
		}
		l.flow.wait(l.ctx)
		l.receive(msg)
	}
}

// receiveUnasked handles a message that came outside of the answer to a request. It drops
// answers.
func (l *Link) receiveUnasked(msg jsonrpc.Message) {
	l.flow.wait(l.ctx)
	if _, ok := msg.(*jsonrpc.Response); ok {
		l.count(func(c *Counts) { c.Foreign++ })
		return
	}
	l.receive(msg)
}

func (l *Link) count(add func(*Counts)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	add(&l.mu.counts)
}

// receive handles one message of the server.
func (l *Link) receive(msg jsonrpc.Message) {
	switch msg := msg.(type) {
	case *jsonrpc.Response:
		l.answerOf(msg)
	case *jsonrpc.Request:
		if msg.IsCall() {
			l.serve(msg)
		} else {
			l.notice(msg)
		}
	}
}

// answerOf passes the answer to an open request to the SDK. The result of an exchange is
// kept, and the SDK gets one that it can decode.
func (l *Link) answerOf(msg *jsonrpc.Response) {
	r := l.settle(msg.ID)
	if r == nil {
		l.count(func(c *Counts) { c.Foreign++ })
		return
	}
	if msg.Error == nil {
		switch r.method {
		case "initialize":
			l.noteVersion(msg.Result)
		case "tools/call":
			r.exchange.keep(msg.Result)
			msg.Result = json.RawMessage(`{"content":[]}`)
		case "tools/list":
			r.exchange.keep(msg.Result)
			msg.Result = decodableList(msg.Result)
		}
	}
	l.deliver(msg)
}

// keep stores the result of an exchange.
func (x *Exchange) keep(result json.RawMessage) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.result = result
	if x.mu.result == nil {
		x.mu.result = json.RawMessage("null")
	}
}

// negotiated returns the version of an initialized server.
func (l *Link) negotiated() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.version
}

// noteVersion remembers the version of an initialized server.
func (l *Link) noteVersion(result json.RawMessage) {
	var r struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if json.Unmarshal(result, &r) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.version = r.ProtocolVersion
}

// notice handles a notification.
func (l *Link) notice(msg *jsonrpc.Request) {
	switch msg.Method {
	case "notifications/progress":
		l.handlers.Progress(msg.Params)
	case "notifications/tools/list_changed":
		l.handlers.ListChanged()
	default:
		l.count(func(c *Counts) { c.Ignored++ })
	}
}

// serve answers a request of the server. Only questions are answered later.
func (l *Link) serve(msg *jsonrpc.Request) {
	switch msg.Method {
	case "ping":
		l.reply(msg.ID, struct{}{}, nil)
	case "roots/list":
		l.reply(msg.ID, l.handlers.Roots(), nil)
	case "elicitation/create":
		l.ask(msg)
	default:
		l.count(func(c *Counts) { c.Ignored++ })
		l.reply(msg.ID, nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("this client does not serve %.100q", msg.Method)})
	}
}

// ask answers a question of the server on a goroutine of its own.
func (l *Link) ask(msg *jsonrpc.Request) {
	select {
	case l.questions <- struct{}{}:
	default:
		l.reply(msg.ID, nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("more than %d questions are open", maxQuestions)})
		return
	}
	l.joined.Go(func() {
		defer func() { <-l.questions }()
		result, err := l.handlers.Elicit(l.ctx, msg.Params)
		l.reply(msg.ID, result, err)
	})
}

// reply sends the answer to a request of the server.
func (l *Link) reply(id jsonrpc.ID, result any, failure error) {
	response := &jsonrpc.Response{ID: id, Error: failure}
	if failure == nil {
		data, err := json.Marshal(result)
		if err != nil {
			response.Error = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the answer has no JSON form"}
		}
		response.Result = data
	}
	l.mu.Lock()
	c := l.mu.carrier
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(l.ctx, writeTime)
	defer cancel()
	if err := c.Write(ctx, response); err != nil && l.ctx.Err() == nil {
		l.count(func(n *Counts) { n.Ignored++ })
	}
}
