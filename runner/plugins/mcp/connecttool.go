package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// ProjectAction is the permission action for the start of a server of a project. Its
// resource is "SERVER sha256:DIGEST", with the first 12 digits of the digest of the entry.
const ProjectAction = "project_mcp"

// connectSuffix ends the name of the tool that starts a server of a project.
const connectSuffix = "_connect"

// offerConnect registers the tool that starts a server of a project, or removes it.
func (s *ToolServer) offerConnect(ctx context.Context, offered bool) error {
	if s.connectTool == offered {
		return nil
	}
	name := domain.Name(s.config.Name + connectSuffix)
	tools := map[string]domain.Tool{}
	if offered {
		if err := s.shared.names.claim(name, s.config.Name); err != nil {
			return s.recordFault(ctx, err)
		}
		tool, err := s.makeConnectTool()
		if err != nil {
			return err
		}
		tools[string(name)] = tool
	}
	if _, err := s.scope.Replace(ctx, "connect", tools, nil); err != nil {
		return err
	}
	if !offered {
		s.shared.names.release(name, s.config.Name)
	}
	s.connectTool = offered
	return nil
}

// makeConnectTool returns the tool that starts the server.
func (s *ToolServer) makeConnectTool() (domain.Tool, error) {
	tool, err := domain.Make(domain.Spec[struct{}, string]{
		Description: fmt.Sprintf("Starts the MCP server %s, which this project configures in %s. A person is asked first. "+
			"Its tools, named %s_…, are offered from the next turn on.", s.config.Name, s.config.File, s.config.Name),
		Execute: s.connect, Idempotent: true, AsksFirst: true,
	})
	return domain.WithAction(ProjectAction, tool), err
}

// connect asks for the permission to start the server, starts it, and waits for its tools.
func (s *ToolServer) connect(ctx context.Context, _ struct{}, inv domain.Invocation) (string, error) {
	resource := fmt.Sprintf("%s sha256:%s", s.config.Name, s.config.Digest[:shortDigest])
	s.mu.Lock()
	at := s.mu.at
	s.mu.Unlock()
	err := at.Permission.Assert(ctx, inv, permission.Ask{
		Action: ProjectAction, Resources: []string{resource}, Save: []string{resource},
		Preview: permission.TextPreview(domain.PreviewCommand, s.describe()),
	})
	if err != nil {
		return "", err
	}
	c := s.approve()
	if c == nil {
		return "", domain.Fail("The MCP server %s was not started: the program is ending.", s.config.Name)
	}
	select {
	case <-c.ready:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return "", domain.Fail("The MCP server %s did not start: %s", s.config.Name, s.clean.line(c.mu.err.Error(), 4000))
	}
	var names []string
	for _, t := range c.mu.list.tools {
		names = append(names, string(t.name))
	}
	return fmt.Sprintf("The MCP server %s runs. From the next turn on it offers: %s", s.config.Name, strings.Join(names, ", ")), nil
}

// approve starts the server, once, and returns its connection. It returns nil after Stop.
func (s *ToolServer) approve() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.approved && !s.mu.stopped {
		s.mu.approved = true
		s.mu.current = newConnection(s, s.mu.at, s.config.StartupTimeout)
	}
	return s.mu.current
}

// describe returns the text that a person reads before a server of a project starts: the
// entry as it is written, without secrets.
func (s *ToolServer) describe() string {
	shown := s.config.Shown
	if clean, err := s.clean.json(json.RawMessage(shown)); err == nil {
		shown = string(clean)
	}
	words := append([]string{s.config.Command}, s.config.Args...)
	what := fmt.Sprintf("command %q", words)
	if s.config.URL != "" {
		what = "address " + s.config.URL
	}
	return fmt.Sprintf("start the MCP server %s of %s\n%s\n%s\n", s.config.Name, s.config.File, s.clean.text(what), shown)
}
