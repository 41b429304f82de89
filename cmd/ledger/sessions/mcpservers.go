package sessions

import (
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/runner/engine"
	"github.com/settlement-ledger/ledger/runner/plugins/mcp"
)

// userServersFile is the name of the user's file of MCP servers, in the configuration
// folder.
const userServersFile = "mcp.json"

// addMCPServers adds the plugins of the MCP servers to c: those of the user's file and
// those of the project at root.
func (s Setup) addMCPServers(c *engine.WorkspaceConfig, root string) {
	stateFolder := s.StateFolder
	if stateFolder != "" {
		stateFolder = filepath.Join(stateFolder, "mcp")
	}
	config := mcp.LoadConfig{Workspace: root, StateFolder: stateFolder, Environment: os.Environ(), Reserved: builtinNames}
	if s.ConfigFolder != "" {
		config.UserFile = filepath.Join(s.ConfigFolder, userServersFile)
	}
	servers, _ := mcp.Load(config) // a plugin records the refused entries, and the progress prints them
	c.Plugins = append(c.Plugins, servers...)
}
