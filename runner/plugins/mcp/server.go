package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/builtins"
	"github.com/settlement-ledger/ledger/builtins/process"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner/plugins"
	"github.com/settlement-ledger/ledger/runner/plugins/mcp/mcpconfig"
	"github.com/settlement-ledger/ledger/runner/plugins/mcp/transport"
	"github.com/settlement-ledger/ledger/runner/secrets"
)

// The times of a server.
const (
	// refreshReserve is the part of a Refresh that is left for the log after waiting.
	refreshReserve = 2 * time.Second
	// retryWait is how long a Refresh waits for a server that is started again, and for a
	// list that is read again.
	retryWait = 2 * time.Second
	// endWait is how long a Refresh waits for the end of a server that did not start in
	// time.
	endWait = time.Second
	// minBackoff and maxBackoff are the pauses between starts that fail.
	minBackoff = time.Second
	maxBackoff = 5 * time.Minute
	// pollInterval is the time after which the list of a server is read again that cannot
	// report a change.
	pollInterval = 30 * time.Second
)

// A sharedState is what the servers of one location share.
type sharedState struct {
	names       *nameClaims
	definitions *definitionStore
}

// A ToolServer is the plugin of one MCP server. It implements plugins.Plugin,
// plugins.Refresher and plugins.Stopper.
type ToolServer struct {
	config   mcpconfig.ServerEntry
	shared   *sharedState
	clean    cleaner
	identity string
	// slots bounds the calls that run at once.
	slots chan struct{}

	// refreshing is held during Install and Refresh. The fields below belong to it.
	refreshing sync.Mutex
	scope      plugins.PluginScope
	// registered has the key of the registered definition of each tool.
	registered map[domain.Name]string
	// refusals and fault are the recorded reasons.
	refusals, fault string
	connectTool     bool
	failures        int
	notBefore       time.Time

	mu struct {
		sync.Mutex
		at       plugins.PluginLocation
		approved bool
		current  *connection
		stopped  bool
	}
}

// newServer returns the plugin of a server.
func newServer(c mcpconfig.ServerEntry, shared *sharedState) *ToolServer {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", c.Command, c.Args, c.URL))
	s := &ToolServer{
		config: c, shared: shared, clean: cleaner{secrets.New(c.Secrets...)}, identity: hex.EncodeToString(sum[:]),
		slots: make(chan struct{}, c.Concurrency), registered: map[domain.Name]string{},
	}
	s.mu.approved = !c.Foreign
	return s
}

// Name implements plugins.Plugin.
func (s *ToolServer) Name() string { return "mcp_" + s.config.Name }

// Install begins to start the server and returns at once. A server of a project is not
// started: Install registers a tool that asks for the permission to start it.
func (s *ToolServer) Install(ctx context.Context, scope plugins.PluginScope, at plugins.PluginLocation) error {
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	s.scope = scope
	s.mu.Lock()
	s.mu.at = at
	approved := s.mu.approved
	s.mu.Unlock()
	if !approved {
		return s.offerConnect(ctx, true)
	}
	s.start(nil, s.config.StartupTimeout)
	return nil
}

// start begins a connection in place of an earlier one, which may be nil, and closes that.
// If another connection has taken its place, or the server was stopped, start returns the
// current connection. A Refresh waits for a new one for at most the given time.
func (s *ToolServer) start(earlier *connection, wait time.Duration) *connection {
	s.mu.Lock()
	replace := !s.mu.stopped && s.mu.current == earlier
	if replace {
		s.mu.current = newConnection(s, s.mu.at, min(wait, s.config.StartupTimeout))
	}
	current := s.mu.current
	s.mu.Unlock()
	if replace && earlier != nil {
		earlier.close()
	}
	return current
}

// live returns the current connection. It may be nil.
func (s *ToolServer) live() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.current
}

// Stop implements plugins.Stopper. It ends the server and its process group.
func (s *ToolServer) Stop(context.Context) error {
	s.mu.Lock()
	s.mu.stopped = true
	c := s.mu.current
	s.mu.Unlock()
	if c != nil {
		c.close()
	}
	return nil
}

// Refresh implements plugins.Refresher. It waits for the first list of tools for at most
// the startup timeout since Install, starts a server again that has ended, and registers
// the tools that changed. It returns an error only if the scope fails. A server that does
// not come up is a recorded refusal.
func (s *ToolServer) Refresh(ctx context.Context) error {
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	s.mu.Lock()
	approved, stopped, c := s.mu.approved, s.mu.stopped, s.mu.current
	s.mu.Unlock()
	switch {
	case stopped:
		return nil
	case !approved:
		return s.offerConnect(ctx, true)
	case c == nil:
		c = s.start(nil, s.config.StartupTimeout)
	}
	if err := s.offerConnect(ctx, false); err != nil {
		return err
	}
	c, err := s.restart(ctx, c)
	if c == nil {
		return err // nil during the pause between starts
	}
	list, done, err := c.listed(ctx)
	if !done {
		return s.recordFault(ctx, c.stillStarting())
	}
	if err != nil {
		s.failed(c)
		return errors.Join(s.apply(ctx, &listing{}), s.recordFault(ctx, err))
	}
	s.failures = 0
	return errors.Join(s.recordFault(ctx, c.listFault()), s.apply(ctx, list))
}

// restart returns the connection to use: the given one, or a new one if that has ended and
// its end is on record. It returns nil during the pause after a failed start.
func (s *ToolServer) restart(ctx context.Context, c *connection) (*connection, error) {
	switch {
	case !c.hasEnded(), !c.counted && !c.wasListed():
		return c, nil // Refresh records why a start has failed
	case !c.counted:
		c.counted = true
		if err := s.recordFault(ctx, c.explain("it ended and is started again", errors.New("the connection was lost"))); err != nil {
			return nil, err
		}
	case time.Now().Before(s.notBefore):
		return nil, nil
	}
	return s.start(c, retryWait), nil
}

// failed sets the pause before the next start.
func (s *ToolServer) failed(c *connection) {
	c.close()
	if c.counted {
		return
	}
	c.counted = true
	pause := min(minBackoff<<min(s.failures, 20), maxBackoff)
	s.failures++
	s.notBefore = time.Now().Add(pause)
}

// recordFault records why the server cannot be used, once for each reason. Nil: it can.
func (s *ToolServer) recordFault(ctx context.Context, fault error) error {
	text, refused := "", map[string]error{}
	if fault != nil {
		text = s.clean.line(fault.Error(), 4000)
		refused["mcp server "+s.config.Name] = errors.New(text)
	}
	if text == s.fault {
		return nil
	}
	_, err := s.scope.Replace(ctx, "server", nil, refused)
	if err == nil {
		s.fault = text
	}
	return err
}

// apply makes the scope contain the tools of a list. The registration of an unchanged tool
// stays as it is.
func (s *ToolServer) apply(ctx context.Context, l *listing) error {
	listed := map[domain.Name]*remoteTool{}
	refused := map[string]error{}
	maps.Copy(refused, l.refused)
	for _, t := range l.tools {
		if err := s.shared.names.claim(t.name, s.config.Name); err != nil {
			refused[string(t.name)] = err
			continue
		}
		listed[t.name] = t
	}
	for _, name := range slices.Sorted(maps.Keys(s.registered)) {
		if listed[name] != nil {
			continue
		}
		if _, err := s.scope.Replace(ctx, toolPart+string(name), nil, nil); err != nil {
			return err
		}
		delete(s.registered, name)
		s.shared.names.release(name, s.config.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		t := listed[name]
		if s.registered[name] == t.digest {
			continue
		}
		if _, err := s.scope.Replace(ctx, toolPart+string(name), map[string]domain.Tool{string(name): t.tool}, nil); err != nil {
			return err
		}
		s.registered[name] = t.digest
	}
	return s.recordRefusals(ctx, refused)
}

// toolPart is the beginning of the names of the parts of the scope, one for each tool.
const toolPart = "tool "

// recordRefusals records the refused tools, once for each list of reasons.
func (s *ToolServer) recordRefusals(ctx context.Context, refused map[string]error) error {
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		fmt.Fprintf(&key, "%q %q\n", name, refused[name])
	}
	if key.String() == s.refusals {
		return nil
	}
	_, err := s.scope.Replace(ctx, "refused", nil, refused)
	if err == nil {
		s.refusals = key.String()
	}
	return err
}

// link returns the Link to the server at a location.
func (s *ToolServer) link(at plugins.PluginLocation, h transport.Handlers) (*transport.Link, error) {
	if s.config.URL != "" {
		return transport.NewHTTP(s.config.URL, s.config.Headers, h), nil
	}
	environ := append(builtins.FilterEnvironment(at.Environment), s.config.Env...)
	dir := at.Folder
	if s.config.Dir != "" {
		dir = s.config.Dir
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(at.Folder, dir)
		}
	}
	program, err := lookProgram(s.config.Command, dir, environ)
	if err != nil {
		return nil, err
	}
	start := at.Start
	if start == nil {
		start = process.StartPiped
	}
	return transport.NewProcess(process.Command{Program: program, Args: s.config.Args, Dir: dir, Env: environ}, start, h), nil
}

// lookProgram returns the path of a program: relative to dir if it has a slash, and
// otherwise from the absolute directories of PATH.
func lookProgram(program, dir string, environ []string) (string, error) {
	if strings.Contains(program, "/") {
		if !filepath.IsAbs(program) {
			program = filepath.Join(dir, program)
		}
		if isExecutable(program) {
			return program, nil
		}
		return "", fmt.Errorf("the command %s is no executable file", program)
	}
	for _, variable := range slices.Backward(environ) {
		list, ok := strings.CutPrefix(variable, "PATH=")
		if !ok {
			continue
		}
		for _, folder := range filepath.SplitList(list) {
			if file := filepath.Join(folder, program); filepath.IsAbs(folder) && isExecutable(file) {
				return file, nil
			}
		}
		break
	}
	return "", fmt.Errorf("the command %s is not in PATH", program)
}

// isExecutable reports whether a path leads to a regular executable file.
func isExecutable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
