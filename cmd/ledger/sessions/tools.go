package sessions

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"strings"

	"github.com/settlement-ledger/ledger/builtins"
	"github.com/settlement-ledger/ledger/builtins/lsp"
	"github.com/settlement-ledger/ledger/builtins/sessiontools"
	"github.com/settlement-ledger/ledger/builtins/skills"
	"github.com/settlement-ledger/ledger/builtins/web"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// clientName is the client of the sessions that the command runs.
const clientName = "ledger"

// toolParts are the parts of an open workspace that its tools use.
type toolParts struct {
	*engine.Workspace
	root    *workspace.Root
	outputs builtins.OutputOpener
	version string // of this program
	// keepServers receives the language servers, which the caller closes.
	keepServers func(*lsp.Servers)
}

// tools makes the built-in tools of a workspace by name.
func (s Setup) tools(w toolParts) (registry.Tools, error) {
	all := registry.Tools{}
	for _, make := range []func() (map[string]domain.Tool, error){
		func() (map[string]domain.Tool, error) {
			return builtins.Tools(builtins.Config{
				Workspace: w.root, Permission: w.Gate, Outputs: w.outputs, Environment: s.Environment, FileVersions: w.FileVersions,
			})
		},
		func() (map[string]domain.Tool, error) {
			return sessiontools.Tools(sessiontools.Config{
				Session: w.Workspace, Permission: w.Gate, Subagents: s.subagents, PlanFile: planFile, Clients: []string{clientName},
			})
		},
		func() (map[string]domain.Tool, error) {
			skill, err := skills.Tool(skills.Config{Permission: w.Gate, Folders: skills.Folders{Config: s.ConfigFolder, Project: w.root.Path()}})
			return map[string]domain.Tool{"skill": skill}, err
		},
		func() (map[string]domain.Tool, error) { return s.lspTool(w) },
		func() (map[string]domain.Tool, error) { return s.webTools(w) },
	} {
		made, err := make()
		if err != nil {
			return nil, err
		}
		maps.Copy(all, made)
	}
	return all, nil
}

// lspTool makes the tool lsp and passes its language servers to w.keepServers.
func (s Setup) lspTool(w toolParts) (map[string]domain.Tool, error) {
	environment := s.Environment
	if environment == nil {
		environment = builtins.FilterEnvironment(os.Environ())
	}
	servers, err := lsp.New(lsp.Config{Workspace: w.root, Permission: w.Gate, Environment: environment})
	if err != nil {
		return nil, err
	}
	w.keepServers(servers)
	tool, err := servers.Tool()
	return map[string]domain.Tool{"lsp": tool}, err
}

// webTools makes the tools webfetch, websearch and codesearch. The searches use Exa if
// EXA_API_KEY is set, at EXA_BASE_URL if that is set too.
func (s Setup) webTools(w toolParts) (map[string]domain.Tool, error) {
	c := web.Config{Permission: w.Gate, UserAgent: "ledger/" + w.version}
	if s.Getenv != nil && s.Getenv("EXA_API_KEY") != "" {
		exa, err := web.NewExa(web.ExaConfig{Key: s.Getenv("EXA_API_KEY"), BaseURL: s.Getenv("EXA_BASE_URL")})
		if err != nil {
			return nil, fmt.Errorf("EXA_API_KEY, EXA_BASE_URL: %w", err)
		}
		c.Search = exa
	}
	return web.Tools(c)
}

// planFile returns the path, relative to the workspace, of the plan of a session.
func planFile(session domain.SessionID) string {
	return path.Join(".ledger", "plans", session.String()+".md")
}

// profile returns the profile of an agent. The system prompt ends with the instructions of
// the project.
func (s Setup) profile(name domain.AgentID) (runner.Profile, error) {
	a, err := s.Agents.Agent(name)
	if err != nil {
		return runner.Profile{}, fmt.Errorf("find agent: %w", err)
	}
	system := a.Prompt
	if s.instructions != "" {
		system = strings.TrimSpace(strings.TrimSpace(system) + "\n\n" + s.instructions)
	}
	return runner.Profile{Rules: a.RuleSets(), System: system, Model: a.Model, Tools: a.Tools, Steps: a.Steps}, nil
}

// subagents returns the agents that a task may choose.
func (s Setup) subagents() []sessiontools.AgentInfo {
	var all []sessiontools.AgentInfo
	for _, a := range s.Agents.Subagents() {
		all = append(all, sessiontools.AgentInfo{Name: a.Name, Description: a.Description})
	}
	return all
}

// has reports whether this machine has something that a tool needs: a program in PATH, or
// a variable in the environment of this process. An unknown kind of need is not met.
func (s Setup) has(need string) bool {
	kind, name, _ := strings.Cut(need, ":")
	switch kind {
	case "program":
		_, err := exec.LookPath(name)
		return err == nil
	case "env":
		return s.Getenv != nil && s.Getenv(name) != ""
	}
	return false
}
