package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/runner/plugins"
	"github.com/settlement-ledger/ledger/runner/plugins/mcp/mcpconfig"
)

// ProjectFile is the name of the file in a workspace that configures servers.
const ProjectFile = ".mcp.json"

// A LoadConfig names the files with MCP servers. Workspace is required.
type LoadConfig struct {
	// Workspace is the absolute path of the folder of the location. Its servers, in
	// ProjectFile, start only after a person has agreed.
	Workspace string
	// UserFile is the path of the user's file. Empty: there is none.
	UserFile string
	// StateFolder is the folder that keeps the definitions of allowed tools, so that a
	// question can show what has changed. Empty: they are kept in memory.
	StateFolder string
	// Environment is the environment from which the files take variables, as KEY=VALUE.
	Environment []string
	// Reserved are names that no tool of a server may have.
	Reserved []string
}

// Load reads the files and returns a plugin for each server, and one more that records the
// refused entries. The plugins are for one location. A file that does not exist has no
// servers. A server of the user hides a server of the project with the same name, which is
// then refused. Load returns the refused entries for the program to show.
func Load(c LoadConfig) (servers []plugins.Plugin, refused []*mcpconfig.Fault) {
	shared := &sharedState{names: newNameClaims(c.Reserved), definitions: newDefinitionStore(c.StateFolder)}
	seen := map[string]string{}
	add := func(data []byte, from mcpconfig.FileOrigin, err error) {
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			refused = append(refused, &mcpconfig.Fault{File: from.File, Reason: err.Error()})
			return
		}
		list, faults := mcpconfig.Parse(data, from)
		refused = append(refused, faults...)
		for _, s := range list {
			if file, twice := seen[s.Name]; twice {
				refused = append(refused, &mcpconfig.Fault{File: s.File, Server: s.Name, Reason: "a server of this name is in " + file + ": rename one of them"})
				continue
			}
			seen[s.Name] = s.File
			servers = append(servers, newServer(s, shared))
		}
	}
	if c.UserFile != "" {
		data, err := readUserFile(c.UserFile)
		add(data, mcpconfig.FileOrigin{File: c.UserFile, Environment: c.Environment}, err)
	}
	data, err := readProjectFile(c.Workspace)
	add(data, mcpconfig.FileOrigin{File: filepath.Join(c.Workspace, ProjectFile), Foreign: true, Environment: c.Environment}, err)
	if len(refused) > 0 {
		servers = append(servers, refusedEntries(refused))
	}
	return servers, refused
}

// readUserFile reads the file of the user, which may be a link.
func readUserFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	return readOpened(f)
}

// readProjectFile reads the file of a workspace. It refuses a link, because a project
// could point it at a file outside.
func readProjectFile(workspace string) ([]byte, error) {
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Lstat(ProjectFile)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is no regular file")
	}
	f, err := root.Open(ProjectFile)
	if err != nil {
		return nil, err
	}
	return readOpened(f)
}

// readOpened reads and closes a file of at most mcpconfig.MaxFile bytes, and one more, so
// that Parse reports a larger file.
func readOpened(f *os.File) ([]byte, error) {
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is no regular file")
	}
	return io.ReadAll(io.LimitReader(f, mcpconfig.MaxFile+1))
}

// refusedEntries is the plugin that records refused entries.
type refusedEntries []*mcpconfig.Fault

// Name implements plugins.Plugin.
func (refusedEntries) Name() string { return "mcp_config" }

// Install records the entries.
func (r refusedEntries) Install(ctx context.Context, scope plugins.PluginScope, _ plugins.PluginLocation) error {
	reasons := map[string]error{}
	for _, f := range r {
		reasons[f.Place()] = errors.Join(reasons[f.Place()], f)
	}
	_, err := scope.RegisterValid(ctx, nil, reasons)
	return err
}
