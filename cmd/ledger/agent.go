package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner/agents"
)

// agentCommand returns the command group `ledger agent`, whose subcommands are ls and
// show.
func (a *app) agentCommand() *cobra.Command {
	return a.group("agent", "Agents: the roles that a session can run as", a.agentList(), a.agentShow())
}

// agentList returns the command `ledger agent ls`.
func (a *app) agentList() *cobra.Command {
	var workspace string
	cmd := &cobra.Command{
		Use: "ls", Short: "List the agents: name, mode, model, description, source",
		Long: `List the built-in agents and those of the files NAME.md in .ledger/agents of the
workspace and in agents of the ledger's configuration folder. A person chooses an
agent of the mode primary or all with ledger run --agent; the tool task chooses one of
the mode subagent or all. Files that cannot be used are listed below with the reason.
docs/agents.md describes the files.`,
		Example: "  ledger agent ls\n  ledger agent ls --workspace ./project -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			set, err := a.loadAgents(workspace)
			if err != nil {
				return err
			}
			return views.ListAgents(a.Printer, set)
		},
	}
	addWorkspace(cmd, &workspace)
	return cmd
}

// agentShow returns the command `ledger agent show`.
func (a *app) agentShow() *cobra.Command {
	var workspace string
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show one agent: description, limits, rules with their sources, prompt",
		Long: `Show one agent with its limits, its rules and its prompt. Each set of rules is
evaluated apart, and so are the configured rules (ledger run --rules): deny beats ask,
and ask beats allow. A file of a project that replaces an agent keeps its rules.`,
		Example: "  ledger agent show plan\n  ledger agent show reviewer --workspace ./project -o json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeAgents(&workspace, (*agents.Set).All),
		RunE: func(_ *cobra.Command, args []string) error {
			set, err := a.loadAgents(workspace)
			if err != nil {
				return err
			}
			agent, err := set.Agent(domain.AgentID(args[0]))
			if err != nil {
				return agentFault(err)
			}
			return views.ShowAgent(a.Printer, agent)
		},
	}
	addWorkspace(cmd, &workspace)
	return cmd
}

// addWorkspace adds the flag --workspace to a command of agents.
func addWorkspace(cmd *cobra.Command, workspace *string) {
	cmd.Flags().StringVar(workspace, "workspace", ".", "the folder whose .ledger/agents are read")
	must(cmd.MarkFlagDirname("workspace"))
}

// loadAgents returns the agents of a workspace and of the user. It returns an error if
// the workspace is not a folder.
func (a *app) loadAgents(workspace string) (*agents.Set, error) {
	if info, err := os.Stat(workspace); err != nil || !info.IsDir() {
		return nil, fault.WithHint(fmt.Errorf("--workspace: %s is not a folder that can be opened: %w", workspace, cmp.Or(err, fs.ErrInvalid)), "name a folder that exists")
	}
	return agents.Load(agents.LoadConfig{ConfigFolder: a.ConfigFolder(), ProjectFolder: workspace}), nil
}

// agentFault returns the fault of an error of agents.Set.Agent.
func agentFault(err error) error {
	if errors.Is(err, agents.ErrUnknownAgent) {
		return fault.NotFound("ledger agent ls lists the agents", "%w", err)
	}
	return fault.WithHint(err, "correct the file; ledger agent ls lists the files that are not valid")
}

// completeAgents returns a completion function for the name of an agent in the workspace
// that the flag names. list selects the agents.
func (a *app) completeAgents(workspace *string, list func(*agents.Set) []agents.Agent) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, typed string) (words []cobra.Completion, _ cobra.ShellCompDirective) {
		set, err := a.loadAgents(*workspace)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, agent := range list(set) {
			if strings.HasPrefix(string(agent.Name), typed) {
				words = append(words, cobra.CompletionWithDesc(string(agent.Name), agent.Description))
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
