package lsp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/settlement-ledger/ledger/builtins/process"
	"github.com/settlement-ledger/ledger/domain"
)

// A languageServer is one running server with its connection. It is safe for concurrent
// use. Its supervisor goroutine ends it; the pool owns that goroutine.
type languageServer struct {
	program   serverProgram
	language  *language
	folder    string // absolute path of the folder that the server was started for
	timeout   time.Duration
	piped     *process.PipedProcess
	codec     *frameCodec
	conn      *jsonrpc2.Conn
	lastID    atomic.Uint64 // of a request
	replied   atomic.Bool   // a request after initialize had a reply
	documents documentSet
	published publications

	// providers and encoding come from the reply to initialize, and do not change after.
	providers map[string]json.RawMessage
	encoding  positionEncoding

	leave  chan struct{} // closed by the pool to end the server
	failed struct {
		once   sync.Once
		reason string
		signal chan struct{} // closed once reason is set
	}
	initialized atomic.Bool
	ended       chan struct{} // closed when no process of the server is left and the pool knows it
	fault       error         // why the server ended; set before ended is closed
}

// launchServer starts the process and the connection of a server. The caller runs
// supervise, and initialize after that.
func launchServer(c Config, path string, program serverProgram, l *language, folder string) (*languageServer, error) {
	files := scanSources(context.Background(), l, folder)
	piped, err := process.StartPiped(process.Command{
		Program: path, Args: program.args, Dir: folder, Env: c.Environment, CaptureLimit: 16 << 10, GracePeriod: stopGrace,
	})
	if err != nil {
		return nil, domain.Fail("%s does not start: %s", program.name, rootCause(err))
	}
	s := &languageServer{
		program: program, language: l, folder: folder, timeout: c.RequestTimeout, piped: piped, codec: new(frameCodec),
		leave: make(chan struct{}), ended: make(chan struct{}),
	}
	s.failed.signal = make(chan struct{})
	s.documents.open, s.documents.files = map[string]*openDocument{}, files
	s.published.of, s.published.changed = map[string]*publication{}, make(chan struct{})
	stream := jsonrpc2.NewBufferedStream(pipeStream{piped.Stdin, piped.Stdout, c.RequestTimeout}, s.codec)
	// The library logs unknown replies and broken messages. Only the second are errors,
	// and the codec keeps them.
	s.conn = jsonrpc2.NewConn(context.Background(), stream, s, jsonrpc2.SetLogger(log.New(io.Discard, "", 0)))
	return s, nil
}

// The time that a server has to end.
const (
	stopGrace     = time.Second            // from SIGTERM to SIGKILL
	shutdownGrace = 2 * time.Second        // to reply to shutdown, and to exit after it
	exitGrace     = 300 * time.Millisecond // from the end of its output to its own exit
	cancelGrace   = 2 * time.Second        // to reply to a request that was cancelled after its timeout
)

// supervise waits until the server ends, fails, or is asked to end by leave or closing.
// It then ends every process of the server and sets the fault. It reports whether the
// server was asked to end. The caller closes ended after it.
func (s *languageServer) supervise(closing <-chan struct{}) (asked bool) {
	select {
	case <-s.leave:
		asked = true
	case <-closing:
		asked = true
	case <-s.failed.signal:
	case <-s.piped.Exited():
	case <-s.conn.DisconnectNotify():
		s.awaitExit(exitGrace)
	}
	if asked {
		s.shutDown()
		s.fail("was stopped")
	}
	exited := s.hasExited()
	s.conn.Close() // ErrClosed if the server closed it
	s.fault = s.describeEnd(s.piped.Stop(), exited)
	return asked
}

// shutDown asks the server to exit, and returns when it has exited or its time is over.
func (s *languageServer) shutDown() {
	if !s.initialized.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if s.conn.Call(ctx, "shutdown", nil, nil, jsonrpc2.PickID(s.nextID())) != nil || s.conn.Notify(ctx, "exit", nil) != nil {
		return
	}
	s.awaitExit(shutdownGrace)
}

// awaitExit waits for the exit of the process, but no longer than limit.
func (s *languageServer) awaitExit(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.piped.Exited():
	case <-timer.C:
	}
}

// hasExited reports whether the process has exited.
func (s *languageServer) hasExited() bool {
	select {
	case <-s.piped.Exited():
		return true
	default:
		return false
	}
}

// describeEnd returns the failure for the calls in progress when the server ends.
func (s *languageServer) describeEnd(result process.RunResult, exited bool) error {
	why := "closed its output"
	select {
	case <-s.failed.signal:
		why = s.failed.reason
	default:
		switch {
		case s.codec.fault() != nil:
			why = "broke the protocol: " + s.codec.fault().Error()
		case exited && result.Signal != 0:
			why = fmt.Sprintf("was ended by signal %d (%v)", result.Signal, result.Signal)
		case exited:
			why = fmt.Sprintf("ended with exit status %d", result.Exit)
		}
	}
	if last := lastLines(result.Output); last != "" {
		why += "; its last error output: " + last
	}
	return domain.Fail("%s %s", s.program.name, why)
}

// maxErrorOutput is the maximum number of bytes of a server's standard error in a failure.
const maxErrorOutput = 1000

// lastLines returns the end of a captured standard error as text.
func lastLines(output process.Capture) string {
	all := strings.TrimSpace(strings.ToValidUTF8(string(output.Head)+string(output.Tail), "\ufffd"))
	if len(all) > maxErrorOutput {
		all = "…" + strings.ToValidUTF8(all[len(all)-maxErrorOutput:], "")
	}
	return all
}

// fail makes the supervisor end the server. The error text is the name of the server
// followed by reason. Only the first reason counts.
func (s *languageServer) fail(reason string) {
	s.failed.once.Do(func() {
		s.failed.reason = reason
		close(s.failed.signal)
	})
}

// initialize performs the handshake. It returns a failure if the server ends or does not
// reply before the timeout; the server has failed then.
func (s *languageServer) initialize(timeout time.Duration) error {
	raw, err := s.call(context.Background(), timeout, "initialize", s.initializeParams())
	if err != nil {
		s.fail("did not start: " + clip(err.Error(), maxErrorOutput))
		<-s.ended
		return s.fault
	}
	var reply struct {
		Capabilities map[string]json.RawMessage `json:"capabilities"`
	}
	if err := json.Unmarshal(raw, &reply); err != nil {
		s.fail("returned an invalid reply to initialize")
		<-s.ended
		return s.fault
	}
	s.providers, s.encoding = reply.Capabilities, utf16Units
	var encoding positionEncoding
	if json.Unmarshal(reply.Capabilities["positionEncoding"], &encoding) == nil && (encoding == utf8Units || encoding == utf32Units) {
		s.encoding = encoding
	}
	if err := s.notify("initialized", struct{}{}); err != nil {
		return err
	}
	s.initialized.Store(true)
	return nil
}

// object is a JSON object of the protocol that is written and never read.
type object = map[string]any

// initializeParams returns the parameters of initialize. They offer UTF-8 positions first,
// and announce no capability that the package does not implement.
func (s *languageServer) initializeParams() object {
	dynamic := object{"dynamicRegistration": true}
	return object{
		"processId":             os.Getpid(),
		"clientInfo":            object{"name": "ledger"},
		"rootUri":               fileURI(s.folder),
		"workspaceFolders":      s.workspaceFolders(),
		"initializationOptions": s.program.options,
		"capabilities": object{
			"general":   object{"positionEncodings": []positionEncoding{utf8Units, utf16Units}},
			"workspace": object{"configuration": true, "workspaceFolders": true, "didChangeWatchedFiles": dynamic, "symbol": object{}},
			"textDocument": object{
				"synchronization":    object{},
				"definition":         object{"linkSupport": true},
				"implementation":     object{"linkSupport": true},
				"references":         object{},
				"hover":              object{"contentFormat": []string{"markdown", "plaintext"}},
				"documentSymbol":     object{"hierarchicalDocumentSymbolSupport": true},
				"callHierarchy":      object{},
				"diagnostic":         object{},
				"publishDiagnostics": object{"versionSupport": true},
			},
		},
	}
}

// workspaceFolders returns the one folder of the server in the form of the protocol.
func (s *languageServer) workspaceFolders() []object {
	return []object{{"uri": fileURI(s.folder), "name": filepath.Base(s.folder)}}
}

// supports reports whether the server announced a capability.
func (s *languageServer) supports(provider string) bool {
	value := string(s.providers[provider])
	return value != "" && value != "false" && value != "null"
}

// notify sends a notification. A server that does not read it fails.
func (s *languageServer) notify(method string, params any) error {
	if err := s.conn.Notify(context.Background(), method, params); err != nil {
		return s.writeFault(err)
	}
	return nil
}

// writeFault ends the server after a failed write, which may have left half a message in
// the pipe. It returns the failure of the server.
func (s *languageServer) writeFault(err error) error {
	if !errors.Is(err, jsonrpc2.ErrClosed) {
		s.failWrite(err)
	}
	<-s.ended
	return s.fault
}

// failWrite makes the supervisor end the server after a failed write. A server that closed
// its input because it exits has the reason of its exit, so failWrite gives it time for that.
func (s *languageServer) failWrite(err error) {
	if errors.Is(err, syscall.EPIPE) {
		s.awaitExit(exitGrace)
		if s.hasExited() {
			return
		}
	}
	s.fail("does not read its input: " + rootCause(err).Error())
}

// The error codes of the protocol after which a request can be sent again: the server
// changed its state while it worked.
const (
	codeContentModified = -32801
	codeServerCancelled = -32802
)

// retryInterval is the time before a request is sent again.
const retryInterval = 200 * time.Millisecond

// request sends a request and returns its result. It sends the request again if the
// server replies that its state has changed. It returns the cause of ctx, a failure if the
// server ends, does not reply within the timeout or replies with an error.
func (s *languageServer) request(ctx context.Context, method string, params any) (json.RawMessage, error) {
	deadline := time.Now().Add(s.timeout)
	for {
		raw, err := s.call(ctx, time.Until(deadline), method, params)
		reply, refused := errors.AsType[*jsonrpc2.Error](err)
		if err == nil || refused {
			s.replied.Store(true)
		}
		if !refused {
			return raw, err
		}
		again := reply.Code == codeContentModified || reply.Code == codeServerCancelled
		if !again || time.Until(deadline) < retryInterval {
			return nil, domain.Fail("%s refused %s: %s", s.program.name, method, clip(reply.Message, maxErrorOutput))
		}
		timer := time.NewTimer(retryInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// nextID returns a new ID. Every request picks its ID here, because the IDs that the
// library would choose are not disjoint from these.
func (s *languageServer) nextID() jsonrpc2.ID { return jsonrpc2.ID{Num: s.lastID.Add(1)} }

// call sends a request once and returns its result, or the *jsonrpc2.Error of the server.
// If ctx ends first, call cancels the request at the server and returns the cause of ctx.
// After the timeout it cancels the request and returns a failure. A server that does not
// reply to the cancellation either is ended.
func (s *languageServer) call(ctx context.Context, timeout time.Duration, method string, params any) (json.RawMessage, error) {
	id := s.nextID()
	waiter, err := s.conn.DispatchCall(ctx, method, params, jsonrpc2.PickID(id))
	if err != nil {
		return nil, s.writeFault(err)
	}
	timed, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var raw json.RawMessage
	err = waiter.Wait(timed, &raw)
	_, refused := errors.AsType[*jsonrpc2.Error](err)
	switch {
	case err == nil || refused:
		return raw, err
	case errors.Is(err, jsonrpc2.ErrClosed):
		<-s.ended
		return nil, s.fault
	}
	if err := s.notify("$/cancelRequest", object{"id": id}); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	late := domain.Fail("%s did not reply to %s within %v", s.program.name, method, timeout.Round(time.Millisecond))
	grace, cancelWait := context.WithTimeout(context.Background(), cancelGrace)
	defer cancelWait()
	if err := waiter.Wait(grace, nil); errors.Is(err, context.DeadlineExceeded) {
		s.fail(fmt.Sprintf("did not reply to %s within %v, nor to its cancellation", method, timeout.Round(time.Millisecond)))
		<-s.ended
		return nil, s.fault
	}
	return nil, late
}

// rootCause returns the innermost error, whose text repeats no path.
func rootCause(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}
