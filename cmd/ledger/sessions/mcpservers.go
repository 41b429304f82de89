package sessions

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/runner/engine"
	"github.com/settlement-ledger/ledger/runner/plugins/mcp"
)

// userServersFile is the name of the user's file of MCP servers, in the configuration
// folder.
const userServersFile = "mcp.json"

// addMCPServers adds the plugins of the MCP servers to c: those of the user's file and
// those of the project at root. It prints a warning for each entry that cannot be used.
func (l *Launcher) addMCPServers(s Setup, c *engine.WorkspaceConfig, root string) {
	stateFolder := s.StateFolder
	if stateFolder != "" {
		stateFolder = filepath.Join(stateFolder, "mcp")
	}
	config := mcp.LoadConfig{Workspace: root, StateFolder: stateFolder, Environment: os.Environ(), Reserved: builtinNames}
	if s.ConfigFolder != "" {
		config.UserFile = filepath.Join(s.ConfigFolder, userServersFile)
	}
	servers, refused := mcp.Load(config)
	for _, f := range refused {
		fmt.Fprintf(l.Err, "warning: MCP server not used: %s\n", render.OneLine(f.Error(), 400))
	}
	c.Plugins = append(c.Plugins, servers...)
}
