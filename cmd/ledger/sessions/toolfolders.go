package sessions

import (
	"path/filepath"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner/engine"
	"github.com/settlement-ledger/ledger/runner/plugins"
	"github.com/settlement-ledger/ledger/runner/plugins/toolfiles"
)

// builtinNames are the names of the built-in tools. The tools in the folder of a user or
// of a project may not have these names, so that a cloned project does not replace read or
// bash.
var builtinNames = []string{
	"apply_patch", "bash", "batch", "codesearch", "edit", "glob", "grep", "invalid", "lsp", "plan_enter", "plan_exit", "question",
	"read", "skill", "task", "todoread", "todowrite", "webfetch", "websearch", "write",
}

// addToolFolders adds the plugins of the tool folders to c. The folder of the user is in
// the application layer, the folder of the project at root is in the layer of the
// location, and the folder of --tools is in the layer of each session.
func (s Setup) addToolFolders(c *engine.WorkspaceConfig, root string) error {
	if s.ConfigFolder != "" {
		user, err := toolfiles.New(toolfiles.Config{
			Name: "user-tools", Folder: filepath.Join(s.ConfigFolder, "tools"), Placement: domain.Application, Reserved: builtinNames,
		})
		if err != nil {
			return err
		}
		c.ApplicationPlugins = []plugins.Plugin{user}
	}
	project, err := toolfiles.New(toolfiles.Config{
		Name: "project-tools", Folder: filepath.Join(root, ".ledger", "tools"), Placement: domain.Location, Reserved: builtinNames,
	})
	if err != nil {
		return err
	}
	c.Plugins = []plugins.Plugin{project}
	if s.ToolFolder == "" {
		return nil
	}
	folder, err := filepath.Abs(s.ToolFolder)
	if err != nil {
		return err
	}
	session := toolfiles.Config{Name: "session-tools", Folder: folder, Placement: domain.PerSession}
	if _, err := toolfiles.New(session); err != nil {
		return err
	}
	c.SessionPlugins = func() []plugins.Plugin {
		p, _ := toolfiles.New(session) // New accepted the same configuration above
		return []plugins.Plugin{p}
	}
	return nil
}
